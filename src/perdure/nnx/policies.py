"""Policies of `train_ppo`: networks rebuilt from what a policy says of its run, and evaluated."""

import jax

from perdure import Policy
from perdure.nnx.config import NetworkConfig, from_mapping
from perdure.nnx.environment import contract_of
from perdure.nnx.evaluation import eval_rollout
from perdure.nnx.launch import build

COMPONENT = "networks"
"""The component that is the policy."""


def is_ours(policy: Policy) -> bool:
    """Whether the policy is that of a run of `launch_ppo`."""
    return policy.components == (COMPONENT,) and policy.launch is not None and policy.launch.get("name") == "ppo"


def evaluate_policy(policy: Policy, env_id: str, *, episodes: int, seed: int, max_length: int) -> dict[str, float]:
    """Plays episodes with the deterministic policy, after everything was compared.

    Args:
        policy: Of a run of `launch_ppo`.
        env_id: gymnax's name of the environment.
        episodes: How many, side by side.
        seed: All randomness comes from it.
        max_length: Steps after which an episode is cut off; its return until then counts.

    Returns:
        As of `eval_rollout`.

    Raises:
        PolicyMismatchError: The environment is another one than the run's.
        ValueError: There is no such environment.
    """
    launch = policy.launch or {}
    env, networks = build(env_id, from_mapping(NetworkConfig, launch["config"]["networks"]), seed=0)
    policy.check(contract=contract_of(env))
    policy.load(networks=networks)
    return eval_rollout(env, networks, episodes, max_length, jax.random.key(seed))
