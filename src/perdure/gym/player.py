"""`Player`: a policy of one's own as `perdure eval --entry` plays it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium
import numpy as np

from perdure import Policy, UsageError
from perdure.gym.normalised import as_trained


@dataclass(frozen=True)
class Player:
    """How to act in an environment with a policy. What `--entry module:function` gives back, handed the environment.

    ```python
    def player(env):
        agent = Agent(env.observation_space.shape[0], env.action_space.n).eval()

        def act(observation, info):
            return int(agent(torch.from_numpy(observation)).argmax())

        return perdure.gym.Player({"agent": agent}, act)
    ```
    """

    targets: Mapping[str, Any]
    """The policy's components -> what they are loaded into, before the first `act`."""
    act: Callable[[Any, Mapping[str, Any]], Any]
    """From one observation and its `info` to an action."""
    env: gymnasium.Env[Any, Any] | None = None
    """The environment in the wrappers that the run had; None: as `gymnasium.make` made it."""
    contract: Mapping[str, Any] = field(default_factory=dict)
    """What the run declared in the sections `interface` and `env` of its contract."""
    begin: Callable[[], None] | None = None
    """Called before each episode: empties a memory."""


def make(env_id: str) -> gymnasium.Env[Any, Any]:
    """An environment by its id.

    Raises:
        UsageError: there is none, or its package is missing.
    """
    try:
        return gymnasium.make(env_id)
    except (gymnasium.error.Error, ImportError) as error:
        raise UsageError(f"environment {env_id!r} cannot be made: {error}") from error


def prepared(policy: Policy, player: Any, env: gymnasium.Env[Any, Any]) -> Player:
    """A player whose environment was compared and is seen as it was in training, and whose targets hold the policy.

    Args:
        policy: The policy.
        player: What the user's function gave.
        env: What it was handed.

    Raises:
        UsageError: it is no player, its targets have other names, or what it saw was normalised by nobody knows what.
        PolicyMismatchError: the environment, what was declared, or a target is another one than the run's.
    """
    if not isinstance(player, Player):
        raise UsageError(f"the entry gave a {type(player).__name__}, not a perdure.gym.Player.")
    seen = as_trained(player.env or env, policy)
    policy.check(env=seen, contract=player.contract)
    policy.load(**player.targets)
    return replace(player, env=seen)


def play(
    player: Player, env: gymnasium.Env[Any, Any], *, episodes: int, seed: int, max_length: int
) -> dict[str, np.ndarray]:
    """Plays one episode after another.

    Args:
        player: Its targets are loaded.
        env: To play in; each episode begins with a reset by a seed of its own.
        episodes: How many.
        seed: What those seeds, and the one of the action space, come from.
        max_length: Steps after which an episode is cut off; its return until then counts.

    Returns:
        `returns` (float64), `lengths` (int64) and `cut_off` (bool), one number an episode.
    """
    returns, lengths, cut_off = np.zeros(episodes), np.zeros(episodes, np.int64), np.zeros(episodes, bool)
    seeds = (np.random.SeedSequence(seed).generate_state(episodes + 1) >> 1).tolist()
    env.action_space.seed(seeds[-1])
    for number in range(episodes):
        if player.begin is not None:
            player.begin()
        observation, info = env.reset(seed=seeds[number])
        is_over = False
        while not is_over and lengths[number] < max_length:
            observation, reward, terminated, truncated, info = env.step(player.act(observation, info))
            returns[number] += float(reward)
            lengths[number] += 1
            is_over = terminated or truncated
        cut_off[number] = not is_over
    return {"returns": returns, "lengths": lengths, "cut_off": cut_off}
