"""What the audited scripts share: a learner whose weights are all that it saves, and the run's options."""

import sys
from typing import Any

import numpy as np

import perdure

REPAIRED = "--repaired" in sys.argv
DIRECTORY = sys.argv[1]
UPDATES = 9


def given(**components: Any) -> dict[str, Any]:
    """What the repaired script hands in beside the rest; the faulty one does not."""
    return components if REPAIRED else {}


class Learner:
    """Weights that follow what they are shown."""

    def __init__(self) -> None:
        self.weights = np.zeros(3)

    def learn(self, observation: Any, rate: float = 0.1) -> float:
        error = observation - self.weights
        self.weights = self.weights + rate * error
        return float(np.abs(error).sum())

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights = state["weights"]


def open_run() -> perdure.Run:
    return perdure.Run(DIRECTORY, horizon=UPDATES, every=perdure.Every(updates=100))
