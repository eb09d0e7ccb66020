"""Small trainings for tests that go on in another process: `training.py FRAMEWORK STEPS [--load FILE] [--save FILE]`.

Prints the digest of every weight, statistic and moment after the steps. The data of step k depend on k alone, so that
a training that was loaded at step k goes on as one never stopped. `--drop moments` or `--drop scalars` loses a part of
the file on the way.
"""

import argparse
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from perdure.interop.storage_ckpt import Section, load_params, read, save_params, write

Saves = Callable[[Path], None]


def batch(step: int) -> np.ndarray:
    return np.random.default_rng(step).normal(size=(16, 4)).astype(np.float32)


def digest_of(arrays: list[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.asarray(array).tobytes())
    return digest.hexdigest()


def torch_training(first: int, last: int, load: Path | None) -> tuple[str, Saves]:
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(first)
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.03, betas=(0.8, 0.99))
    if load is not None:
        load_params(module, load, optimizer=optimizer)
    for step in range(first, last):
        optimizer.zero_grad()
        (module(torch.from_numpy(batch(step))) - 1).square().mean().backward()
        optimizer.step()
    moments = [each for entry in optimizer.state.values() for each in entry.values()]
    digest = digest_of([each.detach().numpy() for each in (*module.state_dict().values(), *moments)])
    return digest, lambda path: save_params(module, path, optimizer=optimizer)


def nnx_training(first: int, last: int, load: Path | None) -> tuple[str, Saves]:
    import jax
    import optax
    from flax import nnx

    rngs = nnx.Rngs(first)
    module = nnx.Sequential(
        nnx.Linear(4, 6, rngs=rngs), nnx.BatchNorm(6, rngs=rngs), nnx.tanh, nnx.Linear(6, 3, rngs=rngs)
    )
    schedule = optax.linear_schedule(0.03, 0.0, 40)
    chain = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, b1=0.8, b2=0.99))
    optimizer = nnx.Optimizer(module, chain, wrt=nnx.Param)
    if load is not None:
        load_params(module, load, optimizer=optimizer)

    @nnx.jit
    def update(module: Any, optimizer: Any, data: Any) -> None:
        optimizer.update(module, nnx.grad(lambda module: ((module(data) - 1) ** 2).mean())(module))

    for step in range(first, last):
        update(module, optimizer, batch(step))
    digest = digest_of(jax.tree.leaves((nnx.state(module), nnx.state(optimizer))))
    return digest, lambda path: save_params(module, path, optimizer=optimizer)


def dropped(path: Path, part: str) -> Path:
    """The same file without its moments, or without its scalars."""
    checkpoint, target = read(path), path.with_suffix(".dropped")
    sections = checkpoint.sections
    if part == "moments":
        sections = tuple(Section(each.kind, each.name, each.value) for each in sections)
    write(target, sections, {} if part == "scalars" else checkpoint.scalars)
    return target


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("framework", choices=("torch", "nnx"))
    parser.add_argument("steps", type=int, nargs=2)
    parser.add_argument("--load", type=Path)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--drop", choices=("moments", "scalars"))
    options = parser.parse_args()
    load = dropped(options.load, options.drop) if options.drop else options.load
    training = torch_training if options.framework == "torch" else nnx_training
    first, last = options.steps
    digest, save = training(first, last, load)
    if options.save:
        save(options.save)
    print(digest)


if __name__ == "__main__":
    main()
