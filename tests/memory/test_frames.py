"""The loop that a boundary is called in, and the lines at which a turn of it begins."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from perdure.memory.frames import Loop, callers, loop_around

HEADS = {
    "a statement of several lines": ("x = (\n    1\n    + 2\n)\nboundary()", (2, 5)),
    "a text and a declaration": ('"""One turn."""\nx: int\ny = 1\nboundary()', (4, 4)),
    "a with of several lines": ("with suppress(\n    OSError,\n):\n    x = 1\n    boundary()", (2, 4)),
    "a try": ("try:\n    boundary()\nfinally:\n    pass", (2, 2)),
    "boundary first": ("x = max(boundary(\n    1),\n    2)", (2, 2)),
    "a match": ("match (\n    1\n):\n    case _:\n        boundary()", (2, 4)),
    "one line": ("boundary()", (2, 2)),
}


@pytest.mark.parametrize("what", HEADS)
def test_where_a_turn_begins(what: str, tmp_path: Path):
    body, lines = HEADS[what]
    text = "for _ in range(1):\n" + "\n".join(f"    {line}" for line in body.splitlines())
    (tmp_path / "script.py").write_text(text)
    found: list[Loop | None] = []

    def boundary(value: int = 1) -> int:
        found.append(loop_around(sys._getframe(1)))
        return value

    exec(
        compile(text, str(tmp_path / "script.py"), "exec"),
        {"boundary": boundary, "suppress": __import__("contextlib").suppress},
    )

    [loop] = found
    assert loop is not None
    assert (loop.line, loop.last_line) == lines
    assert [loop.is_at(line) for line in (lines[0] - 1, *lines, lines[1] + 1)] == [False, True, True, False]


class Callbacks:
    """Called at the end of each turn, one after the other."""

    def __init__(self, call: Callable[[FrameType], None]) -> None:
        self.call = call

    def notify(self) -> None:
        for _ in range(2):
            self.call(sys._getframe())


def test_a_loop_that_is_another_one_at_each_boundary_does_not_count():
    before: list[list[FrameType]] = []
    found: list[Loop | None] = []

    def call(frame: FrameType) -> None:
        found.append(loop_around(frame, before[-1]) if before else loop_around(frame))
        before.append(list(callers(frame)))

    for _ in range(2):
        Callbacks(call).notify()

    functions = [loop.function for loop in found if loop is not None]
    assert functions[0] == "notify", "nothing is known of frames yet"
    assert functions[1] == "notify", "the same frame as before"
    assert functions[2] == "test_a_loop_that_is_another_one_at_each_boundary_does_not_count"
