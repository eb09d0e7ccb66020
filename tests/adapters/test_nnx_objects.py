"""Flax NNX: modules, optimizers, variables and streams are restored in place, attribute by attribute."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from perdure.errors import UnknownObjectError
from perdure.tree.leaves import Alias

pytestmark = pytest.mark.jax


class Statistic(nnx.Variable):
    """A user's own kind of variable."""


class Model(nnx.Module):
    def __init__(self, seed: int, *, width: int = 3, dtype: Any = jnp.float32, layers: int = 1) -> None:
        rngs = nnx.Rngs(seed, dropout=seed + 1)
        self.linear = nnx.Linear(2, width, rngs=rngs, param_dtype=dtype)
        self.norm = nnx.BatchNorm(width, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.count = Statistic(jnp.full((), seed, jnp.uint32))
        self.layers = nnx.List([nnx.Linear(width, width, rngs=rngs) for _ in range(layers)])
        self.heads = nnx.Dict(policy=nnx.Param(jnp.full(2, float(seed))), value=nnx.Param(jnp.asarray(0.5 * seed)))

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.dropout(self.norm(self.linear(x)))
        for layer in self.layers:
            x = nnx.tanh(layer(x))
        return x @ jnp.ones((x.shape[-1], 2)) * self.heads["policy"][...]


X = jnp.arange(8.0).reshape(4, 2)


def variables(obj: Any) -> dict[str, int]:
    """The identity of every variable below `obj`."""
    return {str(path): id(node) for path, node in nnx.iter_graph(obj) if isinstance(node, nnx.Variable)}


def trained(seed: int) -> Model:
    """A model that has been used: statistics moved, dropout keys counted."""
    model = Model(seed)
    model(X)
    return model


def test_a_module_is_restored_in_place_and_goes_on_exactly(trip):
    source, target = trained(1), Model(2)
    before = variables(target)

    assert trip.restored(source, target) is target
    assert variables(target) == before
    assert np.asarray(target(X)).tobytes() == np.asarray(source(X)).tobytes()
    assert trip.digest(target) == trip.digest(source)


def test_every_kind_of_variable_is_part_of_the_state(trip):
    tree = trip.tree(trained(1))

    assert list(tree["norm"])[:4] == ["mean", "var", "scale", "bias"]
    assert tree["count"].value.tolist() == 1
    assert tree["dropout"]["rngs"]["count"].value.tolist() == 1
    assert tree["heads"]["value"].weak_type
    assert list(tree["layers"]) == ["_length", 0]


class Doubled(nnx.Param):
    """A variable that hands out another value than it holds."""

    def get_value(self, **options: Any) -> Any:
        return super().get_value(**options) * 2


@pytest.mark.filterwarnings("ignore:Variable hooks are deprecated")
@pytest.mark.parametrize(
    "variable",
    [
        pytest.param(lambda: Doubled(jnp.arange(3.0)), id="by its class"),
        pytest.param(
            lambda: nnx.Param(jnp.arange(3.0), on_get_value=lambda _variable, value: value * 2), id="by a hook"
        ),
    ],
)
def test_what_a_variable_hands_out_is_its_state_where_that_is_not_what_it_holds(trip, variable: Any):
    assert trip.tree(variable()).value.tolist() == [0.0, 2.0, 4.0]
    assert trip.tree(nnx.Param(jnp.arange(3.0))).value.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda m: m.count.set_value(m.count.get_value() + 1), id="a user's variable"),
        pytest.param(lambda m: m.norm.mean.set_value(m.norm.mean.get_value() + 1), id="a batch statistic"),
        pytest.param(lambda m: m.dropout.rngs.count.set_value(jnp.uint32(9)), id="a stream's count"),
        pytest.param(lambda m: m.dropout.rngs.key.set_value(jax.random.key(9)), id="a stream's key"),
        pytest.param(lambda m: m.heads["value"].set_value(jnp.float32(0.5)), id="a weak type"),
        pytest.param(lambda m: m.layers[0].bias.set_value(m.layers[0].bias.get_value().at[0].set(-0.0)), id="-0.0"),
        pytest.param(lambda m: setattr(m.dropout, "rate", 0.25), id="a plain attribute"),
    ],
)
def test_the_digest_sees_a_change_anywhere(trip, change: Any):
    """The twin of the round trip: each of these, lost or reset, would be found."""
    model = Model(1)
    before = trip.digest(model)

    change(model)

    assert trip.digest(model) != before


class Attributes(nnx.Module):
    a: Any
    b: Any

    def __init__(self, **attributes: Any) -> None:
        self.w = nnx.Param(jnp.ones(1))
        for name, value in attributes.items():
            setattr(self, name, value)


@pytest.mark.parametrize(
    ("saved", "target"),
    [
        pytest.param(0.5, 0.1, id="number"),
        pytest.param(3, 0, id="int"),
        pytest.param(True, False, id="bool"),
        pytest.param("relu", "tanh", id="string"),
        pytest.param(None, 2.0, id="None for a number"),
        pytest.param(2.0, None, id="a number for None"),
        pytest.param((1, "a"), (0, ""), id="tuple"),
        pytest.param(np.arange(3), np.zeros(3, int), id="NumPy array"),
        pytest.param([1.0, 2.0], [], id="a list that has grown"),
    ],
)
def test_plain_attributes_are_state(trip, saved: Any, target: Any):
    module = Attributes(a=target)

    trip.restored(Attributes(a=saved), module)

    assert type(module.a) is type(saved)
    assert repr(module.a) == repr(saved)


def test_a_jax_array_as_a_plain_attribute_is_state(trip):
    module = Attributes(a=jnp.zeros(2))

    trip.restored(Attributes(a=jnp.ones(2)), module)

    assert isinstance(module.a, jax.Array)
    assert module.a.tolist() == [1, 1]


def test_a_module_with_restored_attributes_still_splits_and_merges(trip):
    module = Attributes(a=0.1, b=jnp.zeros(2), c=None)
    before = nnx.graphdef(Attributes(a=0.5, b=jnp.ones(2), c=None))

    trip.restored(Attributes(a=0.5, b=jnp.ones(2), c=None), module)

    assert nnx.graphdef(module) == before


@pytest.mark.parametrize(
    ("saved", "target", "names"),
    [
        (jnp.tanh, nnx.relu, ("function jax:tanh", "function jax:relu")),
        (jnp.float32, jnp.bfloat16, ("class jax:float32", "class jax:bfloat16")),
        (nnx.initializers.zeros, None, ("function jax:zeros", "no function")),
    ],
    ids=["activation", "dtype", "gone"],
)
def test_a_changed_function_or_dtype_is_refused(trip, saved: Any, target: Any, names: tuple[str, str]):
    found = trip.findings(Attributes(a=saved, b=1), Attributes(a=target, b=1))

    assert [finding[0] for finding in found] == ["c/a"]
    assert tuple(name.split(":")[0] for name in found[0][1:]) == tuple(name.split(":")[0] for name in names)


@pytest.mark.parametrize(
    "activation",
    [nnx.relu, nnx.silu, nnx.gelu, nnx.softplus, nnx.elu, jnp.tanh, jnp.sin, jax.nn.sigmoid, jax.nn.leaky_relu],
)
def test_common_activations_are_facts(trip, activation: Any):
    component = trip.component(Attributes(a=activation))

    assert component.tree["a"] is None
    assert component.facts["a"].startswith("function jax:")


def test_an_unknown_attribute_is_refused_with_its_path(trip):
    class Tokenizer:
        pass

    with pytest.raises(
        UnknownObjectError, match=r"^c/inner/a: no adapter knows a .*Tokenizer, and perdure never pickles"
    ):
        trip.component(nnx.Dict(inner=Attributes(a=Tokenizer())))


def test_a_variable_may_hold_a_nested_value(trip):
    def module(x: float) -> Attributes:
        return Attributes(a=nnx.Variable({"x": jnp.full(2, x), "n": (1, jnp.asarray(x))}))

    target = module(0.0)
    trip.restored(module(2.0), target)

    assert target.a.get_value()["x"].tolist() == [2, 2]
    assert target.a.get_value()["n"][1].weak_type


# Sharing.


class Shared(nnx.Module):
    def __init__(self, seed: int, *, tied: bool = True, shared: bool = True) -> None:
        rngs = nnx.Rngs(seed)
        self.embed = nnx.Param(jnp.full(2, float(seed)))
        self.head = self.embed if tied else nnx.Param(jnp.full(2, float(seed)))
        self.actor = nnx.Linear(1, 1, rngs=rngs)
        self.critic = self.actor if shared else nnx.Linear(1, 1, rngs=rngs)


def test_shared_modules_and_tied_variables_are_stored_once_and_stay_shared(trip):
    target = Shared(2)

    assert trip.tree(Shared(1))["head"] == Alias(("c", "embed"))
    assert trip.tree(Shared(1))["critic"] == Alias(("c", "actor"))
    trip.restored(Shared(1), target)

    assert target.head is target.embed
    assert target.critic is target.actor
    assert target.head.get_value().tolist() == [1, 1]


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"tied": False}, ("c/head", "the same object as c/embed", "an object of its own")),
        ({"shared": False}, ("c/critic", "the same object as c/actor", "an object of its own")),
    ],
    ids=["tied", "shared"],
)
def test_lost_sharing_is_refused(trip, change: dict[str, bool], finding: tuple[str, str, str]):
    assert trip.findings(Shared(1), Shared(1, **change)) == [finding]


# Streams.


def test_streams_go_on_exactly(trip):
    source, target = nnx.Rngs(0, noise=1), nnx.Rngs(5, noise=6)
    source.params()
    source.noise()
    source.noise()

    trip.restored(source, target)

    for stream in ("noise", "params", "default"):
        ours, theirs = (jax.random.key_data(getattr(rngs, stream)()) for rngs in (target, source))
        assert ours.tolist() == theirs.tolist()


def test_another_set_of_streams_is_a_finding(trip):
    found = trip.findings(nnx.Rngs(0, noise=1), nnx.Rngs(0))

    assert [(key, new) for key, _, new in found] == [("c/noise", "missing")]


# Cells.


def test_a_recurrent_cell_comes_back_with_its_carry(trip):
    def cell(seed: int) -> Any:
        made = nnx.LSTMCell(1, 2, rngs=nnx.Rngs(seed))
        return {"cell": made, "carry": (jnp.full((1, 2), float(seed)), jnp.ones((1, 2)))}

    source, target = cell(1), cell(2)
    back = trip.restored(source, target)

    assert back["cell"] is target["cell"]
    ours, theirs = (each["cell"](each["carry"], jnp.ones((1, 1)))[1] for each in (back, source))
    assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()


# Optimizers.


class Small(nnx.Module):
    def __init__(self, seed: int) -> None:
        self.w = nnx.Param(seed * jnp.ones(2))


def small(seed: int, tx: optax.GradientTransformation | None = None) -> tuple[Small, nnx.Optimizer]:
    model = Small(seed)
    return model, nnx.Optimizer(model, tx or optax.adam(0.1), wrt=nnx.Param)


def update(model: Small, optimizer: nnx.Optimizer) -> None:
    optimizer.update(model, nnx.grad(lambda m: (m.w.get_value() ** 2).sum())(model))


def test_an_optimizer_is_restored_in_place_with_step_and_moments(trip):
    source, target = small(1), small(2)
    update(*source)
    update(*source)
    before = variables(target)

    back = trip.restored({"model": source[0], "optimizer": source[1]}, {"model": target[0], "optimizer": target[1]})

    assert (back["model"], back["optimizer"]) == target
    assert variables(target) == before
    assert int(target[1].step.get_value()) == 2
    update(*source)
    update(*target)
    assert np.asarray(target[0].w.get_value()).tobytes() == np.asarray(source[0].w.get_value()).tobytes()
    assert trip.digest(target[1]) == trip.digest(source[1])


def test_moments_lost_or_reset_are_seen(trip):
    source, fresh = small(1), small(1)
    update(*source)

    assert trip.digest(source[1]) != trip.digest(fresh[1])


def test_another_optimizer_is_refused(trip):
    assert trip.findings(small(1)[1], small(1, optax.sgd(0.1, momentum=0.9))[1])


def test_an_option_that_newer_flax_gave_optimizers_counts_where_it_was_chosen(trip):
    """Else nothing that was saved before an upgrade of Flax to 0.12.8 could be loaded after it."""
    as_ever, chosen = small(1)[1], small(1)[1]
    vars(as_ever).pop("graph", None)  # as Flax 0.12.6 makes it
    vars(chosen)["graph"] = True

    assert trip.restored(small(1)[1], as_ever) is as_ever
    trip.restored(as_ever, small(1)[1])
    assert [place for place, *_ in trip.findings(small(1)[1], chosen)] == ["c/graph"]


def test_other_dtypes_of_moments_are_findings_that_name_the_leaf(trip):
    found = trip.findings(small(1)[1], small(1, optax.adam(0.1, mu_dtype=jnp.bfloat16))[1])

    assert found[0] == ("c/opt_state/0/mu/w", "float32 2", "bfloat16 2")
    assert {(saved, here) for _, saved, here in found[1:]} == {("no function", "dtype bfloat16")}


# States as values.


def test_a_state_is_a_value_and_a_new_one_is_returned(trip):
    source, target = nnx.state(trained(1)), nnx.state(Model(2))
    before = trip.digest(target)

    back = trip.restored(source, target)

    assert type(back) is type(source)
    assert jax.tree.structure(back) == jax.tree.structure(target)
    ours, theirs = (nnx.merge(nnx.graphdef(Model(1)), state) for state in (back, source))
    assert np.asarray(ours(X)).tobytes() == np.asarray(theirs(X)).tobytes()
    assert trip.digest(target) == before


def test_a_state_of_another_model_is_a_finding(trip):
    found = trip.findings(nnx.state(Shared(1)), nnx.state(Shared(1, tied=False)))

    assert [(saved, new) for _, saved, new in found] == [("missing", "ArrayImpl")]


# Findings.


def test_another_width_names_every_leaf_it_changes(trip):
    found = trip.findings({"net": Model(1, width=3)}, {"net": Model(1, width=4)})

    assert ("c/net/linear/kernel", "float32 2×3", "float32 2×4") in found
    assert ("c/net/layers/0/bias", "float32 3", "float32 4") in found
    assert ("c/net/norm/mean", "float32 3", "float32 4") in found
    assert all(key.startswith("c/net/") for key, _, _ in found)


def test_another_dtype_names_the_leaf(trip):
    found = trip.findings(Model(1), Model(1, dtype=jnp.bfloat16))

    assert ("c/linear/kernel", "float32 2×3", "bfloat16 2×3") in found


def test_a_missing_and_an_extra_layer_are_named(trip):
    fewer = trip.findings(Model(1, layers=2), Model(1, layers=1))
    more = trip.findings(Model(1, layers=1), Model(1, layers=2))

    assert [finding[::2] for finding in fewer] == [("c/layers/1", "missing")]
    assert more == [("c/layers/1", "missing", "Linear")]


def test_a_missing_attribute_is_named(trip):
    assert trip.findings(Attributes(a=1, b=2), Attributes(a=1)) == [("c/b", "2", "missing")]


def test_a_restored_module_is_not_traced_again(trip):
    traces = []

    @nnx.jit
    def step(module: Attributes) -> jax.Array:
        traces.append(1)
        return module.w.get_value() * module.b.get_value()

    target = Attributes(b=nnx.Param(jnp.asarray(2.0)))
    step(target)
    trip.restored(Attributes(b=nnx.Param(jnp.asarray(3.0))), target)

    assert step(target).tolist() == [3.0]
    assert len(traces) == 1
