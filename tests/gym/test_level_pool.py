"""A stream of levels goes on where it stood, and a level that is not the same refuses the resume."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from tests.gym.stepping import advanced, exact, steps  # noqa: E402

import perdure  # noqa: E402
from perdure.errors import ContractError, UsageError  # noqa: E402
from perdure.gym import LevelPool, make_vec  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork.. may lead to deadlocks:DeprecationWarning"),
]

MODES: tuple[Any, ...] = ("round-robin", "random")


def levels_in(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(7):
        (folder / f"level{number}.txt").write_text(f"{number} {number * 7 % 5}")
    return sorted(folder.glob("*.txt"))


class Walker(gymnasium.Env):
    """Each episode begins with another level, which decides how long it is."""

    def __init__(self, pool: LevelPool) -> None:
        self.observation_space = gymnasium.spaces.Box(-1e9, 1e9, (2,))
        self.action_space = gymnasium.spaces.Discrete(2)
        self.pool, self.at, self.length = pool, 0.0, 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.at, self.length = map(float, Path(self.pool.next()).read_text().split())
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.at += float(action) + float(self.np_random.random())
        self.length -= 1
        return self._seen(), self.at, self.length < -2, False, {"level": Path(self.pool.current or "").name}

    def _seen(self) -> Any:
        return np.array([self.at, self.length], np.float32)


def streams(pool: LevelPool, count: int) -> list[Any]:
    return [pool.next() for _ in range(count)]


def test_round_robin_goes_through_all_in_their_order():
    pool = LevelPool(["a", "b", "c"])

    assert streams(pool, 7) == ["a", "b", "c", "a", "b", "c", "a"]
    assert (pool.current, pool.drawn, len(pool)) == ("a", 7, 3)


def test_random_is_decided_by_the_seed_and_the_index():
    def drawn(seed: int, *index: int) -> list[Any]:
        pool = LevelPool([0, 1, 2, 3], mode="random", seed=seed)
        return streams(pool.for_env(*index) if index else pool, 40)

    assert drawn(1) == drawn(1)
    assert set(drawn(1)) == {0, 1, 2, 3}
    assert len({tuple(stream) for stream in (drawn(1), drawn(2), drawn(1, 0), drawn(1, 1), drawn(2, 1))}) == 5


def test_each_environment_has_a_stream_of_its_own():
    pool = LevelPool(["a", "b", "c"])
    pool.next()

    assert [streams(pool.for_env(index), 4) for index in (0, 1, 4)] == [
        ["a", "b", "c", "a"],
        ["b", "c", "a", "b"],
        ["b", "c", "a", "b"],
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [0, 1, 3, 10])
def test_a_restored_stream_goes_on_where_it_stood(tmp_path: Path, mode: Any, count: int):
    """CASES 9: the prefix is not shown again."""
    source, target = LevelPool(list(range(5)), mode=mode, seed=3), LevelPool(list(range(5)), mode=mode, seed=3)
    streams(source, count)
    streams(target, 2)
    perdure.save(tmp_path / "saved", pool=source)
    perdure.load(tmp_path / "saved", pool=target)

    assert (target.current, target.drawn) == (source.current, source.drawn)
    expected = streams(source, 30)
    assert streams(target, 30) == expected
    assert expected != streams(LevelPool(list(range(5)), mode=mode, seed=3), 30) or count in (0, 10)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sharing", ["shared", "each its own"])
def test_environments_go_on_with_the_levels_that_would_have_come(trip_of, tmp_path: Path, mode: Any, sharing: str):
    def make() -> Any:
        pool = LevelPool(levels_in(tmp_path / "levels"), mode=mode, seed=1)
        pools = [pool] * 3 if sharing == "shared" else [pool.for_env(index) for index in range(3)]
        return make_vec([lambda own=own: Walker(own) for own in pools])

    for count in range(12):
        source, target = advanced(make(), count), advanced(make(), 5, seed=99)
        trip_of(source, target)

        assert steps(target, 40, seed=3) == steps(source, 40, seed=3), f"after {count} steps"


@pytest.fixture
def trip_of(tmp_path: Path) -> Callable[[Any, Any], None]:
    number = iter(range(1000))

    def trip(source: Any, target: Any) -> None:
        path = tmp_path / f"saved{next(number)}"
        perdure.save(path, envs=source)
        perdure.load(path, envs=target)

    return trip


def test_twin_a_stream_that_begins_again_is_found(trip_of, tmp_path: Path):
    levels = levels_in(tmp_path / "levels")
    source, target = (make_vec([lambda: Walker(LevelPool(levels))] * 2) for _ in range(2))
    trip_of(advanced(source, 9), target)
    [[first, _], _] = [getattr(envs, "envs") for envs in (target, source)]  # noqa: B009
    first.unwrapped.pool.load_state_dict(LevelPool(levels).state_dict())

    assert steps(target, 40, seed=3) != steps(source, 40, seed=3)


@pytest.mark.full
def test_in_workers_each_has_its_own_and_a_checkpoint_fits_both_modes(trip_of, tmp_path: Path):
    def make(mode: Any) -> Any:
        pool = LevelPool(levels_in(tmp_path / "levels"), mode="random", seed=1)
        factories = [lambda index=index: Walker(pool.for_env(index)) for index in range(3)]
        return make_vec(factories, mode=mode, context="fork")

    source, target, other = make("async"), make("async"), make("sync")
    advanced(source, 9)
    trip_of(source, target)
    trip_of(source, other)

    expected = steps(source, 40, seed=3)
    assert steps(target, 40, seed=3) == expected
    assert steps(other, 40, seed=3) == expected
    for envs in (source, target):
        envs.close()


@pytest.mark.full
def test_a_pool_that_is_shared_here_cannot_be_shared_there(trip_of, tmp_path: Path):
    pool = LevelPool(levels_in(tmp_path / "levels"))
    source = make_vec([lambda: Walker(pool)] * 2)
    target = make_vec([lambda: Walker(pool)] * 2, mode="async", context="fork")
    with pytest.raises(
        ContractError, match=r"envs/envs/1/pool: the same object as envs/envs/0/pool in the run, an obj"
    ):
        trip_of(source, target)
    target.close()


def saved(tmp_path: Path, *, mode: Any = "round-robin") -> tuple[Path, list[Path]]:
    levels = levels_in(tmp_path / "levels")
    pool = LevelPool(levels, mode=mode, seed=1)
    streams(pool, 4)
    perdure.save(tmp_path / "saved", pool=pool)
    return tmp_path / "saved", levels


def test_one_changed_byte_refuses_the_resume_and_names_the_file(tmp_path: Path):
    path, levels = saved(tmp_path)
    levels[3].write_text("4 1")

    with pytest.raises(ContractError) as caught:
        perdure.load(path, pool=LevelPool(levels, seed=1))

    [finding] = caught.value.findings
    assert finding.key == "pool/levels/3"
    assert finding.saved.startswith("level3.txt xxh3_128:")
    assert finding.found.startswith("level3.txt xxh3_128:")
    assert finding.saved != finding.found


def test_a_folder_that_moved_is_the_same(tmp_path: Path):
    path, _ = saved(tmp_path)
    shutil.move(tmp_path / "levels", tmp_path / "elsewhere")
    pool = LevelPool(sorted((tmp_path / "elsewhere").glob("*.txt")), seed=1)
    perdure.load(path, pool=pool)

    assert pool.current == tmp_path / "elsewhere" / "level3.txt"
    assert Path(pool.next()).name == "level4.txt"


@pytest.mark.parametrize(
    ("change", "places"),
    [
        (lambda levels: LevelPool(levels[:-1], seed=1), ["pool/levels"]),
        (lambda levels: LevelPool([levels[1], levels[0], *levels[2:]], seed=1), ["pool/levels/0", "pool/levels/1"]),
        (lambda levels: LevelPool(levels, seed=2), ["pool/seeds"]),
        (lambda levels: LevelPool(levels, mode="random", seed=1), ["pool/mode"]),
        (lambda levels: LevelPool(levels, seed=1).for_env(0), ["pool/seeds"]),
    ],
    ids=["fewer", "order", "seed", "mode", "index"],
)
def test_another_pool_is_a_finding(tmp_path: Path, change: Callable[[list[Path]], LevelPool], places: list[str]):
    path, levels = saved(tmp_path)

    with pytest.raises(ContractError) as caught:
        perdure.load(path, pool=change(levels))

    assert [finding.key for finding in caught.value.findings] == places


def test_files_in_several_folders_are_told_by_their_paths_below_the_common_one(tmp_path: Path):
    levels = levels_in(tmp_path / "all" / "easy")[:1] + levels_in(tmp_path / "all" / "hard")[:1]

    assert [content.split()[0] for content in LevelPool(levels).contents] == ["easy/level0.txt", "hard/level0.txt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"levels": []}, r"levels=\[\]: a list of paths or ids"),
        ({"levels": "levels"}, r"levels='levels': a list of paths or ids"),
        ({"levels": [Path("missing.txt")]}, r"missing\.txt'\): No such file or directory"),
        ({"levels": ["levels/missing.txt"]}, r"missing\.txt'\): No such file or directory"),
        ({"levels": [1.5]}, r"1\.5 is neither a path nor an id"),
        ({"levels": [1], "mode": "shuffled"}, r"mode='shuffled': one of 'round-robin', 'random'"),
        ({"levels": [1], "seed": -1}, r"-1 is no seed and no index: a whole number from 0"),
    ],
    ids=["none", "a text", "missing", "missing text", "a float", "mode", "seed"],
)
def test_bad_arguments(arguments: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        LevelPool(**arguments)


def test_ids_may_be_numbers_and_texts():
    pool = LevelPool([3, "maze", 5])

    assert pool.contents == ("3", "'maze'", "5")
    assert exact(streams(pool, 3)) == exact([3, "maze", 5])
