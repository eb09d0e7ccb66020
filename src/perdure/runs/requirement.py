"""How faithful a run asks its checkpoints to be, and whether its components can be that."""

from perdure.checkpoint.capture import Captured
from perdure.errors import CaptureError
from perdure.runs.arguments import check_choice
from perdure.tree.snapshot import CLASSES

REQUIRABLE = CLASSES[:-1]
"""All but `weights-only`, which is no checkpoint."""


def required_class(requires: str | None, *, resets: bool, omits: bool = False) -> str:
    """The weakest class that a run asks for, or by default the weakest exact one of its kind.

    Args:
        requires: What the user says; None: nothing.
        resets: Whether the run resets its environments at each checkpoint.
        omits: Whether it leaves components out of its checkpoints.

    Raises:
        UsageError: It is no class that a checkpoint can have.
    """
    check_choice("requires", requires, (None, *REQUIRABLE))
    return requires or ("statistical" if omits else "boundary-reset" if resets else "exact-replay")


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
