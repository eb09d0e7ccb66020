"""MuJoCo Playground environments behind the environment protocol; the one place that imports mujoco_playground."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from perdure.nnx.envs.physics import Native, PhysicsEnvironment
from perdure.nnx.envs.settings import frozen, import_library

IMPLEMENTATION = "jax"


class PlaygroundEnvironment(PhysicsEnvironment):
    """A MuJoCo Playground environment without Playground's wrappers, on the JAX implementation of MJX.

    Playground's own default is the Warp implementation, whose states are not supported here.

    Attributes:
        config_overrides: What was changed in the environment's configuration, by dotted name.
    """

    def __init__(
        self,
        env_name: str,
        config_overrides: Mapping[str, Any] | None = None,
        *,
        episode_length: int | None = None,
    ) -> None:
        """Look the environment up and build it.

        Args:
            env_name: Playground's name, for instance `CartpoleBalance`.
            config_overrides: Changes to the environment's default configuration, by dotted name; plain values.
            episode_length: Steps after which an episode is truncated; as the configuration says if None.

        Raises:
            ImportError: If MuJoCo Playground is not installed.
            ValueError: If there is no such environment or setting, the limit is not positive, or the
                configuration asks for Warp or for repeated actions.
            TypeError: If a value is not plain.
        """
        self.config_overrides = dict(sorted((config_overrides or {}).items()))
        settings = frozen(self.config_overrides, env_name)
        library = import_library("mujoco_playground", extra="playground")
        config = _config(library, env_name, self.config_overrides)
        env = library.registry.load(env_name, config=config)
        super().__init__(
            env_name,
            Native(env, library.State, physics="data"),
            episode_length=config.episode_length if episode_length is None else episode_length,
            settings=settings,
            env_facts={
                "config": config.to_dict(),
                "playground": version("playground"),
                "mujoco": version("mujoco"),
                "mujoco_mjx": version("mujoco-mjx"),
            },
        )

    def __repr__(self) -> str:
        """The call that makes it."""
        overrides = f", {self.config_overrides!r}" if self.config_overrides else ""
        return f"PlaygroundEnvironment({self.env_name!r}{overrides}, episode_length={self.episode_length})"


def _config(library: Any, env_name: str, overrides: dict[str, Any]) -> Any:
    """The environment's configuration, complete."""
    suites = (library.dm_control_suite, library.locomotion, library.manipulation)
    known = sorted(name for suite in suites for name in suite.ALL_ENVS)
    if env_name not in known:
        raise ValueError(f"MuJoCo Playground has no environment {env_name!r}. It has: {', '.join(known)}.")
    config = library.registry.get_default_config(env_name)
    if "impl" in config:
        config.impl = IMPLEMENTATION
    for name, value in overrides.items():
        _override(config, env_name, name, value)
    _refuse_unsupported(config, env_name)
    return config


def _override(config: Any, env_name: str, name: str, value: Any) -> None:
    *sections, last = name.split(".")
    section = _section(config, sections)
    if not hasattr(section, "keys") or last not in section:
        known = ", ".join(sorted(config.keys()))
        raise ValueError(f"{env_name}: its configuration has no {name!r}. It has: {known}.")
    try:
        section[last] = value
    except TypeError as error:
        raise TypeError(f"{env_name}: {name}: expected a value like {section[last]!r}, got {value!r}.") from error


def _section(config: Any, names: Sequence[str]) -> Any:
    """The part of the configuration that these names lead to; None if they lead nowhere."""
    for name in names:
        config = config.get(name) if hasattr(config, "keys") else None
    return config


def _refuse_unsupported(config: Any, env_name: str) -> None:
    implementation = config.get("impl", IMPLEMENTATION)
    if implementation != IMPLEMENTATION:
        raise ValueError(
            f"{env_name}: impl: expected {IMPLEMENTATION!r}, got {implementation!r}. "
            "Leave it out of config_overrides: states of other implementations are not supported."
        )
    if config.get("action_repeat", 1) != 1:
        raise ValueError(
            f"{env_name}: action_repeat: expected 1, got {config.action_repeat}, which is up to a wrapper that is not "
            "used here. Pass config_overrides={'action_repeat': 1}."
        )
