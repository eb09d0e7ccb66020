"""What a proof comes to."""

from dataclasses import dataclass

from perdure.proof.evidence import Compared, Ignored, Parting
from perdure.proof.locating import Located
from perdure.proof.processes import Ended


@dataclass(frozen=True)
class Verdict:
    """The outcome of a proof."""

    end: int
    """The boundary that the straight runs came to."""
    finished: bool
    """Whether the script finished by itself there."""
    stops: tuple[int, ...]
    """The boundaries after which it was interrupted; none if the script itself is not deterministic."""
    killed: bool
    """Whether it was killed there, rather than stopped."""
    outcome: Parting | Compared
    """Where the runs part, or how much of them is equal."""
    ignored: Ignored
    """Components that were not compared: generators that nobody seeds and nobody draws from."""
    located: Located | None = None
    """What differs there, leaf by leaf."""
    causes: tuple[str, ...] = ()
    """What may lie behind it."""
    failed: Ended | None = None
    """The resumed process that ended by an error."""
    resumes: tuple[int, ...] = ()
    """Of an exact one: the boundaries that were gone on from, other than start and end."""

    @property
    def is_deterministic(self) -> bool:
        """Whether two straight runs were the same."""
        return bool(self.stops)

    @property
    def is_exact(self) -> bool:
        """Whether the interrupted run was the same as the straight one."""
        return isinstance(self.outcome, Compared) and self.failed is None
