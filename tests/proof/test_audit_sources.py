"""Where a variable is assigned is told by the source, and the remedy fits what it is."""

from pathlib import Path

import pytest

from perdure.memory.values import DATA, ITERATOR, LIVE
from perdure.proof.audit_sources import advice_for, where_assigned

SOURCE = """\
recent = []
def main(eps=1.0):
    eps, other = 1.0, 2
    for step in range(9):
        eps *= 0.9
        recent.append(step)
        agent.lr, table["x"] = 3, 4
        next(stream)
def elsewhere():
    eps = 5
"""


@pytest.mark.parametrize(
    ("place", "lines"),
    [
        ("frame main: eps", [3, 5]),
        ("frame main: other", [3]),
        ("frame main: step", [4]),
        ("frame main: stream", [8]),
        ("frame main: table", [7]),
        ("frame main: self.agent.lr", [7]),
        ("component agent.lr", [7]),
        ("module train: recent", [1, 6]),
        ("module train: missing", []),
    ],
)
def test_the_lines_that_assign_or_change_it(place: str, lines: list[int], tmp_path: Path):
    path = tmp_path / "train.py"
    path.write_text(SOURCE, encoding="utf-8")
    files = {"frame main": str(path), "module train": str(path)}

    assert where_assigned(place, files) == tuple(f"train.py:{line}" for line in lines)


@pytest.mark.parametrize(
    ("place", "kind", "is_value", "advice"),
    [
        ("frame main: eps", DATA, True, "restore(..., eps=eps), boundary(..., eps=eps)"),
        ("frame main: self.count", DATA, True, "restore(..., count=self.count), boundary(..., count=self.count)"),
        ("module train: RNG", LIVE, True, "Hand it in: restore(..., rng=RNG)."),
        ("frame main: target", LIVE, False, "restore(..., target=target); a class of your own needs state_dict()"),
        ("frame main: stream", ITERATOR, True, "count what stream has given"),
        ("component agent.lr", DATA, True, "Put 'lr' into the class's state_dict() and load_state_dict()"),
    ],
)
def test_the_remedy(place: str, kind: str, is_value: bool, advice: str):
    assert advice in advice_for(place, kind=kind, is_value=is_value)
