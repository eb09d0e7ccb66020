"""Every family of environments goes on exactly from twenty points of capture, in twins with another past.

`PERDURE_WRITE_DOCS=1 python -m pytest tests/gym/test_families.py -k document` measures the table of
docs/environments.md anew.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

gymnasium = pytest.importorskip("gymnasium")

from tests.gym.families import FAMILIES, Family  # noqa: E402

import perdure  # noqa: E402
from perdure.adapters.resolve import Resolver  # noqa: E402
from perdure.adapters.walk import Walk  # noqa: E402
from perdure.gym import probe  # noqa: E402

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "environments.md"
HEAD = "| environment | class | checkpoint, bytes | capture, µs |\n|---|---|---:|---:|\n"
ROW = re.compile(r"^\| (?P<name>[^|]+) \| (?P<fidelity>[a-z-]+) \| (?P<size>[\d,]+) \| (?P<time>[\d,]+) \|$", re.M)

NEEDS = {
    "ALE/": ("ale_py", "cv2"),
    "MiniGrid": ("minigrid",),
    "LunarLander": ("Box2D",),
    "BipedalWalker": ("Box2D",),
    "CarRacing": ("Box2D", "pygame"),
    "-v5": ("mujoco", "imageio"),
}


def need(name: str) -> None:
    """Skips the test where an engine is not installed."""
    for start, modules in NEEDS.items():
        if name.startswith(start) or (start == "-v5" and name.endswith(start) and "ALE" not in name):
            for module in modules:
                pytest.importorskip(module)


PARAMETERS = [
    pytest.param(family, id=family.name, marks=[] if family.weight == "fast" else getattr(pytest.mark, family.weight))
    for family in FAMILIES
]


def used(family: Family) -> Any:
    env = family.make()
    env.reset(seed=1)
    space = family.make().action_space
    space.seed(1)
    for _ in range(60 if family.steps > 50 else 20):
        _, _, terminated, truncated, _ = env.step(space.sample())
        if terminated or truncated:
            env.reset()
    return env


def fidelity_of(env: Any) -> str:
    walk = Walk(Resolver())
    walk.capture(env, "env")
    return walk.weakest.get("env", ("exact-snapshot", ""))[0]


def size_of(env: Any, folder: Path) -> int:
    perdure.save(folder / "saved", env=env)
    return sum(file.stat().st_size for file in (folder / "saved").iterdir())


def microseconds_of(env: Any) -> int:
    def once() -> float:
        start = time.perf_counter()
        Walk(Resolver()).capture(env, "env")
        return time.perf_counter() - start

    return round(statistics.median(once() for _ in range(21)) * 1e6)


@pytest.mark.parametrize("family", PARAMETERS)
@pytest.mark.filterwarnings("ignore:.*:UserWarning:gymnasium")
def test_twenty_points_of_capture(family: Family, tmp_path: Path):
    need(family.name)

    found = probe(family.make, points=family.points, steps=family.steps)

    assert (found.verdict, found.reason) == ("exact", "")
    assert found.points >= 20
    row = documented()[family.name]
    env = used(family)
    assert fidelity_of(env) == row["fidelity"]
    assert size_of(env, tmp_path) <= 1.2 * int(row["size"].replace(",", ""))


def documented() -> dict[str, dict[str, str]]:
    return {match["name"]: match.groupdict() for match in ROW.finditer(DOCUMENT.read_text(encoding="utf-8"))}


def test_the_document_lists_every_family(tmp_path: Path):
    if os.environ.get("PERDURE_WRITE_DOCS"):
        text = DOCUMENT.read_text(encoding="utf-8")
        rows = "".join(row_of(family, tmp_path) for family in FAMILIES)
        head, tail = text.split("<!-- table -->\n")[0], text.split("<!-- end -->")[1]
        DOCUMENT.write_text(f"{head}<!-- table -->\n{HEAD}{rows}<!-- end -->{tail}", encoding="utf-8")

    assert list(documented()) == [family.name for family in FAMILIES]
    assert {row["fidelity"] for row in documented().values()} == {"exact-snapshot", "exact-replay"}


def row_of(family: Family, folder: Path) -> str:
    env = used(family)
    place = folder / re.sub(r"\W", "_", family.name)
    place.mkdir()
    return f"| {family.name} | {fidelity_of(env)} | {size_of(env, place):,} | {microseconds_of(env):,} |\n"
