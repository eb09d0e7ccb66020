"""A run says how faithful its checkpoints must be; a component that allows less is refused when the run opens."""

from pathlib import Path
from typing import Any

import pytest

from perdure import CaptureError, Run, UsageError
from perdure.adapters.adapter import Adapter, ExactAdapter, Kind
from perdure.cli.main import main


class Engine:
    """Something opaque."""


class Replayed(ExactAdapter):
    id = "x-replayed"
    kind: Kind = "live"
    weakness = "exact-replay"

    def capture(self, obj: Any, walk: Any) -> Any:
        return 1

    def check(self, obj: Any, tree: Any, walk: Any) -> list[Any]:
        return []

    def restore(self, obj: Any, tree: Any, walk: Any) -> Any:
        return obj

    def fidelity(self, obj: Any) -> tuple[str, str]:
        return self.weakness, "its engine is opaque"


class StartedAfresh(Replayed):
    weakness = "statistical"


def test_replayed_components_do_by_default_and_not_where_a_snapshot_is_required(tmp_path: Path):
    with pytest.raises(
        CaptureError,
        match=r"requires='exact-snapshot', but envs allows exact-replay \(envs/1: its engine is opaque\)\. Change",
    ):
        Run(tmp_path / "x", adapters=[(Engine, Replayed())], requires="exact-snapshot").restore(envs=[1, Engine()])
    assert not (tmp_path / "x" / "run.json").exists()

    with Run(tmp_path / "x", adapters=[(Engine, Replayed())]) as run:
        run.restore(envs=[1, Engine()], rng=3)


def test_a_resume_is_refused_too_and_changes_nothing(tmp_path: Path):
    with Run(tmp_path / "x", adapters=[(Engine, Replayed())]) as run:
        run.restore(envs=Engine())

    with pytest.raises(CaptureError, match=r"envs allows exact-replay \(envs: its engine is opaque\)"):
        Run(tmp_path / "x", adapters=[(Engine, Replayed())], requires="exact-snapshot").restore(envs=Engine())


def test_weaker_classes_must_be_asked_for(tmp_path: Path):
    adapters: list[tuple[type, Adapter]] = [(Engine, StartedAfresh())]
    with pytest.raises(CaptureError, match="requires='exact-replay', but envs allows statistical"):
        Run(tmp_path / "x", adapters=adapters).restore(envs=Engine())

    with Run(tmp_path / "x", adapters=adapters, requires="statistical") as run:
        run.restore(envs=Engine())


def test_the_class_and_the_reason_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with Run(tmp_path / "x", adapters=[(Engine, Replayed())]) as run:
        run.restore(envs=Engine(), x=1)

    main(["show", str(tmp_path / "x" / "checkpoints" / "step_0000000000")])

    shown = capsys.readouterr().out
    assert "envs: envs: its engine is opaque" in shown
    assert "exact-replay" in shown


def test_an_unknown_class_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"requires.*exakt"):
        Run(tmp_path / "x", requires="exakt")
