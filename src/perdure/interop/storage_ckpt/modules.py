"""The verbs for modules of PyTorch and Flax NNX: save and load, one module or several, with their Adam or without."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure.interop.storage_ckpt import parts as modules_of_file
from perdure.interop.storage_ckpt.loading import LoadReport, load
from perdure.interop.storage_ckpt.parts import Modules, Order, Part
from perdure.interop.storage_ckpt.reader import read
from perdure.interop.storage_ckpt.saving import Betas, adams_of, scalars_of, sections_of
from perdure.interop.storage_ckpt.slots import Names
from perdure.interop.storage_ckpt.writer import write_to


def save_params(
    module: Any,
    path: str | os.PathLike[str],
    *,
    optimizer: Any = None,
    save_moments: bool = True,
    prefix: str | None = None,
    scalars: Mapping[str, float] | None = None,
    walk: Names | None = None,
    fused: bool = False,
    widen: bool = False,
    betas: Betas = None,
) -> None:
    """Writes one module as a file of version 3, durably and atomically.

    Names are child indices and fields (`0.weight`), weights of linear layers stand as (in, out) whatever the framework,
    as noeira has them. With Adam's moments go its step and powers, as the scalars `opt.t`, `opt.b1_pow`, `opt.b2_pow`:
    network and optimizer go on bit for bit. Learning rates, schedules and other settings are not in the file.

    Args:
        module: a `torch.nn.Module` or a `flax.nnx.Module`.
        path: the file to make or to replace.
        optimizer: its `torch.optim.Adam` or `AdamW`, or its `nnx.Optimizer` of optax's `adam`, `adamw` or a chain.
        save_moments: False leaves the moments out.
        prefix: put before all names, `actor` for `actor.0.weight`.
        scalars: more numbers to keep, such as `total_train_steps`.
        walk: for modules of other layers: the names of the module's own tensors (`net.weight` of a `state_dict`, or
            `layers.0.kernel`) in the file's order; or a mapping from the file's names to them, in that order.
        fused: an activation right behind a linear layer takes no index: layers of noeira can apply their own.
        widen: write float16 and bfloat16 as float32, which is exact.
        betas: Adam's, where they cannot be read from optax's functions.

    Raises:
        UsageError: a layer, a dtype or an optimizer has no form in the format.
        StorageNameError: a name has none, or two scalars have the same.
        CommitError: the disk failed; an existing file is untouched.
    """
    own = modules_of_file.one(module, prefix=prefix, optimizer=optimizer, walk=walk, fused=fused)
    _save(own, path, "per-module", scalars, betas, save_moments=save_moments, widen=widen)


def save_params_multi(
    modules: Modules,
    path: str | os.PathLike[str],
    *,
    optimizers: Any = None,
    save_moments: bool = True,
    order: Order = "per-module",
    scalars: Mapping[str, float] | None = None,
    walks: Sequence[Names | None] | Mapping[str, Names] | None = None,
    fused: bool = False,
    widen: bool = False,
    betas: Betas = None,
) -> None:
    """Writes several modules as one file of version 3. See `save_params`.

    Adam's scalars begin with the module's prefix (`actor.opt.t`), or with its number where it has none (`0.opt.t`).

    Args:
        modules: in the order in which they are to stand: a sequence, without prefixes, so that names repeat; or a
            mapping from prefixes to modules.
        path: the file to make or to replace.
        optimizers: in the same form, None where a module has none; or one optimizer of PyTorch for all.
        save_moments: False leaves the moments out.
        order: `per-module`, or `params-then-state`: the parameters of all modules, then their states.
        scalars: more numbers to keep.
        walks: in the same form as `modules`.
        fused: see `save_params`.
        widen: see `save_params`.
        betas: see `save_params`.

    Raises:
        UsageError, StorageNameError, CommitError: see `save_params`.
    """
    own = modules_of_file.several(modules, optimizers=optimizers, walks=walks, fused=fused)
    _save(own, path, order, scalars, betas, save_moments=save_moments, widen=widen)


def load_params(
    module: Any,
    path: str | os.PathLike[str],
    *,
    optimizer: Any = None,
    prefix: str | None = None,
    walk: Names | None = None,
    fused: bool = False,
    widen: bool = False,
    adam_step: int | None = None,
) -> LoadReport:
    """Sets a module, and its Adam, to what a file of version 3 or 2 holds: all of it, or nothing.

    Every name, kind, size and place is compared first. Values go where the module's are, whatever device wrote them. An
    optimizer for which the file has no moments is reset, as is one for which it has no step, and the report says so.

    Args:
        module: built as the writer's; see `save_params`.
        path: the file.
        optimizer: see `save_params`; made with the writer's settings, which the file does not hold.
        prefix: of the file's names.
        walk: see `save_params`.
        fused: see `save_params`.
        widen: also load into float16 and bfloat16, where every value of the file has an exact form in them.
        adam_step: Adam's number of updates, for files with moments that do not say it.

    Returns:
        What was done, and what is left to do.

    Raises:
        NoCheckpointError: there is no such file.
        StorageFileError: it is not well formed.
        StorageMismatchError: it is of another model.
        UsageError: the module or the optimizer has no form in the format.
    """
    own = modules_of_file.one(module, prefix=prefix, optimizer=optimizer, walk=walk, fused=fused)
    return load(read(path).loaded(), own, adam_step=adam_step, widen=widen)


def load_params_multi(
    modules: Modules,
    path: str | os.PathLike[str],
    *,
    optimizers: Any = None,
    walks: Sequence[Names | None] | Mapping[str, Names] | None = None,
    fused: bool = False,
    widen: bool = False,
    adam_step: int | None = None,
) -> LoadReport:
    """Sets several modules to what one file holds, in either order of sections, or none of them. See `load_params`.

    Args:
        modules: see `save_params_multi`; in the order of the file.
        path: the file.
        optimizers: see `save_params_multi`.
        walks: see `save_params_multi`.
        fused: see `save_params`.
        widen: see `load_params`.
        adam_step: see `load_params`; one number for all.

    Returns:
        What was done, and what is left to do: target networks are in no file.

    Raises:
        NoCheckpointError, StorageFileError, StorageMismatchError, UsageError: see `load_params`.
    """
    own = modules_of_file.several(modules, optimizers=optimizers, walks=walks, fused=fused)
    return load(read(path).loaded(), own, adam_step=adam_step, widen=widen)


def _save(
    own: list[Part],
    path: str | os.PathLike[str],
    order: Order,
    scalars: Mapping[str, float] | None,
    betas: Betas,
    *,
    save_moments: bool,
    widen: bool,
) -> None:
    adams = adams_of(own, betas) if save_moments else {}
    sections = sections_of(own, order, adams, widen=widen)
    write_to(Path(path).expanduser(), sections, [*scalars_of(own, adams), *(scalars or {}).items()])
