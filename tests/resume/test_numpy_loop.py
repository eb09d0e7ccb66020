"""Save at k, load in a new process, go on: the same as never stopped, for a NumPy loop with every kind of state."""

import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from perdure import ContractError, Run
from perdure.format.state_digest import component_digests
from perdure.runs.lineage import read_lineage
from perdure.tree.diff import diff_snapshots
from perdure.tree.leaves import Alias, Array, Tree, leaves
from perdure.tree.paths import Path as TreePath
from perdure.tree.paths import format_path
from perdure.tree.snapshot import Snapshot

SCRIPT = Path(__file__).with_name("numpy_loop.py")
UPDATES = 8
KILLED = -9


def loop(directory: Path, *flags: str, code: int = 0) -> str:
    """Runs the loop as a process of its own and returns what it wrote to stderr."""
    command = [sys.executable, str(SCRIPT), str(directory), *flags]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == code, result.stderr
    return result.stderr


def stopped_at(directory: Path, boundary: int, *flags: str) -> None:
    """Runs the loop until it kills itself right after a boundary."""
    loop(directory, "--every-updates", "1", *flags, "--kill-at-boundary", str(boundary), code=KILLED)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that was never stopped, saved at every boundary."""
    directory = tmp_path_factory.mktemp("straight") / "run"
    loop(directory, "--every-updates", "1")
    return directory


@pytest.fixture(scope="module")
def killed_at_3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose process killed itself after boundary 3; tests work on copies."""
    directory = tmp_path_factory.mktemp("killed") / "run"
    stopped_at(directory, 3)
    return directory


@pytest.mark.parametrize("k", [1, 4, *(pytest.param(k, marks=pytest.mark.full) for k in (2, 3, 5, 6, 7))])
def test_a_second_process_that_resumes_from_k_equals_the_run_never_stopped(
    k: int, straight: Path, tmp_path: Path, comparing: ModuleType
) -> None:
    """Every leaf, generator and digest of every later boundary, and every metric row."""
    stopped_at(tmp_path / "run", k)
    assert sorted(comparing.checkpoints(tmp_path / "run")) == list(range(k + 1))

    loop(tmp_path / "run", "--every-updates", "1")

    assert comparing.differences(straight, tmp_path / "run") == []
    assert comparing.state_digests(tmp_path / "run") == comparing.state_digests(straight)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (straight / "metrics.jsonl").read_bytes()
    events = [(event["event"], event.get("checkpoint")) for event in read_lineage(tmp_path / "run" / "lineage.jsonl")]
    assert ("resumed", f"step_{15 * k:010d}") in events


def test_three_stops_in_one_run_leave_no_trace(straight: Path, tmp_path: Path, comparing: ModuleType) -> None:
    """Stopping again and again is as good as stopping once: nothing is consumed by a resume."""
    for k in (1, 4, 6):
        stopped_at(tmp_path / "run", k)
    loop(tmp_path / "run", "--every-updates", "1")

    assert comparing.differences(straight, tmp_path / "run") == []
    events = [event["event"] for event in read_lineage(tmp_path / "run" / "lineage.jsonl")]
    assert events.count("resumed") == 3


def test_the_same_checkpoint_serves_two_resumes(straight: Path, tmp_path: Path, comparing: ModuleType) -> None:
    """The second resume from boundary 3 is the first one again; the rows of the first one's lost boundaries go."""
    stopped_at(tmp_path / "run", 3)
    loop(tmp_path / "run", "--every-updates", "100", "--kill-at-boundary", "5", code=KILLED)
    rows_of_first = (tmp_path / "run" / "metrics.jsonl").read_bytes().count(b"\n")

    said = loop(tmp_path / "run", "--every-updates", "1")

    assert rows_of_first == 5
    assert "bytes of rows after the checkpoint were cut off" in said
    assert comparing.differences(straight, tmp_path / "run") == []
    resumed = [event for event in read_lineage(tmp_path / "run" / "lineage.jsonl") if event["event"] == "resumed"]
    assert [event["checkpoint"] for event in resumed] == ["step_0000000045"] * 2


def test_resuming_a_finished_run_changes_nothing(straight: Path, tmp_path: Path, comparing: ModuleType) -> None:
    """A run at its horizon is done: no boundary, no row, no checkpoint comes on top."""
    shutil.copytree(straight, tmp_path / "run")

    loop(tmp_path / "run", "--every-updates", "1")

    assert comparing.differences(straight, tmp_path / "run") == []
    assert comparing.state_digests(tmp_path / "run") == comparing.state_digests(straight)


@pytest.mark.parametrize("k", [2, 5])
def test_evaluating_after_every_update_does_not_touch_the_training(
    k: int, straight: Path, tmp_path: Path, comparing: ModuleType
) -> None:
    """With an evaluation that has its own generator, stopped or not, each state digest is that of the run without."""
    stopped_at(tmp_path / "run", k, "--evaluation", "own")
    loop(tmp_path / "run", "--every-updates", "1", "--evaluation", "own")

    assert comparing.state_digests(tmp_path / "run") == comparing.state_digests(straight)
    ignore = frozenset({"evaluation"})
    assert comparing.metric_differences(straight, tmp_path / "run", ignore=ignore) == []
    assert comparing.metric_differences(straight, tmp_path / "run") != [], "no evaluation took place"


def test_twin_an_evaluation_that_draws_from_the_training_is_found(
    straight: Path, tmp_path: Path, comparing: ModuleType, numpy_loop: ModuleType
) -> None:
    """The comparison above can fail: one number drawn from the training's generator shows."""
    numpy_loop.train(tmp_path / "run", evaluation="shared")

    assert comparing.starting_with(comparing.differences(straight, tmp_path / "run"), "generator/bit_generator/state")


@pytest.mark.parametrize("every", [None, 3])
def test_saving_has_no_side_effect(every: int | None, straight: Path, tmp_path: Path, comparing: ModuleType) -> None:
    """A run that saves at its ends only, or now and then, is the run that saves at every boundary."""
    loop(tmp_path / "run", *([] if every is None else ["--every-updates", str(every)]))

    saved = comparing.state_digests(tmp_path / "run")
    assert sorted(saved) == ([0, 8] if every is None else [0, 3, 6, 8])
    assert saved == {boundary: comparing.state_digests(straight)[boundary] for boundary in saved}
    assert comparing.differences(straight, tmp_path / "run") == []


RESETS = {
    "weights": "weights/",
    "critic": "critic/state/weight",
    "momentum": "optimizer/momentum/",
    "optimizer-updates": "optimizer/updates",
    "normalizer": "normalizer/state/mean",
    "normalizer-count": "normalizer/state/count",
    "environment": "environment/state/position",
    "environment-elapsed": "environment/state/elapsed",
    "environment-history": "environment/state/history",
    "environment-recent": "environment/state/recent_lengths",
    "environment-generator": "environment/state/generator/bit_generator/state",
    "carry": "carry",
    "observation": "counters/fingerprint",
    "observation-sharing": "memory/latest",
    "memory-trace": "memory/trace",
    "exploration": "exploration",
    "learning_rate": "learning_rate",
    "counters": "counters/samples",
    "generator": "generator/bit_generator/state",
    "generator-spawns": "generator/bit_generator/seed_sequence/n_children_spawned",
    "generator-buffer": "generator/bit_generator/state/has_uint32",
    "legacy": "legacy/state",
    "legacy-buffer": "legacy/gauss",
    "python-random": "process_rng/python/words",
    "python-random-buffer": "process_rng/python/gauss_next",
    "numpy-random": "process_rng/numpy/state",
}
"""What goes wrong after the restore -> the path at which the comparison must see it."""


def test_every_reset_is_tried(numpy_loop: ModuleType, forgetting: ModuleType) -> None:
    """No twin is forgotten, and every component of the loop has one."""
    assert RESETS.keys() == forgetting.RESETS.keys()
    seen = {path.split("/")[0] for path in RESETS.values()} | {"observation"}
    assert seen == {*numpy_loop.Training(0).components(), "process_rng"}


@pytest.mark.parametrize("what", RESETS)
def test_twin_a_part_that_is_reset_after_the_restore_is_found(
    what: str,
    straight: Path,
    killed_at_3: Path,
    tmp_path: Path,
    comparing: ModuleType,
    numpy_loop: ModuleType,
    forgetting: ModuleType,
) -> None:
    """Each component, and each hidden part of one, matters: without it the comparison names it."""
    shutil.copytree(killed_at_3, tmp_path / "run")
    run = numpy_loop.train(tmp_path / "run", reset=forgetting.RESETS[what])

    found = comparing.differences(straight, tmp_path / "run")

    assert run.resumed
    assert comparing.starting_with(found, RESETS[what]), f"not found at {RESETS[what]}: {found[:10]}"
    assert all(
        line.startswith(("boundary 4", "boundary 5", "boundary 6", "boundary 7", "boundary 8", "metrics"))
        for line in found
    )


def test_without_a_reset_the_twin_is_the_run_itself(
    straight: Path, killed_at_3: Path, tmp_path: Path, comparing: ModuleType, numpy_loop: ModuleType
) -> None:
    """The twins above differ because of their resets and not because they share this process."""
    shutil.copytree(killed_at_3, tmp_path / "run")
    numpy_loop.train(tmp_path / "run")

    assert comparing.differences(straight, tmp_path / "run") == []


COMPONENTS = (
    "carry",
    "counters",
    "critic",
    "environment",
    "exploration",
    "generator",
    "learning_rate",
    "legacy",
    "memory",
    "normalizer",
    "observation",
    "optimizer",
    "weights",
)


def test_every_component_of_the_loop_is_dropped_once(numpy_loop: ModuleType) -> None:
    """No component is left out of the twins below."""
    assert set(COMPONENTS) == set(numpy_loop.Training(0).components())


@pytest.mark.full
@pytest.mark.parametrize("component", COMPONENTS)
def test_twin_a_component_that_is_never_saved_is_found(
    component: str, straight: Path, tmp_path: Path, comparing: ModuleType, numpy_loop: ModuleType
) -> None:
    """A loop that forgets one component from the start: its own resume is another run, and so is its checkpoint."""
    stopped_at(tmp_path / "run", 3, "--drop", component)
    numpy_loop.train(tmp_path / "run", drop=component)

    found = comparing.differences(straight, tmp_path / "run")

    assert f"boundary 3: {component}: a component | absent" in found
    consequences = [line for line in found if line.startswith("boundary 8") and f": {component}: " not in line]
    assert consequences, f"forgetting {component} has no consequence: the loop does not use it"
    assert not [line for line in found if line.startswith("boundary 3") and f": {component}: " not in line]


@pytest.mark.parametrize("component", COMPONENTS)
def test_twin_a_component_that_the_resume_does_not_hand_in_is_refused(
    component: str, killed_at_3: Path, tmp_path: Path, comparing: ModuleType, numpy_loop: ModuleType
) -> None:
    """There is no best-effort restore: the message names the component, and the run stays as it was."""
    shutil.copytree(killed_at_3, tmp_path / "run")

    with pytest.raises(ContractError, match=rf"{component}: a component in the run, nothing here\. Hand {component}=…"):
        numpy_loop.train(tmp_path / "run", drop=component)

    assert comparing.state_digests(tmp_path / "run") == comparing.state_digests(killed_at_3)
    assert (tmp_path / "run" / "lineage.jsonl").read_bytes() == (killed_at_3 / "lineage.jsonl").read_bytes()
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (killed_at_3 / "metrics.jsonl").read_bytes()


def test_a_component_that_the_run_never_had_is_refused(
    killed_at_3: Path, tmp_path: Path, numpy_loop: ModuleType
) -> None:
    """Extra is an error like missing."""
    directory = tmp_path / "run"
    stopped_at(directory, 3, "--drop", "carry")

    with pytest.raises(ContractError, match=r"carry: no such component in the run, a target here\. Leave carry out"):
        numpy_loop.train(directory)


def test_the_loop_has_the_state_that_its_twins_lose(straight: Path, comparing: ModuleType) -> None:
    """An episode limit that is never reached, or a buffer that is always empty, would hide its loss."""
    for boundary, opened in comparing.checkpoints(straight).items():
        at = opened.snapshot.at
        environment = ("environment", "state")
        generator = at(("generator", "bit_generator"))
        assert generator["state"]["has_uint32"] == 1
        assert generator["seed_sequence"]["n_children_spawned"] == boundary
        assert at(("legacy", "has_gauss")) == 1
        assert at(("process_rng", "numpy", "has_gauss")) == 1
        assert at(("process_rng", "python", "gauss_next")) is not None
        if boundary > 0:
            assert at((*environment, "elapsed")).value.any(), "no environment is in mid-episode"
        if boundary >= 3:
            assert at((*environment, "truncations")) > 0, "the episode limit was never reached"
            assert len(at((*environment, "history"))) > 3
            assert at(("counters", "fingerprint")) > 2**53
        assert at(("observation",)) is at(("memory", "latest")), "the observation is not shared"
        assert isinstance(opened.snapshot.components["observation"].tree, Alias)
        for path, leaf in _leaves(opened.snapshot):
            values = leaf.value if isinstance(leaf, Array) else leaf
            if isinstance(values, float) or (isinstance(values, np.ndarray) and values.dtype.kind == "f"):
                assert np.isfinite(values).all(), f"{format_path(path)} is not finite"


def test_the_comparison_sees_every_single_leaf(straight: Path, comparing: ModuleType) -> None:
    """One bit of one leaf, whichever it is: the diff names its path, and the component's digest changes."""
    snapshot = comparing.checkpoints(straight)[UPDATES].snapshot
    digests = component_digests(snapshot)
    tried = 0
    for path, leaf in _leaves(snapshot):
        if isinstance(leaf, Alias):
            continue
        changed = _with(snapshot, path, _perturbed(leaf))
        assert format_path(path) in [line.path for line in diff_snapshots(snapshot, changed)]
        assert component_digests(changed)[str(path[0])] != digests[str(path[0])]
        tried += 1
    assert tried > 60


def test_the_comparison_sees_a_missing_row_and_an_altered_one(
    straight: Path, tmp_path: Path, comparing: ModuleType
) -> None:
    """Metric streams are compared too."""
    shutil.copytree(straight, tmp_path / "run")
    rows = (straight / "metrics.jsonl").read_bytes().splitlines(keepends=True)

    (tmp_path / "run" / "metrics.jsonl").write_bytes(b"".join(rows[:-1]))
    assert comparing.differences(straight, tmp_path / "run") == ["metrics.jsonl: 8 rows | 7 rows"]

    (tmp_path / "run" / "metrics.jsonl").write_bytes(b"".join([*rows[:-1], rows[0]]))
    assert comparing.differences(straight, tmp_path / "run")[0].startswith("metrics.jsonl: row 8: ")


def test_a_run_opened_by_the_loop_is_closed_after_a_refusal(killed_at_3: Path, tmp_path: Path) -> None:
    """A refused resume frees the lock, so that the corrected script can go on."""
    shutil.copytree(killed_at_3, tmp_path / "run")
    with pytest.raises(ContractError, match="differences; nothing was changed"):
        Run(tmp_path / "run").restore(weights=1)

    loop(tmp_path / "run", "--every-updates", "1")


def _leaves(snapshot: Snapshot) -> Iterator[tuple[TreePath, Tree]]:
    for name, component in snapshot.components.items():
        yield from leaves(component.tree, (name,))


def _with(snapshot: Snapshot, path: TreePath, leaf: Tree) -> Snapshot:
    """The snapshot with another leaf at `path`."""

    def replaced(tree: Tree, steps: TreePath) -> Any:
        if not steps:
            return leaf
        if isinstance(tree, dict):
            return {key: replaced(child, steps[1:]) if key == steps[0] else child for key, child in tree.items()}
        return type(tree)(replaced(child, steps[1:]) if at == steps[0] else child for at, child in enumerate(tree))

    name = str(path[0])
    component = dataclasses.replace(snapshot.components[name], tree=replaced(snapshot.components[name].tree, path[1:]))
    return dataclasses.replace(snapshot, components={**snapshot.components, name: component})


def _perturbed(leaf: Tree) -> Tree:
    """The leaf with its last bit changed, or the nearest thing to that."""
    match leaf:
        case Array(value=value):
            data = bytearray(value.tobytes())
            data[-1] ^= 1
            return dataclasses.replace(leaf, value=np.frombuffer(bytes(data), value.dtype).reshape(value.shape))
        case bool():
            return not leaf
        case int():
            return leaf + 1
        case float():
            return float(np.nextafter(leaf, np.inf))
        case str():
            return leaf + "x"
        case None:
            return 0
        case _:
            return None
