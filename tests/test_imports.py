"""`import perdure` is light, and its face is exactly `__all__`: importable, sorted and documented."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys

import pytest

import perdure

HEAVY = {
    "brax",
    "flax",
    "gymnasium",
    "gymnax",
    "jax",
    "jaxlib",
    "ml_dtypes",
    "mujoco",
    "mujoco_playground",
    "optax",
    "pandas",
    "rich",
    "tensorboard",
    "torch",
    "tyro",
    "wandb",
}


def modules_loaded_by(statement: str) -> set[str]:
    """Top-level names in `sys.modules` after a fresh interpreter has run `statement`."""
    program = f"{statement}\nimport json, sys\nprint(json.dumps([name.split('.')[0] for name in sys.modules]))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout))


def test_import_perdure_loads_no_framework_and_nothing_heavy():
    assert modules_loaded_by("import perdure") & HEAVY == set()


def test_the_probe_sees_what_is_loaded():
    assert "ml_dtypes" in modules_loaded_by("import ml_dtypes")


def test_all_lists_every_public_name_once_and_sorted():
    language = {"annotations", "TYPE_CHECKING"}
    public = {
        name
        for name, value in vars(perdure).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name not in language
    }

    assert list(perdure.__all__) == sorted(set(perdure.__all__))
    assert public <= set(perdure.__all__)


@pytest.mark.parametrize("name", perdure.__all__)
def test_every_exported_name_is_importable_and_documented(name: str):
    value = getattr(perdure, name)

    if inspect.isclass(value) or inspect.isroutine(value):
        text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
        assert text, f"perdure.{name} has no docstring"
        # A dataclass without a docstring gets its signature for one.
        assert not text.startswith(f"{name}("), f"perdure.{name} has no docstring of its own"
