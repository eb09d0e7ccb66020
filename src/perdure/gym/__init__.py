"""Helpers for users of Gymnasium."""

from perdure.gym.probing import Probe, probe
from perdure.gym.recorded import Recorded

__all__ = ["Probe", "Recorded", "probe"]
