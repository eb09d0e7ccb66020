"""Trials confirm what makes a resume exact, whatever else is put right with it; here resumes are simulated."""

from collections.abc import Sequence
from pathlib import Path

from perdure.proof.audit_processes import Fingerprint, Outcome
from perdure.proof.audit_trials import Comparing, Trials
from perdure.proof.audit_units import Unit
from perdure.runs.chain import Link

AT = 3


def unit(name: str) -> Unit:
    return Unit(name, (name,), "1", "0")


class Script:
    """A script with faults, each of which spoils a component, and with restored streams that an audit could spoil."""

    def __init__(self, spoils: dict[str, str], *, streams: Sequence[str] = (), hidden: bool = False) -> None:
        self.spoils, self.streams, self.hidden = spoils, streams, hidden
        self.resumes: list[list[str]] = []

    def state(self, repaired: Sequence[str]) -> dict[str, str]:
        wrong = sorted(set(self.spoils) - set(repaired)) + sorted(set(self.streams) & set(repaired))
        return {name: str([each for each in wrong if self.spoils.get(each, name) == name]) for name in ("a", "b")}

    def __call__(self, units: Sequence[Unit]) -> Outcome:
        self.resumes.append([each.place for each in units])
        state = {**self.state(self.resumes[-1]), "c": str(self.hidden)}
        links = [Link(at, at, at, "", state, {}, "", None) for at in range(AT + 2)]
        return Outcome(0, "", Path(), {}, {"x": links})

    def trials(self) -> Trials:
        straight: Fingerprint = {**self._fingerprint({"a": "[]", "b": "[]", "c": "False"})}
        resumed = self([]).fingerprint
        self.resumes.clear()
        return Trials(Comparing(AT), AT, straight, resumed, self)

    @staticmethod
    def _fingerprint(state: dict[str, str]) -> Fingerprint:
        return {(at, name): value for at in range(AT + 2) for name, value in {**state, "metrics": ""}.items()}


def judged(script: Script, *names: str) -> tuple[list[str], Trials]:
    trials = script.trials()
    return [each.place for each in trials.judge([unit(name) for name in names])], trials


def test_an_exact_resume_confirms_nothing_and_starts_nothing():
    script = Script({}, streams=["stream"])

    confirmed, trials = judged(script, "stream", "loss")

    assert (confirmed, script.resumes, trials.explained) == ([], [], True)
    assert trials.notes["stream"] == "it differs after the resume, which is exact all the same"


def test_faults_are_confirmed_and_harmless_variables_are_done_with_in_groups():
    script = Script({"eps": "a", "rng": "a"})
    harmless = [f"harmless{at}" for at in range(30)]

    confirmed, trials = judged(script, "eps", *harmless, "rng")

    assert confirmed == ["eps", "rng"]
    assert trials.explained
    assert trials.notes["eps"] == "put right, it changes a at boundary 4"
    assert trials.notes["harmless3"] == "it differs after the resume, but putting it right changed nothing"
    assert len(script.resumes) < 25  # and not one for each of the thirty


def test_a_stream_that_was_restored_in_another_way_is_not_confirmed_beside_a_fault():
    confirmed, trials = judged(Script({"eps": "a"}, streams=["stream"]), "eps", "stream")

    assert (confirmed, trials.explained) == (["eps"], True)
    assert (
        trials.notes["stream"] == "put right, it changes a, b at boundary 4, but the resume does not become exact by it"
    )


def test_where_something_else_is_lost_a_fault_counts_that_makes_a_component_right():
    confirmed, trials = judged(
        Script({"eps": "a", "rng": "b"}, streams=["stream"], hidden=True), "eps", "rng", "stream"
    )

    assert (confirmed, trials.explained) == (["eps", "rng"], False)


def test_where_something_else_is_lost_in_the_same_component_nothing_is_promised():
    confirmed, trials = judged(Script({"eps": "a", "unseen": "a"}), "eps")

    assert (confirmed, trials.explained) == ([], False)
    assert trials.notes["eps"] == "put right, it changes a at boundary 4, but the resume does not become exact by it"


def test_components_in_which_equal_runs_differ_tell_nothing():
    comparing = Comparing(AT)
    comparing.exclude({(1, "clock"): "x", (1, "net"): "y"}, {(1, "clock"): "z", (1, "net"): "y"})

    assert comparing.excluded == {"clock"}
    assert comparing.first({(4, "clock"): "x", (4, "net"): "y"}, {(4, "clock"): "z", (4, "net"): "y"}) is None
    assert comparing.first({(4, "net"): "y"}, {(4, "net"): "z"}) == "net at boundary 4"
    assert comparing.first({(3, "net"): "y"}, {(3, "net"): "z"}) is None  # before the resume
