"""brax environments behind the environment protocol; the one place that imports brax."""

from importlib.metadata import version
from typing import Any

from perdure.nnx.envs.physics import Native, PhysicsEnvironment
from perdure.nnx.envs.settings import frozen, import_library

BACKENDS = ("generalized", "mjx", "positional", "spring")


class BraxEnvironment(PhysicsEnvironment):
    """A brax environment without brax's wrappers.

    brax draws nothing while an episode lasts, so its states hold no key.

    Attributes:
        backend: The physics.
        params: What else was passed to the environment's constructor, by name.
    """

    def __init__(
        self, env_name: str, backend: str = "generalized", *, episode_length: int = 1000, **params: Any
    ) -> None:
        """Look the environment up and build it.

        Args:
            env_name: brax's name, for instance `ant`.
            backend: The physics: `generalized`, `mjx`, `positional` or `spring`.
            episode_length: Steps after which an episode is truncated.
            **params: For the environment's constructor; plain values.

        Raises:
            ImportError: If brax is not installed.
            ValueError: If there is no such environment or backend, or the limit is not positive.
            TypeError: If the environment has no such parameter, or a value is not plain.
        """
        self.backend = backend
        self.params = dict(sorted(params.items()))
        settings = (backend, frozen(self.params, env_name))
        library = import_library("brax.envs", extra="brax")
        super().__init__(
            env_name,
            Native(_make(library, env_name, backend, self.params), library.State, physics="pipeline_state"),
            episode_length=episode_length,
            settings=settings,
            env_facts={
                "backend": backend,
                "params": self.params,
                "brax": version("brax"),
                "mujoco": version("mujoco"),
                "mujoco_mjx": version("mujoco-mjx"),
            },
        )

    def __repr__(self) -> str:
        """The call that makes it."""
        changed = "".join(f", {name}={value!r}" for name, value in self.params.items())
        return f"BraxEnvironment({self.env_name!r}, {self.backend!r}, episode_length={self.episode_length}{changed})"


def _make(library: Any, env_name: str, backend: str, params: dict[str, Any]) -> Any:
    known = sorted(library._envs)
    if env_name not in known:
        raise ValueError(f"brax has no environment {env_name!r}. It has: {', '.join(known)}.")
    if backend not in BACKENDS:
        raise ValueError(f"{env_name}: brax has no backend {backend!r}. It has: {', '.join(BACKENDS)}.")
    try:
        return library.get_environment(env_name, backend=backend, **params)
    except TypeError as error:
        given = ", ".join(params) or "none"
        raise TypeError(
            f"{env_name}: brax refuses the parameters given ({given}): {error}. Pass those of its constructor."
        ) from error
