"""Methods of a model, watched while it learns: the model gets a class of its own for that time.

Wrapped methods among the attributes of the model would be pickled by its `save`, which `EvalCallback` and
`CheckpointCallback` call in the middle of a training; a class is not.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from stable_baselines3.common.base_class import BaseAlgorithm


class Guide(Protocol):
    """What is asked at the watched methods."""

    is_repeating: bool
    """Whether the loop only counts iterations that were done before the resume."""

    def before_rollout(self) -> Any:
        """Called at the entry of `collect_rollouts`; what it returns instead, or None to let it go on."""
        ...

    def leave(self) -> None:
        """Called where an exception leaves a watched method: the training is over."""
        ...

    def progress_remaining(self, env_steps: int) -> float | None:
        """The progress that remains, from 1 to 0; None where the model's own is right."""
        ...


def watch(model: BaseAlgorithm, guide: Guide, compared: Mapping[str, Any]) -> None:
    """Gives the model a class whose methods ask the guide; it is told of exceptions that leave them.

    What is to be `compared` at a resume becomes attributes of that class, which no checkpoint of the model's own holds.
    """
    unwatch(model)  # of a training before, which ended by an error while its callbacks began
    kind = type(model)

    def collect_rollouts(self: Any, *given: Any, **named: Any) -> Any:
        with _until_an_error(guide):
            instead = guide.before_rollout()
            return kind.collect_rollouts(self, *given, **named) if instead is None else instead  # type: ignore[attr-defined]

    def train(self: Any, *given: Any, **named: Any) -> None:
        with _until_an_error(guide):
            if not guide.is_repeating:
                kind.train(self, *given, **named)  # type: ignore[attr-defined]

    def dump_logs(self: Any, *given: Any, **named: Any) -> None:
        if not guide.is_repeating:
            kind.dump_logs(self, *given, **named)

    def _update_current_progress_remaining(self: Any, num_timesteps: int, total_timesteps: int) -> None:
        kind._update_current_progress_remaining(self, num_timesteps, total_timesteps)
        remaining = guide.progress_remaining(num_timesteps)
        if remaining is not None:
            self._current_progress_remaining = remaining

    watching = [collect_rollouts, train, dump_logs, _update_current_progress_remaining]
    named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    made = type(kind.__name__, (kind, _Watched), {**named, **compared, **{each.__name__: each for each in watching}})
    model.__class__ = made


def unwatch(model: BaseAlgorithm) -> None:
    """Gives the model its own class back; does nothing if it has it."""
    if isinstance(model, _Watched):
        model.__class__ = type(model).__bases__[0]


class _Watched:
    """Marks the classes that `watch` makes."""


@contextmanager
def _until_an_error(guide: Guide) -> Iterator[None]:
    try:
        yield
    except BaseException:
        guide.leave()
        raise
