"""Network modules with an explicit state, and ready-made networks."""

from perdure.nnx.networks.bottlenecks import AR1VariationalBottleneck, VariationalBottleneck
from perdure.nnx.networks.branches import Concat, Map, Merge, Parallel
from perdure.nnx.networks.containers import PPOAdapter, Sequential
from perdure.nnx.networks.factories import make_mlp, make_mlp_actor_critic, make_mlp_layers
from perdure.nnx.networks.layers import Dense
from perdure.nnx.networks.normalizer import Normalizer, NormalizerCounter, NormalizerM2, NormalizerMean
from perdure.nnx.networks.recurrent import LSTM, Delay
from perdure.nnx.networks.routing import Filter, Flattener, Scale, Splitter
from perdure.nnx.networks.samplers import CategoricalSampler, NormalTanhSampler, Sampler
from perdure.nnx.networks.types import PPONetworkOutput, SamplerOutput, StatefulModule, StatefulModuleOutput

__all__ = [
    "LSTM",
    "AR1VariationalBottleneck",
    "CategoricalSampler",
    "Concat",
    "Delay",
    "Dense",
    "Filter",
    "Flattener",
    "Map",
    "Merge",
    "NormalTanhSampler",
    "Normalizer",
    "NormalizerCounter",
    "NormalizerM2",
    "NormalizerMean",
    "PPOAdapter",
    "PPONetworkOutput",
    "Parallel",
    "Sampler",
    "SamplerOutput",
    "Scale",
    "Sequential",
    "Splitter",
    "StatefulModule",
    "StatefulModuleOutput",
    "VariationalBottleneck",
    "make_mlp",
    "make_mlp_actor_critic",
    "make_mlp_layers",
]
