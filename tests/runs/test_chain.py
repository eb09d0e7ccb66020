"""The digest chain: a resumed run ends up with the very file of the run that was never stopped."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.toy_training import Training, states

from perdure import DamagedError, Every, Preempted, Run, UsageError
from perdure.runs.chain import ChainDifference, compare_chains, read_chain, read_whole_links

pytestmark = pytest.mark.usefixtures("global_generators")

SELDOM = Every(minutes=1000)


def chained(directory: Path, **options: Any) -> Training:
    return Training(directory, **{"chain": 1, "every": SELDOM, **options})


@pytest.fixture
def straight(tmp_path: Path) -> Path:
    """A chain of eight updates that were never interrupted."""
    chained(tmp_path / "straight").restore().go(8).run.finish()
    return tmp_path / "straight" / "chain.jsonl"


def test_each_boundary_has_a_link_with_the_digest_that_its_checkpoint_has(tmp_path: Path):
    Training(tmp_path / "x", chain=1).restore().go(8).run.finish()

    links = read_chain(tmp_path / "x" / "chain.jsonl")
    assert [link.state for link in links] == list(states(tmp_path / "x").values())
    assert [(link.boundary, link.env_steps, link.updates) for link in links] == [(at, 10 * at, at) for at in range(9)]
    assert links[0].components.keys() == {"learner", "observation", "process_rng", "rng"}


def test_a_chain_without_checkpoints_is_the_same(tmp_path: Path, straight: Path):
    Training(tmp_path / "x", chain=1).restore().go(8).run.finish()

    assert (tmp_path / "x" / "chain.jsonl").read_bytes() == straight.read_bytes()


@pytest.mark.parametrize("at", range(1, 8))
def test_a_run_that_was_killed_continues_it(tmp_path: Path, straight: Path, at: int):
    """After its last checkpoint it went on for a while, with links that are cut off and made again."""
    training = chained(tmp_path / "x", every=Every(updates=3)).restore().go(at)
    training.run._opened("test").committer.wait()
    training.run._free()  # without a word, as when killed
    chained(tmp_path / "x").restore().go(8 - 3 * (at // 3)).run.finish()

    assert (tmp_path / "x" / "chain.jsonl").read_bytes() == straight.read_bytes()


def test_a_component_that_comes_back_otherwise_is_named_with_the_first_boundary(tmp_path: Path, straight: Path):
    chained(tmp_path / "x", every=Every(updates=1)).restore().go(3).stop()
    resumed = chained(tmp_path / "x").restore()
    resumed.learner.momentum = np.zeros(2)
    resumed.go(5).run.finish()

    found = compare_chains(read_chain(straight), read_chain(tmp_path / "x" / "chain.jsonl"))
    assert not found.identical
    assert found.difference == ChainDifference(4, ("learner",), counters=False, metrics=True, later=4)


def test_every_so_manieth_boundary(tmp_path: Path, straight: Path):
    chained(tmp_path / "x", chain=3).restore().go(8).run.finish()

    links = read_chain(tmp_path / "x" / "chain.jsonl")
    assert [link.boundary for link in links] == [0, 3, 6]
    found = compare_chains(links, read_chain(straight))
    assert (found.compared, found.only_first, found.only_second) == (3, (), (1, 2, 4, 5))
    assert found.difference is None
    assert not found.identical  # nobody knows of the others


def test_a_shorter_run_is_compared_as_far_as_it_went(tmp_path: Path, straight: Path):
    chained(tmp_path / "x").restore().go(3).stop()

    found = compare_chains(read_chain(tmp_path / "x" / "chain.jsonl"), read_chain(straight))
    assert (found.compared, found.only_first, found.only_second, found.identical) == (4, (), (), True)
    assert not compare_chains([], read_chain(straight)).identical


def test_a_chain_that_begins_later_than_its_run(tmp_path: Path, straight: Path):
    Training(tmp_path / "x").restore().go(3).stop()
    chained(tmp_path / "x").restore().go(5).run.finish()

    links = read_chain(tmp_path / "x" / "chain.jsonl")
    assert [link.boundary for link in links] == [3, 4, 5, 6, 7, 8]
    assert compare_chains(links, read_chain(straight)).difference is None


def test_an_edited_line_is_found_and_a_resume_makes_the_rest_anew(tmp_path: Path, straight: Path):
    chained(tmp_path / "x", every=Every(updates=1)).restore().go(5).stop()
    path = tmp_path / "x" / "chain.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[2].replace(b'"env_steps":20', b'"env_steps":21'), *lines[3:]]))

    with pytest.raises(DamagedError, match=r"^chain\.jsonl:4: does not follow from the line before it$"):
        read_chain(path)
    assert len(read_whole_links(path)) == 3
    chained(tmp_path / "x").restore().go(3).run.finish()
    assert [link.boundary for link in read_chain(path)] == [0, 1, 2, 5, 6, 7, 8]


def test_a_torn_last_line_is_left_out(straight: Path):
    straight.write_bytes(straight.read_bytes()[:-5])

    assert len(read_chain(straight)) == 8


@pytest.mark.parametrize("line", [b"[]\n", b"{}\n", b"{ }\n", b"no json\n"])
def test_what_is_no_link_is_damage(tmp_path: Path, line: bytes):
    (tmp_path / "chain.jsonl").write_bytes(line)

    with pytest.raises(DamagedError, match=r"^chain\.jsonl:1: not"):
        read_chain(tmp_path / "chain.jsonl")


def test_a_run_has_no_chain_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    Training(tmp_path / "x").restore().go(1).stop()
    assert not (tmp_path / "x" / "chain.jsonl").exists()

    monkeypatch.setenv("PERDURE_CHAIN", "2")
    Training(tmp_path / "y").restore().go(2).stop()
    assert [link.boundary for link in read_chain(tmp_path / "y" / "chain.jsonl")] == [0, 2]


def test_proofs_stop_a_run_at_a_boundary_and_keep_it_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERDURE_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setenv("PERDURE_STOP_AT_BOUNDARY", "3")
    with pytest.raises(Preempted, match=r"stopped by PERDURE_STOP_AT_BOUNDARY=3, step_0000000030 is durable"):
        chained(tmp_path / "runs" / "x").restore().go(8)

    assert not (tmp_path / "runs").exists()
    [kept] = (tmp_path / "scratch").iterdir()
    assert kept.name.startswith("x-")
    with pytest.raises(Preempted):  # it is there already
        chained(tmp_path / "runs" / "x").restore()
    with pytest.raises(Preempted):
        chained(tmp_path / "other" / "x").restore().go(8)
    assert len(list((tmp_path / "scratch").iterdir())) == 2


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "often"])
def test_what_is_no_interval_is_refused(tmp_path: Path, value: Any):
    with pytest.raises(UsageError, match=rf"^chain={value!r}: a whole number from 1\.$"):
        Run(tmp_path / "x", chain=value)


@pytest.mark.parametrize("spacing", [1, 2])
def test_a_resume_that_says_nothing_of_a_chain_continues_the_one_that_is_there(tmp_path: Path, spacing: int):
    chained(tmp_path / "straight", chain=spacing).restore().go(8).run.finish()
    chained(tmp_path / "x", chain=spacing, every=Every(updates=3)).restore().go(5)
    Training(tmp_path / "x", every=SELDOM).restore().go(5).run.finish()

    assert (tmp_path / "x" / "chain.jsonl").read_bytes() == (tmp_path / "straight" / "chain.jsonl").read_bytes()


def test_a_run_without_a_chain_gets_none_by_a_resume(tmp_path: Path):
    Training(tmp_path / "x", every=Every(updates=3)).restore().go(5)
    Training(tmp_path / "x", every=SELDOM).restore().go(5).run.finish()

    assert not (tmp_path / "x" / "chain.jsonl").exists()
