"""The lineage in sentences: every kind of event, kills told where they were, routine told once."""

from collections.abc import Mapping
from typing import Any

import pytest

from perdure.runs.story import hours, story

RUN = "3797d935a1b2c3d4e5f60718293a4b5c"
KILLED = "the process before had ended without a word: killed, or the machine stopped"


def at(minute: int, event: str, **facts: Any) -> Mapping[str, Any]:
    return {"at": f"2026-11-30T05:{minute:02}:00.000+00:00", "event": event, "previous": None, **facts}


def started(minute: int = 0, *, notices: tuple[str, ...] = (), **facts: Any) -> Mapping[str, Any]:
    return at(minute, "started", run_id=RUN, notices=list(notices), **facts)


def committed(minute: int, env_steps: int) -> Mapping[str, Any]:
    return at(minute, "committed", checkpoint=f"step_{env_steps:010d}", digest="xxh3_128:0")


def removed(minute: int, *env_steps: int) -> Mapping[str, Any]:
    return at(minute, "removed", checkpoints=[f"step_{steps:010d}" for steps in env_steps])


def stopped(minute: int, why: str = "closed", trained_s: float = 61.0) -> Mapping[str, Any]:
    return at(minute, "stopped", why=why, trained_s=trained_s)


def finished(minute: int, env_steps: int, trained_s: float = 7300.0) -> Mapping[str, Any]:
    return at(minute, "finished", checkpoint=f"step_{env_steps:010d}", trained_s=trained_s)


def resumed(minute: int, env_steps: int, **changed: Any) -> Mapping[str, Any]:
    facts = {
        "checkpoint": f"step_{env_steps:010d}",
        "digest": "xxh3_128:0",
        "env_steps": env_steps,
        "trained_s": 61.0,
        "stepped_back": {},
        "accepted": [],
        "amended_leaves": [],
        "reason": None,
        "arithmetic": {},
        "total": 5000,
        "old_total": None,
        "launch": None,
        "notices": [],
    }
    assert changed.keys() <= facts.keys()
    return at(minute, "resumed", **facts | changed)


def told(*events: Mapping[str, Any]) -> list[str]:
    return [sentence.text for sentence in story(events)]


def test_a_life_with_every_kind_of_event():
    events = [
        started(0, notices=("removed .staging.00, an unfinished checkpoint that a stopped process left behind.",)),
        *(committed(minute, 1000 * minute) for minute in range(3)),
        removed(3, 0, 1000),
        at(3, "commit_failed", checkpoint="step_0000003000", problem="CommitError: disk full"),
        at(3, "after_commit_failed", checkpoint="step_0000003000", problem="OSError: no route"),
        stopped(4, "Stop: enough for today"),
        resumed(
            10,
            2000,
            stepped_back={"step_0000003000": "step_0000003000/weights: 8 bytes were written, found 7 bytes"},
            accepted=[
                {"text": "algorithm.learning_rate=0.1:0.2"},
                {"text": "optimizer/tx/step_size=-0.1:-0.2", "implied_by": "algorithm.learning_rate"},
            ],
            amended_leaves=["optimizer/opt_state/rate", "lr"],
            reason="it crept",
            arithmetic={"jax": ["0.8.0", "0.9.0"], "threads": ["2", "64"]},
            old_total=4000,
        ),
        committed(11, 3000),
        removed(11, 2000),
        at(12, "a later version's event"),
        finished(13, 5000),
    ]

    assert told(*events) == [
        "began as run 3797d935",
        "removed .staging.00, an unfinished checkpoint that a stopped process left behind.",
        "committed 3 checkpoints, from step 0 to 2,000, removed 2 older ones",
        "commit of step_0000003000 failed: CommitError: disk full",
        "after_commit of step_0000003000 failed: OSError: no route",
        "stopped after 1 min 1 s of training: Stop: enough for today",
        "stepped back over a damaged checkpoint: step_0000003000/weights: 8 bytes were written, found 7 bytes",
        "went on from step 2,000, after 1 min 1 s of training",
        "accepted algorithm.learning_rate=0.1:0.2",
        "accepted optimizer/tx/step_size=-0.1:-0.2 (follows from algorithm.learning_rate)",
        "because: it crept",
        "accepted values went into optimizer/opt_state/rate, lr",
        "the total of steps changed from 4,000 to 5,000",
        "arithmetic changed: jax: 0.8.0 then, 0.9.0 now",
        "arithmetic changed: threads: 2 then, 64 now",
        "committed the checkpoint at step 3,000, removed 1 older one",
        "a later version's event",
        "finished at step 5,000 after 2 h 1 min of training",
    ]


def test_no_events_no_story():
    assert told() == []


def test_each_sentence_bears_its_event_s_time_and_folded_ones_the_last():
    events = [started(0), committed(1, 0), committed(2, 1000), stopped(3), resumed(9, 1000, reason="x")]

    assert [sentence.at[14:16] for sentence in story(events)] == ["00", "02", "03", "09", "09"]


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([committed(1, 16)], "committed the checkpoint at step 16"),
        ([committed(1, 16), committed(2, 32)], "committed 2 checkpoints, from step 16 to 32"),
        ([committed(1, 1234567), removed(1, 1)], "committed the checkpoint at step 1,234,567, removed 1 older one"),
        (
            [committed(1, 16), removed(1, 0), committed(2, 32), removed(2, 8, 16)],
            "committed 2 checkpoints, from step 16 to 32, removed 3 older ones",
        ),
        ([removed(1, 0)], "removed 1 checkpoint"),
        ([removed(1, 0, 1)], "removed 2 checkpoints"),
    ],
)
def test_routine_is_told_in_one_sentence(events: list[Mapping[str, Any]], text: str):
    assert told(*events) == [text]


def test_anything_else_between_commits_parts_them():
    failed = at(2, "retention_failed", checkpoint="step_0000000016", problem="OSError: busy")

    assert told(committed(1, 16), failed, committed(3, 32)) == [
        "committed the checkpoint at step 16",
        "retention of step_0000000016 failed: OSError: busy",
        "committed the checkpoint at step 32",
    ]


@pytest.mark.parametrize(
    "before",
    [
        [started()],
        [started(), committed(1, 0)],
        [started(), committed(1, 0), removed(1, 0)],
        [started(), committed(1, 0), at(2, "commit_failed", checkpoint="step_0000000016", problem="full")],
        [started(), stopped(1), resumed(2, 0)],
        [started(), stopped(1), resumed(2, 0), committed(3, 16)],
        [started(), finished(1, 16), resumed(2, 16)],
    ],
    ids=["began", "committed", "removed", "a commit failed", "went on", "went on and committed", "finished before"],
)
def test_a_process_that_left_no_last_word_was_killed(before: list[Mapping[str, Any]]):
    last = told(*before, resumed(9, 0))[-2:]

    assert last == [KILLED, "went on from step 0, after 1 min 1 s of training"]
    assert told(*before, resumed(9, 0)).count(KILLED) == 1


@pytest.mark.parametrize(
    "before",
    [
        [],
        [started(), committed(1, 0), stopped(2)],
        [started(), committed(1, 0), stopped(2, "KeyboardInterrupt: ")],
        [started(), committed(1, 0), finished(2, 16)],
        [started(forked_from={"run_id": RUN, "checkpoint": "step_0000000016", "digest": "x"})],
        [started(forked_from={"run_id": RUN, "checkpoint": "step_0000000016", "digest": "x"}), committed(1, 16)],
    ],
    ids=["nothing", "stopped", "interrupted", "finished", "forked", "forked and committed"],
)
def test_a_process_that_said_how_it_ended_was_not(before: list[Mapping[str, Any]]):
    assert KILLED not in told(*before, resumed(9, 0))


def test_killed_twice_is_told_twice_and_where_it_was():
    texts = told(started(), committed(1, 0), resumed(2, 0), resumed(3, 0), stopped(4), resumed(5, 0))

    assert [number for number, text in enumerate(texts) if text == KILLED] == [2, 4]


def test_a_run_killed_before_its_first_commit_began_twice():
    notice = "the run was stopped before its first checkpoint was committed; it starts again from the beginning."

    assert told(started(0), started(1, notices=(notice,))) == [
        "began as run 3797d935",
        KILLED,
        "began as run 3797d935",
        notice,
    ]


def test_a_fork_says_whose():
    parent = {"run_id": RUN, "checkpoint": "step_0000040448", "digest": "xxh3_128:0"}

    assert told(started(forked_from=parent)) == ["forked from run 3797d935 at step 40,448"]


@pytest.mark.parametrize(
    ("why", "text"),
    [
        ("closed", "stopped after 1 min 1 s of training"),
        ("ValueError: bad", "stopped after 1 min 1 s of training: ValueError: bad"),
        ("KeyboardInterrupt: ", "stopped after 1 min 1 s of training: KeyboardInterrupt"),
    ],
)
def test_why_it_stopped(why: str, text: str):
    assert told(stopped(1, why)) == [text]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (9.44, "9.4 s"),
        (9.6, "10 s"),
        (59.4, "59 s"),
        (59.5, "1 min 0 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 0 min"),
        (100 * 3600 + 59.9, "100 h 1 min"),
    ],
)
def test_spans(seconds: float, text: str):
    assert hours(seconds) == text
