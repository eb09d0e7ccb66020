"""What functions count is told at the first save that it shows in, not at the resume a night later."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, capture
from perdure.errors import CaptureError
from perdure.runs.unchanged import fixed_parts, refuse_changes

gymnasium = pytest.importorskip("gymnasium")
torch = pytest.importorskip("torch")

WAY_OUT = "Keep what changes in an attribute of the environment, wrapper or module itself"


def counting() -> Callable[[Any], float]:
    """A function that counts in a variable around it, as scripts shape a reward."""
    calls = 0

    def shaped(reward: Any) -> float:
        nonlocal calls
        calls += 1
        return float(reward) / calls

    return shaped


def constant(scale: float = 0.5) -> Callable[[Any], float]:
    """The twin that counts nothing."""

    def shaped(reward: Any) -> float:
        return float(reward) * scale

    return shaped


class Shaped(gymnasium.RewardWrapper):
    """The way out: the wrapper counts."""

    calls = 0

    def reward(self, reward: Any) -> float:
        self.calls += 1
        return float(reward) / self.calls


def rewarded(shape: Callable[[Any], float]) -> Any:
    return gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), shape)


def shaped_layer(shape: Callable[[Any], float]) -> Any:
    layer: Any = torch.nn.Linear(1, 1)
    layer.shape = shape
    return layer


def play(directory: Path, env: Any, steps: int) -> list[float]:
    """A run that saves every second step; the rewards of this start."""
    env.action_space.seed(1)
    env.reset(seed=1)
    rewards = []
    with perdure.Run(directory, every=perdure.Every(updates=2), background=False) as run:
        run.restore(env=env)
        while run.updates < steps:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                env.reset()
            rewards.append(float(reward))
            run.boundary(env_steps=run.env_steps + 1)
    return rewards


def test_a_reward_function_that_counts_refuses_the_first_save(tmp_path: Path) -> None:
    with pytest.raises(CaptureError) as caught:
        play(tmp_path / "run", rewarded(counting()), steps=4)

    assert "env/func/calls: 0 when the run was opened, 2 now. Functions, what they bind" in str(caught.value)
    assert WAY_OUT in str(caught.value)
    assert [found.name for found in (tmp_path / "run" / "checkpoints").iterdir()] == ["step_0000000000"]


@pytest.mark.parametrize(
    "make",
    [lambda: rewarded(constant()), lambda: Shaped(gymnasium.make("CartPole-v1"))],
    ids=["constant", "the wrapper counts"],
)
def test_its_twins_save_and_go_on(tmp_path: Path, make: Callable[[], Any]) -> None:
    straight = play(tmp_path / "straight", make(), steps=40)

    assert play(tmp_path / "stopped", make(), steps=30) == straight[:30]
    assert play(tmp_path / "stopped", make(), steps=40) == straight[30:]


def test_after_a_resume_it_is_compared_with_what_was_handed_in(tmp_path: Path) -> None:
    """The function that begins to count after the resume, and one that never does."""
    for shape, updates in ((constant(), 2), (constant(), 4)):
        with perdure.Run(tmp_path, background=False) as run:
            layer = shaped_layer(shape)
            run.restore(layer=layer)
            run.finish(env_steps=updates)

    with perdure.Run(tmp_path, background=False) as run:
        layer = shaped_layer(constant())
        run.restore(layer=layer)
        layer.shape = constant(0.25)
        with pytest.raises(CaptureError, match=r"^layer/\./shape/scale: 0\.5 when the run was opened, 0\.25 now\."):
            run.finish(env_steps=5)


class Stepping(torch.nn.Module):
    steps = 0
    gain = 0.5

    def forward(self, x: Any) -> Any:
        self.steps += 1
        return x * self.gain


def test_a_count_that_begins_as_a_value_of_the_class_is_state(tmp_path: Path) -> None:
    for target in (2, 4):
        net = Stepping()
        with perdure.Run(tmp_path, background=False) as run:
            run.restore(net=net)
            net(torch.ones(1))
            run.finish(env_steps=target)
    assert vars(net)["steps"] == 2


def test_a_value_that_the_class_itself_changes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with perdure.Run(tmp_path, background=False) as run:
        run.restore(net=Stepping())
        monkeypatch.setattr(Stepping, "gain", 0.25)
        with pytest.raises(CaptureError, match=r"^net/\./gain: 0\.5 when the run was opened, 0\.25 now"):
            run.finish(env_steps=1)


@pytest.mark.parametrize("change", ["another", "gone", "new"])
def test_every_change_of_a_fact_is_told_and_no_other(change: str) -> None:
    def snapshot(**facts: Any) -> Any:
        return capture({"c": {"x": 1, **facts}}, Resolver(), Counters()).snapshot

    before, now = {
        "another": (snapshot(f=abs), snapshot(f=max)),
        "gone": (snapshot(f=abs), snapshot()),
        "new": (snapshot(), snapshot(f=abs)),
    }[change]
    refuse_changes(fixed_parts(before), before)

    with pytest.raises(CaptureError, match=r"^c/f: .* when the run was opened, .* now\."):
        refuse_changes(fixed_parts(before), now)


class Growing(torch.nn.Module):
    """Makes its head when it knows what comes in."""

    def __init__(self, *, lazily: bool) -> None:
        super().__init__()
        self.head = None if lazily else torch.nn.Linear(2, 1)
        self.register_buffer("seen", None if lazily else torch.zeros(1))

    def forward(self, x: Any) -> Any:
        if self.head is None:
            self.head, self.seen = torch.nn.Linear(2, 1), torch.zeros(1)
        return self.head(x)


@pytest.mark.parametrize("wrap", [lambda net: net, lambda net: {"nets": [net]}], ids=["bare", "nested"])
def test_weights_that_appear_refuse_the_first_save_that_holds_them(tmp_path: Path, wrap: Callable[[Any], Any]) -> None:
    net = Growing(lazily=True)
    with perdure.Run(tmp_path / "lazy", background=False) as run:
        run.restore(net=wrap(net))
        net(torch.ones(2))
        refusal = r"^net.*: the module has got head, head\.bias, head\.weight, seen since the run was opened\."
        with pytest.raises(CaptureError, match=refusal):
            run.finish(env_steps=1)

    for end in (1, 2):
        net = Growing(lazily=False)
        with perdure.Run(tmp_path / "complete", background=False) as run:
            run.restore(net=wrap(net))
            net(torch.ones(2))
            run.finish(env_steps=end)


@dataclasses.dataclass
class Transition:
    """What users keep in lists."""

    observation: Any
    reward: float


def test_a_list_that_gets_objects_is_refused_at_the_first_such_save(tmp_path: Path):
    run = perdure.Run(tmp_path / "x", every=perdure.Every(updates=1))
    run.restore(replay=[], log={"best": None})
    run.boundary(env_steps=1, replay=[1.0, [2, "a"], torch.zeros(2)], log={"best": 3})

    message = r"^replay/0: a dataclass has come since the run was opened, for which a fresh start has no place, so no"
    with pytest.raises(CaptureError, match=message):
        run.boundary(env_steps=2, replay=[Transition(1, 2.0)], log={"best": 3})
    with pytest.raises(CaptureError, match=r"^log/best/0: a dataclass has come"):
        run.boundary(env_steps=2, replay=[], log={"best": [Transition(1, 2.0)]})
    run.boundary(env_steps=2, replay=[], log={"best": 3})
    run.close()


def test_objects_that_a_fresh_start_has_a_place_for_are_saved_and_come_back(tmp_path: Path):
    with perdure.Run(tmp_path / "x", every=perdure.Every(updates=1)) as run:
        run.restore(replay=[Transition(0, 0.0), Transition(0, 0.0)])
        run.boundary(env_steps=1, replay=[Transition(1, 2.0), Transition(3, 4.0)])
    with perdure.Run(tmp_path / "x", every=perdure.Every(updates=1)) as run:
        restored = run.restore(replay=[Transition(0, 0.0), Transition(0, 0.0)]).replay

    assert restored == [Transition(1, 2.0), Transition(3, 4.0)]
