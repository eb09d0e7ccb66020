"""Where Gymnasium's versions keep their classes: 0.29 has one kind of wrapper fewer, and no autoreset modes."""

import gymnasium


def _kinds(*places: tuple[object, str]) -> tuple[type, ...]:
    found = (getattr(holder, name, None) for holder, name in places)
    return tuple(kind for kind in found if isinstance(kind, type))


VECTOR_WRAPPERS = _kinds((gymnasium.vector, "VectorWrapper"), (gymnasium.vector, "VectorEnvWrapper"))
"""Wrappers of vector environments; the second name is that of 0.29, where it is no `gymnasium.Wrapper`."""

WRAPPERS = (gymnasium.Wrapper, *VECTOR_WRAPPERS)
"""Wrappers of single environments and of vector environments."""

STATISTICS_OF_SINGLE = _kinds((gymnasium.wrappers, "RecordEpisodeStatistics"))
"""`RecordEpisodeStatistics`; in 0.29 for vector environments too."""

STATISTICS_OF_VECTORS = _kinds((getattr(gymnasium.wrappers, "vector", None), "RecordEpisodeStatistics"))
"""The one for vector environments since 1.0."""
