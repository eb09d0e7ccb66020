"""How faithful a run asks its checkpoints to be, and whether its components can be that."""

from perdure.checkpoint.capture import Captured
from perdure.errors import CaptureError
from perdure.tree.snapshot import CLASSES

REQUIRABLE = CLASSES[:-1]
"""All but `weights-only`, which is no checkpoint."""


def check_class(captured: Captured, requires: str) -> None:
    """Refuses components that allow only a weaker continuation class than the run asks for.

    Raises:
        CaptureError: there are some; all are named, with the reasons.
    """
    weaker = [
        f"{name} allows {part.fidelity} ({part.reason})"
        for name, part in captured.snapshot.components.items()
        if CLASSES.index(part.fidelity) > CLASSES.index(requires)
    ]
    if weaker:
        raise CaptureError(
            f"requires={requires!r}, but {'; '.join(weaker)}. Change these components, or ask for less: "
            "Run(requires=…) takes the weakest class that will do."
        )
