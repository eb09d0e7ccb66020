"""A training whose contract has every section, for the matrix of differences: built anew, changed in one place."""

import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import perdure
from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, capture
from perdure.format.digests import digest_of
from perdure.format.state_digest import component_digests

VARIABLE = "PERDURE_TEST_JAVA_OPTIONS"
GONE = object()


class Statistics(nnx.Variable):
    """Another kind of variable than a parameter."""


class Net(nnx.Module):
    """A linear layer, a dropout, a plain number and a function."""

    def __init__(self, width: int, depth: int, dtype: Any, rate: float, activation: Callable[..., Any]) -> None:
        rngs = nnx.Rngs(0)
        layers = [nnx.Linear(2 if at == 0 else width, width, rngs=rngs, param_dtype=dtype) for at in range(depth)]
        self.layers = nnx.List(layers)
        self.dropout = nnx.Dropout(rate, rngs=rngs)
        self.scale: nnx.Variable[Any] = nnx.Param(jnp.ones(1))
        self.activation = activation


class OtherNet(Net):
    """The same parts under another name."""


@dataclass
class Setup:
    """What a script says and builds; cases change one thing."""

    folder: Path
    config: dict[str, Any]
    contract: dict[str, Any]
    dressed: Callable[[dict[str, Any]], Any] = dict
    """Makes the configuration that the script has of `config`: a dataclass, a namespace."""
    width: int = 3
    depth: int = 1
    dtype: Any = jnp.float32
    rate: float = 0.1
    activation: Callable[..., Any] = nnx.relu
    kind: type[Net] = Net
    scale: type[nnx.Variable] = nnx.Param
    parts: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that the network has on top; `GONE`: one that it lacks."""
    tx: Callable[[], optax.GradientTransformation] = lambda: optax.adam(3e-4)
    components: dict[str, Any] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def targets(self) -> dict[str, Any]:
        """The components of a fresh start."""
        net = self.kind(self.width, self.depth, self.dtype, self.rate, self.activation)
        if self.scale is not nnx.Param:
            net.scale = self.scale(jnp.ones(1))
        for name, part in self.parts.items():
            delattr(net, name) if part is GONE else setattr(net, name, part)
        made = {
            "net": net,
            "optimizer": nnx.Optimizer(net, self.tx(), wrt=nnx.Param),
            "env_states": np.zeros((self.config["ppo"]["n_envs"], 3)),
            "table": {"a": 1, "b": [1, 2]},
            **self.components,
        }
        return {self.rename.get(name, name): part for name, part in made.items() if part is not None}

    def run(self, directory: Path, **options: Any) -> perdure.Run:
        """The run, not opened yet."""
        given = {"horizon": "total", "free": ["track", "wandb_*"], "every": perdure.Every(updates=1)}
        return perdure.Run(
            directory, config=self.dressed(self.config), contract=self.contract, **{**given, **self.options, **options}
        )


def base(folder: Path) -> Setup:
    """The training as it began; files that it declares stand in `folder`."""
    return Setup(
        folder,
        config={
            "ppo": {"learning_rate": 3e-4, "n_envs": 4, "clip": 1, "gae": True, "name": "a b", "entropy": None},
            "seed": 1,
            "total": 100,
            "track": False,
        },
        contract={
            "interface": {"obs_shape": [4]},
            "env": {
                "id": "Maze-v1",
                "gymnasium": "1.2.0",
                "wrappers": ["TimeLimit", "RecordEpisodeStatistics"],
                "levels": perdure.File(folder / "levels.json"),
                "pool": perdure.File(folder / "pool"),
                "java_options": perdure.EnvironmentVariable(VARIABLE),
            },
            "reward": {"weight": 0.5},
            "my_rules": {"opponents": "frozen"},
        },
    )


def make_files(folder: Path) -> None:
    """What the training declares."""
    (folder / "pool" / "deep").mkdir(parents=True)
    (folder / "levels.json").write_text('{"levels": [1, 2]}')
    (folder / "pool" / "a.txt").write_text("a")
    (folder / "pool" / "deep" / "b.txt").write_text("b")
    os.environ[VARIABLE] = "-Xmx1g"


def train(run: perdure.Run, targets: Mapping[str, Any], steps: int = 20) -> None:
    """Opens the run, takes one boundary, stops."""
    values = vars(run.restore(**targets))
    given = {name: value for name, value in values.items() if name in ("env_states", "table", "extra")}
    run.boundary(env_steps=run.env_steps + steps, **given)
    run.close()


def disturb(targets: Mapping[str, Any]) -> None:
    """Moves what is live away from the checkpoint's state: a restore that came too early would bring it back."""
    if "net" in targets:
        kernel = targets["net"].layers[0].kernel
        kernel[...] = kernel[...] + jnp.ones_like(kernel[...])
    random.seed(random.random())
    np.random.seed(np.random.randint(1000))


def digests_of_files(directory: Path) -> dict[str, str]:
    """Every file's digest, and the folders. `.writer.lock` names whoever holds it: opening the run rewrites it."""
    return {
        str(path.relative_to(directory)): digest_of(path.read_bytes()) if path.is_file() else "folder"
        for path in sorted(directory.rglob("*"))
        if path.name != ".writer.lock"
    }


def digests_of_process(targets: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that a resume could touch in this process."""
    state = component_digests(capture(targets, Resolver(), Counters()).snapshot)
    return {**state, "python": random.getstate(), "numpy": repr(np.random.get_state()), "environment": dict(os.environ)}
