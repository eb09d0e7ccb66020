"""The modules of one file, each with its prefix, its tensors and its optimizer, and the orders they may stand in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from perdure.errors import UsageError
from perdure.interop.storage_ckpt.slots import Names, Side, Slot
from perdure.interop.storage_ckpt.walk import side_of

Order = Literal["per-module", "params-then-state"]
ORDERS: tuple[Order, ...] = ("per-module", "params-then-state")

Modules = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Part:
    """One module of a file."""

    label: str
    """For messages."""
    scalars: str
    """What its own scalars begin with: `actor.`, `0.` for the first of several without prefixes, or nothing."""
    is_prefixed: bool
    """Whether the names of its tensors begin so, too."""
    side: Side
    """Its framework."""
    slots: Sequence[Slot]
    """Its tensors under their names in the file: parameters, then states, then counts."""
    optimizer: Any = None
    """Its optimizer, if it is to be saved or loaded too."""

    def of_kind(self, kind: str) -> list[Slot]:
        """The tensors of one kind."""
        return [slot for slot in self.slots if slot.kind == kind]

    @property
    def parameters(self) -> list[Slot]:
        """What an optimizer trains."""
        return self.of_kind("P")


def one(module: Any, *, prefix: str | None, optimizer: Any, walk: Names | None, fused: bool) -> list[Part]:
    """The only module of a file."""
    return _checked([_part(module, prefix, f"{prefix}." if prefix else "", optimizer, walk, fused=fused)])


def several(modules: Modules, *, optimizers: Any, walks: Any, fused: bool) -> list[Part]:
    """Several modules of one file.

    Args:
        modules: in their order; a mapping's keys are prefixes.
        optimizers: None; one for all; or in a form like `modules`, None where a module has none.
        walks: None, or in a form like `modules`.
        fused: see `slots_of`.
    """
    keys = list(modules) if isinstance(modules, Mapping) else list(range(len(modules)))
    if not keys:
        raise UsageError("no modules. Give a sequence of them, or a mapping from prefixes to them.")
    shared = optimizers is not None and not isinstance(optimizers, Mapping | list | tuple)
    of_optimizers = dict.fromkeys(keys, optimizers) if shared else _like(optimizers, keys, "optimizers")
    of_walks = _like(walks, keys, "walks")
    parts = []
    for key in keys:
        module: Any = modules[key]  # pyright: ignore[reportCallIssue, reportArgumentType] - a mapping or a sequence
        prefix = key if isinstance(key, str) else None
        parts.append(_part(module, prefix, f"{key}.", of_optimizers[key], of_walks[key], fused=fused))
    return _checked(parts)


def _like(given: Any, keys: list[Any], name: str) -> dict[Any, Any]:
    if given is None:
        return dict.fromkeys(keys)
    found = dict(given) if isinstance(given, Mapping) else dict(enumerate(given))
    if not found.keys() <= set(keys) or (not isinstance(given, Mapping) and len(found) != len(keys)):
        raise UsageError(f"{name}: {list(found)}, but the modules are {keys}. Give one for each, or None.")
    return {key: found.get(key) for key in keys}


def _part(module: Any, prefix: str | None, scalars: str, optimizer: Any, walk: Names | None, *, fused: bool) -> Part:
    side = side_of(module)
    slots = [slot.under(prefix) for slot in side.slots(module, walk, fused=fused)]
    label = prefix or scalars.rstrip(".") or "module"
    return Part(label, scalars, prefix is not None, side, slots, optimizer)


def _checked(parts: list[Part]) -> list[Part]:
    """Each optimizer must train the modules that it is given for, and nothing else."""
    owners: dict[int, list[Part]] = {}
    for part in parts:
        if part.optimizer is not None:
            owners.setdefault(id(part.optimizer), []).append(part)
    for own in owners.values():
        if len(own) > 1 and not own[0].side.shares_optimizers:
            labels = ", ".join(part.label for part in own)
            raise UsageError(f"one optimizer for {labels}: an nnx.Optimizer is made for one module. Give each its own.")
        own[0].side.check_covered(own[0].optimizer, [slot for part in own for slot in part.parameters])
    return parts


def arranged(parts: Sequence[Part], order: Order) -> list[tuple[Part, Slot]]:
    """All tensors of the parts in an order of sections.

    Raises:
        UsageError: there is no such order.
    """
    if order not in ORDERS:
        raise UsageError(f"order: {order!r}. Give one of {', '.join(ORDERS)}.")
    if order == "per-module":
        return [(part, slot) for part in parts for kind in ("P", "S") for slot in part.of_kind(kind)]
    return [(part, slot) for kind in ("P", "S") for part in parts for slot in part.of_kind(kind)]
