"""What a module or an environment holds is refused at the save, or comes back: no save that cannot be resumed.

Attributes of random kinds, nested at random: those of a fresh start, and those after some use, which may be of other
kinds, share objects, or be new. The twin is a fresh start.
"""

import array
import enum
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, capture
from perdure.checkpoint.opening import open_checkpoint
from perdure.checkpoint.restore import restore
from perdure.checkpoint.save import About, save
from perdure.errors import CaptureError
from perdure.runs.unchanged import fixed_parts, refuse_changes
from perdure.store.memory import MemoryStore
from perdure.tree.snapshot import Snapshot

torch = pytest.importorskip("torch")
gymnasium = pytest.importorskip("gymnasium")

Spec = Any
"""What a value is built from: (kind, arguments). Built twice, it gives two values that share nothing."""


class Mode(enum.Enum):
    WALK = 0
    RUN = 1


class Note:
    """A plain Python object."""

    def __init__(self, text: Any) -> None:
        self.text = text


def one() -> float:
    return 1.0


PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 70),
    st.sampled_from([0.0, -0.0, 0.5, float("nan")]),
    st.text("ab", max_size=2),
).map(lambda value: ("plain", value))
NUMBERS = st.lists(st.integers(0, 70), max_size=5)
KEYS = st.one_of(st.text("ab", max_size=2), st.integers(0, 9))
PLACES = st.tuples(st.integers(0, 3), st.integers(0, 3))

LEAVES = st.one_of(
    PLAIN,
    st.tuples(st.just("array"), st.sampled_from(["f4", "i8", "?"]), st.integers(0, 3)),
    st.tuples(st.just("scalar"), st.sampled_from(["f4", "i8"]), st.integers(0, 3)),
    st.tuples(st.just("set"), NUMBERS),
    st.tuples(st.just("set"), st.lists(st.one_of(st.text("ab", max_size=2), PLACES), max_size=4)),
    st.tuples(st.just("worn set"), NUMBERS, NUMBERS),
    st.tuples(st.just("frozenset"), NUMBERS),
    st.tuples(st.just("bytearray"), st.binary(max_size=3)),
    st.tuples(st.just("numbers"), st.sampled_from("dbl"), NUMBERS),
    st.tuples(st.just("counter"), st.lists(st.one_of(KEYS, PLACES), max_size=4)),
    st.tuples(st.just("generator"), st.integers(0, 3)),
    st.sampled_from([("mode", "WALK"), ("mode", "RUN"), ("function", "one"), ("function", "abs")]),
)
OF_TORCH = st.one_of(
    st.tuples(st.just("tensor"), st.sampled_from(["float32", "int64", "bfloat16"]), st.integers(0, 3)),
    st.tuples(st.just("size"), NUMBERS),
    st.tuples(st.just("normal"), st.integers(0, 3)),
    st.tuples(st.just("categorical"), st.integers(1, 3)),
    st.tuples(st.just("squashed"), st.integers(1, 3)),
)


def nested(leaves: st.SearchStrategy[Spec]) -> st.SearchStrategy[Spec]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["list", "tuple", "deque", "short deque"]), st.lists(inner, max_size=3)),
            st.tuples(
                st.sampled_from(["dict", "ordered", "default", "default of function"]),
                st.lists(st.tuples(KEYS, inner), max_size=3),
            ),
            st.tuples(st.just("default"), st.lists(st.tuples(PLACES, inner), max_size=3)),
            st.tuples(st.just("twice"), inner),
        ),
        max_leaves=6,
    )


BUILDERS: dict[str, Callable[..., Any]] = {
    "plain": lambda value: value,
    "array": lambda dtype, size: np.arange(size).astype(dtype),
    "scalar": lambda dtype, value: np.dtype(dtype).type(value),
    "set": set,
    "worn set": lambda added, removed: set(added) - set(removed),
    "frozenset": frozenset,
    "bytearray": bytearray,
    "numbers": array.array,
    "counter": Counter,
    "generator": np.random.default_rng,
    "mode": lambda name: Mode[name],
    "function": lambda name: {"one": one, "abs": abs}[name],
    "tensor": lambda dtype, size: torch.arange(size).to(getattr(torch, dtype)),
    "size": torch.Size,
    "normal": lambda size: torch.distributions.Normal(torch.zeros(size), 1.0 + torch.arange(size)),
    "categorical": lambda size: torch.distributions.Categorical(logits=torch.arange(float(size))),
    "squashed": lambda size: torch.distributions.Independent(
        torch.distributions.TransformedDistribution(
            torch.distributions.Normal(torch.zeros(size), 1.0), [torch.distributions.TanhTransform()]
        ),
        1,
    ),
    "list": lambda items: [*map(build, items)],
    "tuple": lambda items: (*map(build, items),),
    "deque": lambda items: deque(map(build, items)),
    "short deque": lambda items: deque(map(build, items), maxlen=2),
    "dict": lambda items: {key: build(item) for key, item in items},
    "ordered": lambda items: OrderedDict((key, build(item)) for key, item in items),
    "default": lambda items: defaultdict(list, {key: build(item) for key, item in items}),
    "default of function": lambda items: defaultdict(one, {key: build(item) for key, item in items}),
    "twice": lambda item: [build(item)] * 2,
    "note": lambda item: Note(build(item)),
    "places": lambda items: {key: build(item) for key, item in items},
}


def build(spec: Spec) -> Any:
    kind, *arguments = spec
    return BUILDERS[kind](*arguments)


class Module(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)


class World(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)


def comes_back_or_is_refused(make: Callable[[], Any], fresh: dict[str, Spec], used: dict[str, Spec]) -> bool:
    """Whether a used object's state came back in a fresh one; False if the save was refused."""
    source, twin = make(), make()
    for name, spec in fresh.items():
        setattr(source, name, build(spec))
        setattr(twin, name, build(spec))
    try:
        opened = taken(source)
    except CaptureError:
        return False
    for name, spec in used.items():
        setattr(source, name, build(spec))
    if "a" in used and "c" in used:
        source.d = source.a
    try:
        saved = taken(source)
        refuse_changes(fixed_parts(opened), saved)
    except CaptureError:
        return False
    wanted, store = seen(source), MemoryStore()
    save(store, "step", saved, About())
    restore(open_checkpoint(store, "step").snapshot, {"c": twin}, Resolver(), "step")  # compares the digests itself
    assert seen(twin) == wanted
    return True


def taken(obj: Any) -> Snapshot:
    return capture({"c": obj}, Resolver(), Counters()).snapshot


def seen(value: Any, known: dict[int, int] | None = None) -> Any:
    """Everything that a program could see of a value: kinds, order, bits, and which parts are one object."""
    known = {} if known is None else known
    if isinstance(value, Module | World | Note):
        parts = {name: part for name, part in sorted(vars(value).items()) if not name.startswith("_")}
        return type(value).__name__, seen(parts, known)
    if isinstance(value, torch.distributions.Distribution | torch.distributions.Transform):
        parts = {name: part for name, part in sorted(vars(value).items()) if name != "_inv"}
        return type(value).__name__, seen(parts, known)
    if isinstance(value, np.random.Generator):
        return "generator", repr(value.bit_generator.state)
    if isinstance(value, torch.Tensor):
        return "tensor", str(value.dtype), tuple(value.shape), repr(value.tolist())
    if isinstance(value, np.ndarray):
        return "array", value.dtype.str, value.shape, value.tobytes()
    number = known.setdefault(id(value), len(known)) if isinstance(value, list | dict | deque | bytearray) else None
    if isinstance(value, dict):
        items = [(repr(key), seen(part, known)) for key, part in value.items()]
        return type(value).__name__, number, getattr(value, "default_factory", None), items
    if isinstance(value, list | tuple | deque):
        items = [seen(part, known) for part in value]
        return type(value).__name__, number, getattr(value, "maxlen", None), items
    if isinstance(value, set | frozenset):
        has_an_order = all(isinstance(item, int) for item in value)  # text has one of its own in each process
        return type(value).__name__, [*map(repr, value)] if has_an_order else sorted(map(repr, value))
    return type(value).__name__, number, repr(value)


MANY = settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def attributes(values: st.SearchStrategy[Spec]) -> st.SearchStrategy[dict[str, Spec]]:
    return st.dictionaries(st.sampled_from("abc"), values, max_size=3)


OF_MODULES = nested(st.one_of(LEAVES, OF_TORCH))
OF_WORLDS = nested(
    st.one_of(
        LEAVES,
        st.tuples(st.just("note"), nested(LEAVES)),
        st.tuples(st.just("places"), st.lists(st.tuples(PLACES, LEAVES), max_size=3)),
    )
)


@pytest.mark.full
@MANY
@given(attributes(OF_MODULES), attributes(OF_MODULES))
def test_of_a_module(fresh: dict[str, Spec], used: dict[str, Spec]) -> None:
    comes_back_or_is_refused(Module, fresh, used)


@pytest.mark.full
@MANY
@given(attributes(OF_WORLDS), attributes(OF_WORLDS))
def test_of_an_environment(fresh: dict[str, Spec], used: dict[str, Spec]) -> None:
    comes_back_or_is_refused(World, fresh, used)
