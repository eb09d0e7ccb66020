"""The other callbacks of a training."""

from collections.abc import Sequence

from stable_baselines3.common.callbacks import BaseCallback, CallbackList, ProgressBarCallback

import perdure


def siblings_of(root: BaseCallback, own: BaseCallback) -> list[BaseCallback]:
    """All callbacks of `learn` but our own, in the order in which they are called; lists are taken apart."""
    if root is own:
        return []
    if type(root) is CallbackList:
        return [found for each in root.callbacks for found in siblings_of(each, own)]
    return [root]


def advance_progress_bars(siblings: Sequence[BaseCallback], env_steps: int) -> None:
    """Shows the steps that were taken before this process."""
    for each in siblings:
        if isinstance(each, ProgressBarCallback):
            each.pbar.update(env_steps)


def with_state(siblings: Sequence[BaseCallback], stateless: Sequence[BaseCallback]) -> list[BaseCallback]:
    """Those that are saved: no progress bars, and none of the `stateless`.

    Raises:
        UsageError: one of the `stateless` is no callback of `learn`.
    """
    for each in stateless:
        if not any(each is one for one in siblings):
            raise perdure.UsageError(
                f"perdure.sb3.callback: stateless names a {type(each).__name__} that learn was not handed; hand it to "
                "both, the same object."
            )
    left_out = {id(each) for each in stateless}
    return [one for one in siblings if id(one) not in left_out and not isinstance(one, ProgressBarCallback)]
