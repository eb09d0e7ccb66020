"""The scripts of `examples/`, run in this process: as they are, stopped somewhere, or made to forget a part."""

import copy
import importlib.util
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from tests.docs.blocks import ROOT

import perdure

MARK = "# perdure"

SMALL: dict[str, dict[str, int]] = {
    "dqn": {"capacity": 256, "learning_starts": 60, "target_every": 90, "batch_size": 16},
    "sac": {"capacity": 256, "learning_starts": 60, "batch_size": 16},
    "ppo": {"n_steps": 32, "n_envs": 3},
}
"""So that within a thousand steps the ring is full and begins anew, and the target network is copied."""


def path_of(name: str) -> Path:
    """The script's file."""
    return ROOT / "examples" / f"torch_{name}.py"


def load(name: str) -> ModuleType:
    """The script as a module, of which nothing is shared with those loaded before."""
    spec = importlib.util.spec_from_file_location(f"perdure_examples_torch_{name}", path_of(name))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def without_perdure(name: str) -> str:
    """The script without the lines that are marked."""
    lines = path_of(name).read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.rstrip().endswith(MARK))


class KeepsAll(perdure.Run):
    """A run whose checkpoints all stay, as comparisons need them."""

    def __init__(self, directory: Any, **options: Any) -> None:
        super().__init__(directory, **{**options, "keep": None})


class Stopped(Exception):
    """Enough steps were trained."""


def forgetful(component: str, directory: Path, *, until: int) -> type[perdure.Run]:
    """A run whose `restore` leaves one component as a fresh start has it.

    Args:
        component: its name; `replay.tree` for one attribute of it, `replay.ring.actions` for a column of a ring;
            `process_rng` for PyTorch's global generator.
        directory: where fresh states may be kept.
        until: the env-steps after which it raises `Stopped`.
    """
    name, _, part = component.partition(".")

    class Forgets(KeepsAll):
        def restore(self, **components: Any) -> Any:
            put_back = _photograph(components.get(name), part, directory / f"fresh-{component}")
            restored = super().restore(**components)
            if self.resumed and name == "process_rng":
                torch.manual_seed(1)
            elif self.resumed and name in components:
                setattr(restored, name, put_back(getattr(restored, name)))
            return restored

        def boundary(self, **given: Any) -> None:
            super().boundary(**given)
            if self.env_steps >= until:
                raise Stopped

    return Forgets


def _photograph(obj: Any, part: str, path: Path) -> Any:
    """What puts a component back to how it is now, in place where it is live."""
    if hasattr(type(obj), "state_dict"):
        state = copy.deepcopy(obj.state_dict())
        part, _, column = part.partition(".")

        def load_state(restored: Any) -> Any:
            mixed = {**copy.deepcopy(restored.state_dict()), part: state[part]} if part else state
            if column:
                columns = {**restored.state_dict()[part].columns, column: state[part].columns[column]}
                mixed[part] = perdure.Ring.over(columns, restored.added)
            restored.load_state_dict(mixed)
            return restored

        return load_state
    if obj is not None:
        perdure.save(path, it=obj)
    return lambda restored: perdure.load(path, it=restored)["it"]


def without(component: str) -> type[perdure.Run]:
    """A run that was never told of one component."""

    class Without(KeepsAll):
        def restore(self, **components: Any) -> Any:
            mine = components.pop(component)
            restored = super().restore(**components)
            setattr(restored, component, mine)
            return restored

    return Without


def train(
    name: str,
    directory: Path,
    *,
    total_steps: int,
    checkpoint_every: int = 96,
    run: type[perdure.Run] = KeepsAll,
    small: bool = True,
) -> Any:
    """Runs the script to its end; what its `main` returns.

    Args:
        name: `ppo`, `dqn` or `sac`.
        directory: of the run.
        total_steps: of the whole run.
        checkpoint_every: steps between checkpoints.
        run: what stands for `perdure.Run`.
        small: whether networks see smaller batches and rings than the script's own.
    """
    script: Any = load(name)
    parse, changes = script.parse, SMALL[name] if small else {}
    script.parse = lambda argv: Namespace(**{**vars(parse(argv)), **changes})
    opened: list[perdure.Run] = []

    def open_run(*given: Any, **options: Any) -> perdure.Run:
        opened.append(run(*given, **options))
        return opened[-1]

    script.perdure = SimpleNamespace(Run=open_run, Every=perdure.Every, Ring=perdure.Ring)
    words = {"--run": directory, "--total-steps": total_steps, "--checkpoint-every": checkpoint_every}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", lambda *_: None)
        try:
            return script.main([str(word) for pair in words.items() for word in pair])
        finally:
            for each in opened:
                each.close()
