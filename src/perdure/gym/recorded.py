"""Exact resumes of environments whose engine nobody can look into: reset and replay."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from perdure.adapters.gymnasium_generators import generators_of, set_states, states_of
from perdure.adapters.gymnasium_recorded import Recording
from perdure.errors import RestoreError, UsageError
from perdure.gym.layers import layers_of
from perdure.gym.outcomes import checksum, digest_of_value

_KEEP_MORE_THAN_AN_EPISODE = (
    gymnasium.wrappers.Autoreset,
    gymnasium.wrappers.NormalizeObservation,
    gymnasium.wrappers.NormalizeReward,
    gymnasium.wrappers.RecordEpisodeStatistics,
    gymnasium.wrappers.RecordVideo,
)

_PASS_OBSERVATIONS_ON = (
    gymnasium.wrappers.OrderEnforcing,
    gymnasium.wrappers.PassiveEnvChecker,
    gymnasium.wrappers.TimeLimit,
)


class Recorded(gymnasium.Wrapper):
    """Records what happens to an environment since its last reset, so that a resume can repeat it.

    For environments that are opaque (Box2D, engines in other languages) and deterministic: the same generators, reset
    and actions must lead to the same state, whatever happened before the reset. A checkpoint holds the states of all
    generators from before the last reset, the reset's arguments and the actions since. A resume puts the generators
    back, resets, repeats the actions and compares every reward and the last observation; a difference refuses it.
    Wrap first, before anything that keeps more than an episode: statistics and normalisers around it are captured as
    always. Environments of `gymnasium.envs.box2d` get a new Box2D world before every reset, in every run, for the
    order of contacts in a used one depends on its past. What `RecordEpisodeStatistics` and the like know of past
    episodes is not replayed.

    Args:
        env: the environment, with no wrappers but those that `gymnasium.make` adds or that begin anew at each reset.
        replay_limit_steps: more steps than this since the last reset refuse a checkpoint.

    Raises:
        UsageError: `env` contains a wrapper that keeps more than an episode, or the limit is below 1.
    """

    def __init__(self, env: gymnasium.Env, *, replay_limit_steps: int = 100_000) -> None:
        super().__init__(env)
        if replay_limit_steps < 1:
            raise UsageError(f"replay_limit_steps={replay_limit_steps}: use at least 1.")
        for layer in layers_of(env):
            if isinstance(layer, _KEEP_MORE_THAN_AN_EPISODE):
                raise UsageError(
                    f"Recorded around {type(layer).__name__}, which keeps more than an episode and would be lost in a "
                    f"replay. Write {type(layer).__name__}(perdure.gym.Recorded(env))."
                )
        self.replay_limit_steps = replay_limit_steps
        self.recording = Recording()
        self.steps_since_reset = 0
        self._last: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins a new recording, and resets."""
        states = states_of(generators_of(self.env))
        self.recording = Recording(before=states, seed=seed, options=copy.deepcopy(options))
        self.steps_since_reset = 0
        _make_new_world(self.env.unwrapped)
        self._last, info = self.env.reset(seed=seed, options=options)
        self._note_last()
        return self._last, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Records the action, and steps."""
        self.steps_since_reset += 1
        kept = copy.deepcopy(action) if self.steps_since_reset <= self.replay_limit_steps else None
        result = self.env.step(action)
        if kept is not None:
            self.recording.actions.append(kept)
            self.recording.outcomes.append(checksum(result[1], terminated=result[2], truncated=result[3]))
        self._last = result[0]
        self._note_last()
        return result

    def replay(self, recording: Recording, states: dict[str, Any]) -> None:
        """Brings the environment where it was when the recording ended.

        Where this fails, the engine stands somewhere on the way and the recording is still its own: replaying that one
        is the only way back. A restore does so, and says if even this failed, which takes an environment that is not
        deterministic.

        Args:
            recording: of an environment that was built the same way. It goes on in this one.
            states: of all generators after its last step.

        Raises:
            RestoreError: the environment holds other generators, or did something else than in the run; the message
                names environment and step.
        """
        if recording.before is not None:
            set_states(self.env, recording.before, strict=False)
            _make_new_world(self.env.unwrapped)
            last = self._repeat(recording)
            if digest_of_value(last) != recording.last:
                raise self._differs(len(recording.actions), "the observation")
            self._compare_generators(states, len(recording.actions))
            self._last = last  # no sooner: after a replay that failed, the own recording brings back what was
        set_states(self.env, states, strict=True)
        self.recording, self.steps_since_reset = recording, len(recording.actions)

    def _note_last(self) -> None:
        self.recording.last = digest_of_value(self._last)

    def _repeat(self, recording: Recording) -> Any:
        """Resets and steps; returns the last observation."""
        with _quiet(self.env, is_last=not recording.actions):
            observation, _ = self.env.reset(seed=recording.seed, options=copy.deepcopy(recording.options))
        for at, (action, outcome) in enumerate(zip(recording.actions, recording.outcomes, strict=True), start=1):
            with _quiet(self.env, is_last=at == len(recording.actions)):
                observation, reward, terminated, truncated, _ = self.env.step(copy.deepcopy(action))
            if checksum(reward, terminated=terminated, truncated=truncated) != outcome:
                raise self._differs(at, "the reward or the end of the episode")
        return observation

    def _compare_generators(self, states: dict[str, Any], step: int) -> None:
        """Those of spaces were also drawn from outside, and are only set."""
        places = generators_of(self.env)
        now = states_of({path: place for path, place in places.items() if not place.of_space})
        for path, state in now.items():
            if digest_of_value(_comparable(state)) != digest_of_value(_comparable(states.get(path))):
                raise self._differs(step, f"the generator {path}")

    def _differs(self, step: int, what: str) -> RestoreError:
        name = self.env.spec.id if self.env.spec is not None else type(self.env.unwrapped).__name__
        return RestoreError(
            f"{name}, replayed: {what} after step {step:,} since the reset is another one than in the run. The "
            "environment is not deterministic, or keeps something across resets; perdure.gym.probe tells which"
        )


def _comparable(state: Any) -> Any:
    """A generator's tree with arrays in the place of leaves that hold arrays."""
    if isinstance(state, dict):
        return {name: _comparable(part) for name, part in state.items()}
    return getattr(state, "value", state)


def _is_box2d(kind: type) -> bool:
    return any(cls.__module__.startswith("gymnasium.envs.box2d.") for cls in kind.__mro__)


def _make_new_world(engine: Any) -> None:
    """Box2D visits contacts in an order that depends on what its world held before, unless the world is new."""
    if _is_box2d(type(engine)):
        engine._destroy()
        engine.world = type(engine.world)(gravity=tuple(engine.world.gravity))


@contextlib.contextmanager
def _quiet(env: Any, *, is_last: bool) -> Iterator[None]:
    """Nothing is shown, and CarRacing draws the last observation alone: no step looks at one."""
    engine = env.unwrapped
    held, mode = vars(engine), engine.render_mode
    draws = _is_box2d(type(engine)) and hasattr(engine, "_create_image_array")
    passed_on = all(isinstance(layer, (*_PASS_OBSERVATIONS_ON, type(engine))) for layer in layers_of(env))
    if draws and passed_on and not is_last:
        blank = np.zeros(engine.observation_space.shape, engine.observation_space.dtype)
        held["_render"] = lambda mode: blank
    held["render_mode"] = None
    try:
        yield
    finally:
        held.pop("_render", None)
        held["render_mode"] = mode
