"""Network modules with an explicit state, and ready-made networks."""

from perdure.nnx.networks.containers import PPOAdapter, Sequential
from perdure.nnx.networks.factories import make_mlp, make_mlp_actor_critic, make_mlp_layers
from perdure.nnx.networks.layers import Dense, Flattener
from perdure.nnx.networks.normalizer import Normalizer, NormalizerCounter, NormalizerM2, NormalizerMean
from perdure.nnx.networks.samplers import CategoricalSampler, NormalTanhSampler, Sampler
from perdure.nnx.networks.types import PPONetworkOutput, SamplerOutput, StatefulModule, StatefulModuleOutput

__all__ = [
    "CategoricalSampler",
    "Dense",
    "Flattener",
    "NormalTanhSampler",
    "Normalizer",
    "NormalizerCounter",
    "NormalizerM2",
    "NormalizerMean",
    "PPOAdapter",
    "PPONetworkOutput",
    "Sampler",
    "SamplerOutput",
    "Sequential",
    "StatefulModule",
    "StatefulModuleOutput",
    "make_mlp",
    "make_mlp_actor_critic",
    "make_mlp_layers",
]
