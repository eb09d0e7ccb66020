"""Distributions that a module keeps come back attribute by attribute, into a fresh start that has none yet."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import distributions as d  # noqa: E402
from torch import nn  # noqa: E402

import perdure  # noqa: E402
from perdure.errors import CaptureError  # noqa: E402

X = torch.tensor([0.25, -1.5, 0.75])
SCALE = torch.tensor([0.5, 1.0, 2.0])
EYE = torch.eye(3) + 0.1

KINDS: dict[str, Any] = {
    "Normal": lambda: d.Normal(X, SCALE),
    "Normal of numbers": lambda: d.Normal(0.0, 1.0),
    "Categorical": lambda: d.Categorical(logits=X),
    "Categorical of probabilities": lambda: d.Categorical(probs=SCALE),
    "OneHotCategorical": lambda: d.OneHotCategorical(logits=X),
    "Bernoulli": lambda: d.Bernoulli(logits=X),
    "Beta": lambda: d.Beta(SCALE, SCALE),
    "Gamma": lambda: d.Gamma(SCALE, SCALE, validate_args=False),
    "StudentT": lambda: d.StudentT(SCALE),
    "Uniform": lambda: d.Uniform(X, X + 1),
    "MultivariateNormal": lambda: d.MultivariateNormal(X, EYE @ EYE.T),
    "LowRankMultivariateNormal": lambda: d.LowRankMultivariateNormal(X, EYE, SCALE),
    "Independent": lambda: d.Independent(d.Normal(X, SCALE), 1),
    "squashed": lambda: d.TransformedDistribution(
        d.Independent(d.Normal(X, SCALE), 1),
        [d.TanhTransform(cache_size=1), d.AffineTransform(0.5, SCALE, event_dim=1)],
    ),
    "of an inverse": lambda: d.TransformedDistribution(d.Uniform(X * 0 + 0.1, 0.9), d.SigmoidTransform().inv),
    "LogNormal": lambda: d.LogNormal(X, SCALE),
    "Gumbel": lambda: d.Gumbel(X, SCALE),
    "MixtureSameFamily": lambda: d.MixtureSameFamily(d.Categorical(SCALE), d.Normal(X, SCALE)),
}


class Policy(nn.Module):
    def __init__(self, distribution: Any = None) -> None:
        super().__init__()
        self.distribution = distribution


def draws(distribution: Any) -> Any:
    torch.manual_seed(3)
    drawn = distribution.sample((4,))
    return drawn.tolist(), distribution.log_prob(drawn).tolist()


TARGETS = {
    "nothing": lambda make: None,
    "the same kind": lambda make: make(),
    "another kind": lambda make: d.Exponential(torch.ones(2)),
    "a tensor": lambda make: torch.zeros(2),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_it_comes_back_whatever_the_fresh_start_holds(trip, kind: str, target: str):
    source, twin = Policy(KINDS[kind]()), Policy(TARGETS[target](KINDS[kind]))

    trip.restored(source, twin)

    assert type(twin.distribution) is type(source.distribution)
    assert vars(twin.distribution).keys() == vars(source.distribution).keys()
    assert draws(twin.distribution) == draws(source.distribution)


@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_where_the_run_has_none(trip, kind: str):
    twin = Policy(KINDS[kind]())

    trip.restored(Policy(), twin)

    assert twin.distribution is None


def test_what_a_distribution_has_computed_comes_back_too(trip):
    source, twin = Policy(d.Categorical(logits=X)), Policy()
    computed = source.distribution.probs

    trip.restored(source, twin)

    assert torch.equal(vars(twin.distribution)["probs"], computed)


def test_a_tensor_that_it_shares_with_the_module_is_shared_again(trip):
    source, twin = Policy(d.Categorical(logits=X.clone())), Policy()
    vars(source)["last_logits"] = source.distribution.logits

    trip.restored(source, twin)

    assert twin.distribution.logits is twin.last_logits


def test_the_digest_sees_the_class_and_each_parameter(trip):
    kinds = (d.Normal(X, SCALE), d.Normal(X, SCALE + 1), d.Laplace(X, SCALE), d.Normal(X[:1], SCALE[:1]))

    assert len({trip.digest(Policy(kind)) for kind in kinds}) == 4


def test_one_with_a_graph_behind_it_is_refused_at_the_save(trip):
    policy = Policy(d.Normal(X.clone().requires_grad_() * 2, SCALE))

    with pytest.raises(CaptureError, match=r"^c/\./distribution/loc: the tensor has a graph .*Detach it, or set it to"):
        trip.tree(policy)


class Cut(d.Normal):
    """A class of the user's own: it may hold anything, and is no class that a file may name."""


def test_one_of_a_user_s_class_must_be_there(trip, tmp_path: Path):
    twin = Policy(Cut(X * 0, SCALE))
    trip.restored(Policy(Cut(X, SCALE)), twin)
    assert draws(twin.distribution) == draws(d.Normal(X, SCALE))

    policy = Policy()
    with perdure.Run(tmp_path, background=False) as run:
        run.restore(policy=policy)
        policy.distribution = Cut(X, SCALE)
        with pytest.raises(
            CaptureError, match=r"^policy/\./distribution: nothing when the run was opened, class .*Cut"
        ):
            run.finish(env_steps=1)


# The whole of it, shaped as in rsl_rl: `self.distribution` is made by the first forward pass.


class ActorCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = nn.Linear(3, 2), nn.Linear(3, 1)
        self.std = nn.Parameter(torch.ones(2))
        self.distribution: Any = None

    def update_distribution(self, observations: Any) -> None:
        mean = self.actor(observations)
        self.distribution = d.Normal(mean, mean * 0.0 + self.std)

    def act(self, observations: Any) -> Any:
        self.update_distribution(observations)
        return self.distribution.sample()


def train(directory: Path, updates: int, *, distribution: bool = True) -> list[float]:
    """What a loop learns that asks, before it acts, what its last distribution would have said."""
    torch.manual_seed(1)
    policy = ActorCritic()
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.05)
    observations, said = torch.zeros(4, 3), []
    with perdure.Run(directory, every=perdure.Every(updates=1), background=False) as run:
        s = run.restore(policy=policy, optimizer=optimizer, observations=observations)
        observations = s.observations
        if not distribution:
            policy.distribution = None
        while run.updates < updates:
            before: Any = policy.distribution
            with torch.inference_mode():
                said.append(0.0 if before is None else float(before.log_prob(torch.zeros(4, 2)).sum()))
                actions = policy.act(observations)
            observations = 0.5 * observations + actions.clone() @ torch.ones(2, 3) * 0.1 + said[-1] * 1e-3
            policy.update_distribution(observations)
            kept: Any = policy.distribution
            loss = -(kept.log_prob(actions.clone()).sum() * 0.1 - policy.critic(observations).square().sum())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                policy.act(observations)
            run.boundary(env_steps=run.env_steps + 4, observations=observations)
    return [*said, *(float(part) for part in policy.std.detach())]


def test_an_actor_critic_whose_distribution_comes_later_goes_on_exactly(tmp_path: Path):
    straight = train(tmp_path / "straight", 6)
    stopped = train(tmp_path / "stopped", 2)[:-2]

    assert stopped + train(tmp_path / "stopped", 6) == straight


def test_its_twin_that_loses_the_distribution_does_not(tmp_path: Path):
    straight = train(tmp_path / "straight", 6)
    stopped = train(tmp_path / "stopped", 2)[:-2]

    assert stopped + train(tmp_path / "stopped", 6, distribution=False) != straight
