"""`perdure eval POLICY`: episodes with a policy, after everything it was trained for was compared."""

import argparse
import random
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from perdure.cli.exit_codes import ExitCode
from perdure.cli.export import components_of, launch_in
from perdure.cli.output import count, print_json
from perdure.cli.targets import CheckpointTarget, find_target
from perdure.cli.training import require_torch, require_trainer
from perdure.errors import PolicyMismatchError, UsageError
from perdure.runs.policies import store_of
from perdure.runs.policy_loading import Policy
from perdure.runs.policy_record import export_checkpoint

NOTE = """\
Policies of `perdure train` rebuild their networks. For a network of your own, --entry names a function: it is handed
the environment and gives back a perdure.gym.Player (docs/policies.md). Exit code 3: the environment, its spaces or its
levels are others than the policy was trained for, or something that the run had is missing.
"""

_UNTOLD = "by Run(policy=…) in the script, or export them first with perdure export RUN --to PATH --components A,B"

EPISODES = 10
MAX_LENGTH = 27_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    parser.epilog = NOTE
    parser.add_argument(
        "policy", metavar="POLICY", help="the policy's directory, a role's, or RUN@best, @latest, @STEP"
    )
    parser.add_argument("--env", metavar="ID", help="the environment (default: the one that it was trained in)")
    parser.add_argument("--episodes", metavar="N", type=int, default=EPISODES, help=f"how many ({EPISODES})")
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="all randomness comes from it (0)")
    parser.add_argument(
        "--max-length", metavar="STEPS", type=int, default=MAX_LENGTH, help=f"longer episodes are cut ({MAX_LENGTH})"
    )
    parser.add_argument("--entry", metavar="MODULE:FUNCTION", help="for a network of your own")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Compares, plays, and prints.

    Raises:
        NoCheckpointError: there is no policy at the path.
        UsageError: something else stands there; an option cannot be right; nobody knows how to build the networks.
        DamagedError: the policy is damaged.
        PolicyMismatchError: it was trained for something else.
    """
    for option, number, least in (("episodes", arguments.episodes, 1), ("max-length", arguments.max_length, 1)):
        if number < least:
            raise UsageError(f"--{option} {number}: a whole number from {least}.")
    if not 0 <= arguments.seed < 2**31:
        raise UsageError(f"--seed {arguments.seed}: a whole number from 0, below 2**31.")
    policy = _policy(arguments.policy)
    env_id = arguments.env or _recorded(policy)
    played = _how(policy, arguments)(policy, env_id, arguments)
    document = {
        "policy": str(policy.path),
        "env": env_id,
        "seed": arguments.seed,
        "env_steps": policy.env_steps,
        **played,
    }
    if arguments.json:
        print_json(document)
    else:
        _print(document)
    return ExitCode.DONE


def _policy(text: str) -> Policy:
    """The policy at a path, the one that has a role there, or one made of a run's checkpoint (`RUN@best`) for now."""
    if "@" not in text or Path(text).expanduser().exists():
        return Policy(text)
    checkpoint = find_target(text)
    if not isinstance(checkpoint, CheckpointTarget):
        return Policy(text)
    launch = launch_in(checkpoint.run)
    components = components_of(None, checkpoint.run, launch, checkpoint.manifest(), way_out=_UNTOLD)
    with TemporaryDirectory(prefix="perdure-") as folder:
        to = store_of(Path(folder) / checkpoint.name)
        export_checkpoint(checkpoint.store, checkpoint.name, components, to, launch=launch)
        policy = Policy(Path(folder) / checkpoint.name)  # read into memory, every byte
    policy.path = checkpoint.path
    return policy


def _recorded(policy: Policy) -> str:
    launch = policy.launch or {}
    env_id = policy.environment.get("id") or launch.get("config", {}).get("env_id")
    if env_id is None:
        raise UsageError(f"{policy.path}: it does not tell the environment's name; give --env ID.")
    return str(env_id)


Play = Callable[[Policy, str, argparse.Namespace], dict[str, Any]]


def _how(policy: Policy, arguments: argparse.Namespace) -> Play:
    if arguments.entry is not None:
        return _play_entry
    if (policy.launch or {}).get("name") == "ppo":
        return _play_nnx
    if any(facts.get(".") == "class perdure:ActorCritic" for facts in policy.facts.values()):
        return _play_torch
    problem = (
        f"{policy.path}: its networks ({', '.join(policy.components)}) are a script's, and nobody here can build them"
    )
    raise UsageError(f"{problem}. Give --entry MODULE:FUNCTION (docs/policies.md).")


def _play_torch(policy: Policy, env_id: str, arguments: argparse.Namespace) -> dict[str, Any]:
    require_torch()
    from perdure.torch.policies import evaluate_policy

    options = {"episodes": arguments.episodes, "seed": arguments.seed, "max_length": arguments.max_length}
    return _summary(evaluate_policy(policy, env_id, **options))


def _play_nnx(policy: Policy, env_id: str, arguments: argparse.Namespace) -> dict[str, Any]:
    require_trainer()
    require_trainer(1)
    from perdure.nnx.policies import evaluate_policy

    options = {"episodes": arguments.episodes, "seed": arguments.seed, "max_length": arguments.max_length}
    try:
        told = evaluate_policy(policy, env_id, **options)
    except PolicyMismatchError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error
    return {
        "episodes": arguments.episodes,
        "return_mean": told["episode_reward_mean"],
        "return_std": told["episode_reward_std"],
        "length_mean": told["lifespan_mean"],
        "cut_off": told["episodes_cut_off"],
    }


def _play_entry(policy: Policy, env_id: str, arguments: argparse.Namespace) -> dict[str, Any]:
    entry = _function(arguments.entry)
    from perdure.gym.player import make, play, prepared

    env = make(env_id)
    try:
        player = prepared(policy, entry(env), env)
        _seed_process(arguments.seed)
        options = {"episodes": arguments.episodes, "seed": arguments.seed, "max_length": arguments.max_length}
        return _summary(play(player, player.env or env, **options))
    finally:
        env.close()


def _function(entry: str) -> Callable[..., Any]:
    module, _, name = entry.partition(":")
    if not module or not name:
        raise UsageError(f"--entry {entry}: MODULE:FUNCTION, such as my_agent:player.")
    here = str(Path.cwd())
    if here not in sys.path:  # as `python -m` does; the tool's own path is where it is installed
        sys.path.insert(0, here)
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--entry {entry}: {error}. It is looked for in {here} and where Python looks.") from error


def _seed_process(seed: int) -> None:
    """A player may draw from the process's generators: what comes out is to depend on the seed alone."""
    random.seed(seed)
    np.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


def _summary(played: Mapping[str, np.ndarray]) -> dict[str, Any]:
    returns, lengths = played["returns"], played["lengths"]
    return {
        "episodes": len(returns),
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std()),
        "length_mean": float(lengths.mean()),
        "cut_off": int(played["cut_off"].sum()),
        "returns": returns.tolist(),
    }


def _print(document: Mapping[str, Any]) -> None:
    spread = f"{document['return_mean']:.2f} ± {document['return_std']:.2f}"
    cut = f", {count(document['cut_off'], 'episode')} cut off" if document["cut_off"] else ""
    print(
        f"{document['policy']}: return {spread} over {count(document['episodes'], 'episode')} of {document['env']} "
        f"(seed {document['seed']}), length {document['length_mean']:.1f}{cut}"
    )
