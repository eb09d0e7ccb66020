"""The callback: it restores the run inside `learn`, and tells it of each boundary.

The restore takes place at the first entry of `collect_rollouts`, when every callback has begun: one that begins later
would start its counters anew. Boundaries stand at the later entries, before gSDE draws its noise, and at the end.
"""

from collections.abc import Sequence
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.type_aliases import RolloutReturn

import perdure
from perdure.sb3.rows import Rows
from perdure.sb3.siblings import advance_progress_bars, siblings_of, with_state
from perdure.sb3.watching import unwatch, watch


def callback(run: perdure.Run, *, stateless: Sequence[BaseCallback] = (), finish: bool = True) -> BaseCallback:
    """What `learn` needs to be resumed exactly: `model.learn(N, callback=perdure.sb3.callback(run))`.

    The model, its policy, optimizers, environments, buffers and action noise, and the other callbacks of `learn`,
    become components of the run. Build all of them at a resume as at the start; `learn` then goes on from the newest
    checkpoint, within the same total of steps.

    Args:
        run: made with `horizon=N`, not restored yet.
        stateless: callbacks of `learn` whose state is not saved (one that talks to a service, say).
        finish: whether the run ends with `learn`. If not, call `run.finish()`.

    Returns:
        A callback for one call of `learn`, alone or in a list with others.

    Raises:
        perdure.UsageError: `run` is no `perdure.Run`.
    """
    if not isinstance(run, perdure.Run):
        raise perdure.UsageError(f"perdure.sb3.callback: {run!r}; a run, such as perdure.Run('runs/x', horizon=N).")
    return Guiding(run, tuple(stateless), finish=finish)


class Guiding(BaseCallback):
    """The callback of one run and one `learn`."""

    def __init__(self, run: perdure.Run, stateless: tuple[BaseCallback, ...], *, finish: bool) -> None:
        super().__init__()
        self.is_repeating = False
        self._run = run
        self._stateless = stateless
        self._finishes = finish
        self._rows = Rows()
        self._total: int | None = None
        self._root: BaseCallback = self
        self._has_begun = False
        self._ended_early = False
        self._repeats = 0
        self._bends = False

    def _on_training_start(self) -> None:
        """Checks what can be checked before anything is changed, and begins to watch.

        Raises:
            perdure.UsageError: another total than the run's, a second `learn`, a place or a model that cannot do.
        """
        self._check()
        self._total, self._root = self.model._total_timesteps, self.locals["callback"]
        others = [each for each in self.logger.output_formats if not isinstance(each, Rows)]
        self.logger.output_formats = [*others, self._rows]
        watch(self.model, self, {name: self.locals[name] for name in _COMPARED & self.locals.keys()})

    def _check(self) -> None:
        model, run = self.model, self._run
        if self._total is not None:
            raise perdure.UsageError(
                "learn: this callback has guided one training already, and a run is one training. For another one, "
                'hand in a callback of another run: perdure.sb3.callback(perdure.Run("runs/next", …)).'
            )
        if self.parent is not None:
            raise perdure.UsageError(
                f"learn: perdure's callback stands inside a {type(self.parent).__name__}, which does not tell it of "
                "the end of the training. Hand it to learn itself, alone or in a list."
            )
        if any(isinstance(each, Guiding) for each in siblings_of(self.locals["callback"], self)):
            raise perdure.UsageError("learn: two callbacks of perdure in one list. A training is one run; hand in one.")
        self._check_loop()
        if run.resets_environments:
            raise perdure.UsageError(
                "perdure.sb3.callback: boundary_reset resets environments behind the model's back. Leave it out, and "
                "wrap those whose state cannot be captured in perdure.gym.Recorded."
            )
        if run.horizon != model._total_timesteps:
            raise perdure.UsageError(_other_total(run, model))

    def _check_loop(self) -> None:
        model = self.model
        if not isinstance(model, OnPolicyAlgorithm | OffPolicyAlgorithm):
            raise perdure.UsageError(
                f"learn: {type(model).__name__} is neither an OnPolicyAlgorithm nor an OffPolicyAlgorithm, so that it "
                "is not known where a boundary could stand. Train it in a loop of your own, with learn(n, "
                "reset_num_timesteps=False) between run.restore and run.boundary: docs/stable-baselines3.md."
            )
        unknown = sorted(self.locals.keys() - _LOCALS)
        if unknown:
            raise perdure.UsageError(
                f"learn of {type(model).__name__} keeps {', '.join(unknown)} in local variables, which a checkpoint "
                "would miss. Make them attributes of the model."
            )

    def before_rollout(self) -> Any:
        """At the entry of `collect_rollouts`: restores, lets finished iterations pass, or makes a boundary."""
        if not self._has_begun:
            self._begin()
        if self._ended_early or self.model.num_timesteps >= self._horizon:
            return self._nothing(goes_on=False)
        self.is_repeating = self._repeats > 0
        if self.is_repeating:
            self._repeats -= 1
            return self._nothing(goes_on=True)
        self._make_boundary()
        return None

    def progress_remaining(self, env_steps: int) -> float | None:
        """By the run's own count of progress, where it was said what schedules do when the total changes."""
        return 1.0 - self._run.progress(env_steps) if self._bends else None

    @property
    def _horizon(self) -> int:
        assert self._total is not None  # noqa: S101 - set when the training began
        return self._total

    def _begin(self) -> None:
        """Restores everything, now that all callbacks have begun."""
        model, run = self.model, self._run
        components: dict[str, Any] = {"algorithm": model, "env": model.env, "policy": model.policy}
        if getattr(model, "replay_buffer", None) is not None:
            components["replay"] = model.replay_buffer  # type: ignore[attr-defined]
        siblings = siblings_of(self._root, self)
        if saved := with_state(siblings, self._stateless):
            components["callbacks"] = saved
        started_at = model.num_timesteps
        restored = run.restore(env_steps=started_at, ended_early=False, **components)
        if model.num_timesteps != run.env_steps:
            raise perdure.UsageError("perdure.sb3.callback: the algorithm counts the steps; take it out of omit.")
        self._has_begun, self._ended_early, self._bends = True, restored.ended_early, run.has_progress
        model._num_timesteps_at_start = model.num_timesteps  # frames per second are those of this process
        advance_progress_bars(siblings, model.num_timesteps - started_at)
        if isinstance(model, OnPolicyAlgorithm):
            self._repeats = run.boundary_number  # `learn` counts its iterations, and has a boundary at each

    def _nothing(self, *, goes_on: bool) -> Any:
        """What a rollout of no steps returns."""
        if isinstance(self.model, OnPolicyAlgorithm):
            return goes_on
        return RolloutReturn(episode_timesteps=0, n_episodes=0, continue_training=goes_on)

    def _make_boundary(self) -> None:
        """Unless the state is that of the boundary before: of the start, or of the checkpoint that was restored."""
        model, run = self.model, self._run
        if model.num_timesteps > run.env_steps:
            told = {"metrics": self._rows.take(), "ended_early": self._ended_early}
            run.boundary(env_steps=model.num_timesteps, updates=model._n_updates, **told)

    def _on_step(self) -> bool:
        """Goes on."""
        return True

    def leave(self) -> None:
        """Gives the model and its logger back as they were."""
        unwatch(self.model)
        if self._rows in self.logger.output_formats:
            self.logger.output_formats.remove(self._rows)

    def _on_training_end(self) -> None:
        """The last boundary: `learn` has left its loop, at the total or because a callback said so."""
        try:
            if self._has_begun:
                self._end()
        finally:
            self.leave()

    def _end(self) -> None:
        self.is_repeating = False
        self._ended_early = self._ended_early or self.model.num_timesteps < self._horizon
        self._make_boundary()
        if self._finishes:
            self._run.finish(ended_early=self._ended_early)


_COMPARED = frozenset({"use_masking"})
"""Arguments of `learn` that change what is learned (MaskablePPO's): compared at a resume."""
_LOCALS = frozenset(
    {
        *("self", "__class__", "total_timesteps", "callback", "log_interval", "tb_log_name", "reset_num_timesteps"),
        *("progress_bar", "iteration"),
        *_COMPARED,
    }
)
"""Local variables of `learn` when callbacks begin: arguments, and the counter that is put right by repeating."""


def _other_total(run: perdure.Run, model: BaseAlgorithm) -> str:
    total, start = model._total_timesteps, model._num_timesteps_at_start
    known = "no horizon" if run.horizon is None else f"the horizon {run.horizon}"
    counted = f", {start} of them taken before (reset_num_timesteps=False)" if start else ""
    return (
        f"learn: the run {run.directory} has {known}, and learn goes to {total} steps{counted}. Schedules go by the "
        f"total, so both must be the same: perdure.Run(…, horizon={total}), or another total for learn."
    )
