"""The settings in docs/learning.md are those that the figures are made with."""

from typing import Any

import jax
import pytest
from benchmarks.curves.tasks import TASKS
from flax import nnx
from tests.docs.blocks import ROOT, execute

pytestmark = pytest.mark.jax

DOCUMENT = "docs/learning.md"


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return execute(DOCUMENT, str).namespace


def taken_apart(networks: nnx.Module) -> tuple[str, list[list[float]]]:
    """Structure with all settings, and numbers."""
    graph, state = nnx.split(networks, nnx.Param, ...)[:2]
    return str(graph), [leaf.ravel().tolist() for leaf in jax.tree.leaves(state)]


def test_the_figures_are_there_and_shown():
    text = (ROOT / DOCUMENT).read_text()

    for name in TASKS:
        assert f"(figures/learning-{name}.svg)" in text
        assert (ROOT / "docs" / "figures" / f"learning-{name}.svg").exists()


@pytest.mark.parametrize(
    ("name", "env", "eval_env", "networks"),
    [
        ("cartpole", "cartpole", "cartpole", {"MLP": "cartpole_networks"}),
        ("pendulum", "pendulum_scaled", "pendulum", {"MLP": "pendulum_networks"}),
        ("recall-cue", "recall_cue", "recall_cue", {"LSTM": "with_memory", "MLP": "without_memory"}),
    ],
)
def test_the_document_repeats_the_task(
    told: dict[str, Any], name: str, env: str, eval_env: str, networks: dict[str, str]
):
    task = TASKS[name]()

    assert told[f"{name.replace('-', '_')}_config"] == task.config
    assert (told[env], told[eval_env]) == (task.env, task.eval_env)
    assert networks.keys() == task.networks.keys()
    for called, function in networks.items():
        assert taken_apart(told[function](3)) == taken_apart(task.networks[called](3))
