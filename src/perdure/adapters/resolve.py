"""Which adapter knows an object: a frozen table of class names, then protocols, else a clear error."""

import dataclasses
import enum
import sys
import types
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np

from perdure.adapters.adapter import Adapter
from perdure.adapters.unknown import problem_of
from perdure.errors import UnknownObjectError
from perdure.tree.leaves import PLAIN_TYPES
from perdure.tree.paths import Path

EXACT = MappingProxyType(
    {
        "builtins.NoneType": "plain:Plain",
        "builtins.bool": "plain:Plain",
        "builtins.int": "plain:Plain",
        "builtins.float": "plain:Plain",
        "builtins.complex": "plain:Plain",
        "builtins.str": "plain:Plain",
        "builtins.bytes": "plain:Plain",
        "builtins.dict": "containers:Dict",
        "collections.OrderedDict": "ordered_dicts:OrderedDict",
        "builtins.list": "containers:List",
        "builtins.tuple": "containers:Tuple",
        "collections.deque": "containers:Deque",
        "collections.defaultdict": "tables:DefaultDict",
        "collections.Counter": "tables:Counter",
        "builtins.set": "unordered:Set",
        "builtins.frozenset": "unordered:FrozenSet",
        "builtins.bytearray": "buffers:ByteArray",
        "array.array": "buffers:PythonArray",
        "argparse.Namespace": "containers:Namespace",
        "functools.partial": "containers:Partial",
        "jax._src.tree_util.Partial": "containers:Partial",
        "flashbax.buffers.prioritised_trajectory_buffer.PrioritisedTrajectoryBufferState": "flashbax_buffers:State",
        "flashbax.buffers.trajectory_buffer.TrajectoryBufferState": "flashbax_buffers:State",
        "numpy.ndarray": "numpy_arrays:NdArray",
        "numpy.memmap": "numpy_arrays:MemoryMap",
        "numpy.random._generator.Generator": "numpy_random:Generator",
        "numpy.random.bit_generator.SeedSequence": "numpy_random:SeedSequence",
        "numpy.random.mtrand.RandomState": "numpy_random:RandomState",
        "random.Random": "python_random:Random",
        "perdure.adapters.omitted.Omitted": "omissions:Omission",
        "perdure.adapters.prioritized_ring.PrioritizedRing": "rings:PrioritizedRing",
        "perdure.adapters.ring.Ring": "rings:Ring",
        "stable_baselines3.common.buffers.DictReplayBuffer": "sb3_buffers:ReplayBuffer",
        "stable_baselines3.common.buffers.NStepReplayBuffer": "sb3_buffers:ReplayBuffer",
        "stable_baselines3.common.buffers.ReplayBuffer": "sb3_buffers:ReplayBuffer",
        "torch._C.Generator": "torch_random:Generator",
        "torch.dtype": "torch_tensors:Constant",
        "torch.device": "torch_tensors:Constant",
        "torch.layout": "torch_tensors:Constant",
        "torch.memory_format": "torch_tensors:Constant",
        "torch.Size": "torch_tensors:Size",
    }
)
"""Class name -> `module:class` of the adapter, for this very class: a subclass may hold more than the adapter sees."""

INHERITED = MappingProxyType(
    {
        "logging.Logger": "facts:Own",
        "numpy.generic": "numpy_arrays:NumpyScalar",
        "numpy.random.bit_generator.BitGenerator": "numpy_random:BitGenerator",
        "jaxlib._jax.ArrayImpl": "jax_arrays:JaxArray",
        "jax._src.random.prng.PRNGKeyArray": "jax_arrays:JaxKey",
        "jax._src.prng.PRNGKeyArray": "jax_arrays:JaxKey",
        "optax._src.base.GradientTransformation": "jax_optimizers:Transformation",
        "optax._src.base.GradientTransformationExtraArgs": "jax_optimizers:Transformation",
        "optax.transforms._accumulation.MultiSteps": "jax_optimizers:MultiSteps",
        "flax.nnx.variablelib.Variable": "nnx_objects:Variable",
        "flax.nnx.pytreelib.Pytree": "nnx_objects:Node",
        "flax.nnx.statelib.State": "nnx_objects:State",
        "gymnasium.core.Env": "gymnasium_envs:Env",
        "gymnasium.vector.vector_env.VectorEnv": "gymnasium_envs:Env",
        "gymnasium.spaces.space.Space": "gymnasium_envs:Space",
        "gymnasium.wrappers.utils.RunningMeanStd": "gymnasium_envs:RunningStatistics",
        "torch.Tensor": "torch_tensors:Tensor",
        "torch.nn.parameter.Parameter": "torch_tensors:Parameter",
        "torch.nn.modules.module.Module": "torch_modules:Module",
        "torch.optim.optimizer.Optimizer": "torch_optimizers:Optimizer",
        "torch.optim.lr_scheduler.LRScheduler": "torch_schedulers:Scheduler",
        "torch.amp.grad_scaler.GradScaler": "torch_schedulers:Scaler",
        "torch.distributions.distribution.Distribution": "torch_distributions:Distribution",
        "torch.distributions.transforms.Transform": "torch_distributions:Distribution",
        "perdure.adapters.torch_modules.Part": "torch_modules:PartAdapter",
        "perdure.adapters.torch_schedulers.Callable": "torch_schedulers:CallableAdapter",
        "gymnasium.envs.mujoco.mujoco_env.MujocoEnv": "mujoco_models:MujocoEnv",
        "perdure.gym.recorded.Recorded": "gymnasium_recorded:RecordedEnv",
        "perdure.adapters.mujoco_models.Compiled": "mujoco_models:CompiledModel",
        "mujoco._structs.MjModel": "mujoco_models:MjModel",
        "mujoco._structs.MjData": "mujoco_data:MjData",
        "ale_py._ale_py.ALEInterface": "ale_interface:Ale",
        "pygame.surface.Surface": "gymnasium_display:Display",
        "pygame.time.Clock": "gymnasium_display:Display",
        "gymnasium.envs.mujoco.mujoco_rendering.MujocoRenderer": "gymnasium_display:Display",
        "gymnasium.wrappers.normalize.RunningMeanStd": "gymnasium_envs:RunningStatistics",  # 0.29
        "stable_baselines3.common.monitor.Monitor": "sb3_envs:Monitor",
        "stable_baselines3.common.running_mean_std.RunningMeanStd": "sb3_envs:Statistics",
        "stable_baselines3.common.vec_env.base_vec_env.VecEnv": "sb3_envs:VecEnv",
        "stable_baselines3.common.vec_env.stacked_observations.StackedObservations": "sb3_envs:StackedObservations",
        "stable_baselines3.common.vec_env.subproc_vec_env.SubprocVecEnv": "sb3_envs:SubprocVecEnv",
        "stable_baselines3.common.base_class.BaseAlgorithm": "sb3_algorithms:Algorithm",
        "stable_baselines3.common.buffers.BaseBuffer": "sb3_algorithms:Buffer",
        "stable_baselines3.common.buffers.RolloutBuffer": "sb3_algorithms:Rollouts",
        "stable_baselines3.common.buffers.DictRolloutBuffer": "sb3_algorithms:Rollouts",
        "stable_baselines3.common.callbacks.BaseCallback": "sb3_parts:Callback",
        "stable_baselines3.common.distributions.Distribution": "sb3_parts:Distribution",
        "stable_baselines3.common.distributions.TanhBijector": "sb3_parts:Part",
        "stable_baselines3.common.logger.Logger": "sb3_algorithms:Logger",
        "stable_baselines3.common.noise.ActionNoise": "sb3_parts:Part",
        "stable_baselines3.common.utils.ConstantSchedule": "sb3_parts:Schedule",
        "stable_baselines3.common.utils.FloatSchedule": "sb3_parts:Schedule",
        "stable_baselines3.common.utils.LinearSchedule": "sb3_parts:Schedule",
        "stable_baselines3.her.her_replay_buffer.HerReplayBuffer": "sb3_algorithms:Hindsight",
        "torchrl.data.replay_buffers.replay_buffers.ReplayBuffer": "torchrl_buffers:Buffer",
        "perdure.adapters.sb3_algorithms.Carried": "sb3_algorithms:CarriedAdapter",
        "perdure.gym.level_pool.LevelPool": "level_pools:LevelPool",
        "perdure.gym.sync_envs.SyncVectorEnv": "gymnasium_vectors:InThisProcess",
        "perdure.gym.async_envs.AsyncVectorEnv": "gymnasium_vectors:InOtherProcesses",
        "perdure.adapters.resettable.Resettable": "gymnasium_resets:Resettable",
        "perdure.adapters.process_rng.ProcessRng": "process_rng:ProcessRngAdapter",
    }
)
"""The same for a class and its subclasses; the most specific class of an object's MRO wins."""

_FACT_TYPES = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    np.dtype,
    np.ufunc,
)


WITHOUT_TARGET = MappingProxyType(
    {
        "deque": "containers:rebuild_deque",
        "ordered-dict": "ordered_dicts:rebuild_ordered_dict",
        "default-dict": "tables:rebuild_default_dict",
        "counter": "tables:rebuild_counter",
        "set": "unordered:rebuild_set",
        "frozen-set": "unordered:rebuild_frozen_set",
        "bytearray": "buffers:rebuild_byte_array",
        "array-array": "buffers:rebuild_array",
        "display": "gymnasium_display:rebuild",
        "jax-array": "jax_arrays:rebuild_array",
        "jax-key": "jax_arrays:rebuild_key",
        "torch-tensor": "torch_tensors:rebuild",
        "torch-size": "torch_tensors:rebuild_size",
        "torch-own-distribution": "torch_distributions:rebuild",
    }
)
"""Ids of adapters, beside the plain ones, whose trees can become objects without a target -> the function for it."""


class Resolver:
    """Finds adapters; a user's own come before the table's."""

    def __init__(self, extra: Sequence[tuple[type, Adapter]] = ()) -> None:
        self._extra = tuple(extra)
        self.leaf_types = frozenset(kind for kind in PLAIN_TYPES if self._of_user(kind) is None)
        """Types of plain leaves for which no adapter of the user's own stands."""

    def resolve(self, obj: Any, path: Path, *, takes_objects: bool = False) -> Adapter:
        """The adapter for `obj`.

        Args:
            obj: any object.
            path: where it stands, for the message.
            takes_objects: inside an environment, where plain Python objects count by what they hold.

        Raises:
            UnknownObjectError: nothing knows it; the message names `path` and the ways out.
        """
        adapter = (self._of_user(type(obj)) if self._extra else None) or (_held(obj) if takes_objects else None)
        adapter = adapter or _from_table(type(obj)) or _by_protocol(obj)
        if adapter is None and takes_objects:
            adapter = _load("gymnasium_objects:PlainObject") if _is_plain_object(type(obj)) else None
        if adapter is None or (adapter.kind == "fact" and len(path) == 1):
            raise UnknownObjectError(problem_of(obj, dotted_name(type(obj)), path))
        variant = getattr(adapter, "variant", None)  # an adapter may look at the very object
        return adapter if variant is None else variant(obj)

    def _of_user(self, kind: type) -> Adapter | None:
        for cls in kind.__mro__ if self._extra else ():
            for known, adapter in self._extra:
                if known is cls:
                    return adapter
        return None


def load(target: str) -> Adapter:
    """The adapter `module:class` of this package; the module, and with it a framework, is imported now."""
    module, name = target.split(":")
    return getattr(import_module(f"perdure.adapters.{module}"), name)()


def load_function(target: str) -> Callable[..., Any]:
    """The function `module:function` of this package."""
    module, name = target.split(":")
    return getattr(import_module(f"perdure.adapters.{module}"), name)


_load = lru_cache(maxsize=None)(load)


@lru_cache(maxsize=1024)
def _from_table(kind: type) -> Adapter | None:
    exact = EXACT.get(dotted_name(kind))
    if exact is not None:
        return _load(exact)
    return next((_load(INHERITED[dotted_name(cls)]) for cls in kind.__mro__ if dotted_name(cls) in INHERITED), None)


def dotted_name(kind: type) -> str:
    """A class's module and qualified name, as tables of classes that need not be installed spell it."""
    return f"{getattr(kind, '__module__', None)}.{kind.__qualname__}"  # some of SWIG's have no module


def _by_protocol(obj: Any) -> Adapter | None:
    if isinstance(obj, type):
        return _load("facts:Fact")
    # On the class: a wrapper that forwards unknown attributes would speak for what it wraps, and lose its own state.
    kind = type(obj)
    if callable(getattr(kind, "state_dict", None)) and callable(getattr(kind, "load_state_dict", None)):
        return _load("state_methods:StateDict")
    if callable(getattr(kind, "get_state", None)) and callable(getattr(kind, "set_state", None)):
        return _load("state_methods:GetState")
    if isinstance(obj, types.MethodType):
        return _load("facts:Fact" if isinstance(obj.__self__, type | types.ModuleType) else "containers:BoundMethod")
    return _by_structure(obj)


def _by_structure(obj: Any) -> Adapter | None:
    if isinstance(obj, tuple) and hasattr(obj, "_fields"):
        return _load("containers:NamedTuple")
    if isinstance(obj, enum.Enum):
        return _load("plain:Enum")
    if _is_fact(obj):
        return _load("facts:Fact")
    if dataclasses.is_dataclass(obj):  # before JAX: a registered dataclass hides its static fields from JAX
        return _load("containers:Dataclass")
    if _is_jax_node(obj):
        return _load("jax_pytrees:Pytree")
    return None


_WRAPPING_PACKAGES = frozenset({"functools", "jax", "jaxlib", "flax", "optax", "numpy"})
"""Whose wrappers of functions hold no state but caches; a user's own callable object may count or learn."""


def _is_fact(obj: Any) -> bool:
    if isinstance(obj, _FACT_TYPES):
        return True
    # Functions that jax and others wrap in objects of their own keep the names of what they wrap.
    package = (getattr(type(obj), "__module__", None) or "").split(".")[0]  # some of SWIG's have none
    return (
        package in _WRAPPING_PACKAGES and callable(obj) and hasattr(obj, "__wrapped__") and hasattr(obj, "__qualname__")
    )


_NEVER_HELD = frozenset({list, tuple, np.ndarray, np.random.Generator, *PLAIN_TYPES})

HELD = MappingProxyType({set: "Set", frozenset: "FrozenSet"})


def _held(obj: Any) -> Adapter | None:
    """Inside an environment: what comes back from its saved tree alone, for the twin may hold nothing there yet."""
    if type(obj) in _NEVER_HELD:  # the usual case: this runs hundreds of times a save
        return None
    if type(obj) in HELD:
        return _load(f"gymnasium_objects:{HELD[type(obj)]}")
    if type(obj) is dict and not all(type(key) in (str, int) for key in obj):
        return _load("gymnasium_objects:Pairs")
    if isinstance(obj, enum.Enum):
        return _load("gymnasium_objects:Member")
    if isinstance(obj, tuple) and hasattr(obj, "_fields"):
        return _load("gymnasium_objects:HeldNamedTuple")
    if dataclasses.is_dataclass(obj) and _from_table(type(obj)) is None and _is_plain_object(type(obj)):
        return _load("gymnasium_objects:PlainObject")
    return None


def _is_plain_object(kind: type) -> bool:
    return load_function("gymnasium_classes:is_plain")(kind)


def _is_jax_node(obj: Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and not jax.tree_util.all_leaves([obj])
