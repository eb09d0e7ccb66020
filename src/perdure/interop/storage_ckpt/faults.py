"""What can be wrong with a file of storage-ckpt, or between one and a model: one kind of fault an error.

PerdureError
└── StorageCkptError                                  has a `kind`
    ├── StorageFileError (DamagedError)               the file is not well formed
    ├── StorageMismatchError (ContractError)          the file is well formed, and for another model
    └── StorageNameError (UsageError)                 what is to be written has no form in the format
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

from perdure.errors import ContractError, DamagedError, Finding, PerdureError, UsageError


class Kind(StrEnum):
    """The kinds of fault that the format's specification names."""

    NOT_A_CHECKPOINT = "NotACheckpoint"
    """The first line is something else."""
    UNSUPPORTED_VERSION = "UnsupportedVersion"
    """The first line names another version than 2 and 3."""
    TRUNCATED = "Truncated"
    """The file ends too early, or announces more than is left."""
    BAD_HEADER = "BadHeader"
    """A section's header breaks the grammar."""
    SECTION_ORDER = "SectionOrder"
    """A scalar stands before a parameter or a state."""
    DUPLICATE_NAME = "DuplicateName"
    """Two scalars have one name."""
    TRAILING_DATA = "TrailingData"
    """Something that is no section follows the last one."""
    BAD_FLOAT = "BadFloat"
    """A line of version 2 is no number, or a scalar has a value that it cannot have."""
    AMBIGUOUS = "Ambiguous"
    """The last line of version 2 has no newline: it may be cut."""
    NAME_MISMATCH = "NameMismatch"
    """A section has another name than the model's tensor at this position."""
    SIZE_MISMATCH = "SizeMismatch"
    """A section has another size than the model's tensor."""
    MISSING_SECTION = "MissingSection"
    """The model has more tensors than the file."""
    EXTRA_SECTION = "ExtraSection"
    """The file has more tensors than the model."""


class StorageCkptError(PerdureError):
    """A fault of a file of storage-ckpt.

    Attributes:
        kind: which of the faults that the format's specification names.
    """

    kind: Kind


class StorageFileError(StorageCkptError, DamagedError):
    """The file is not well formed."""

    def __init__(self, kind: Kind, place: str, problem: str, way_out: str) -> None:
        self.kind = kind
        super().__init__(f"{place}: {problem}. {way_out}")


class StorageMismatchError(StorageCkptError, ContractError):
    """The file is well formed, and its sections are not those of the model."""

    claim: ClassVar[str] = "this file is not of this model"

    def __init__(self, kind: Kind, place: str, findings: Sequence[Finding]) -> None:
        self.kind = kind
        super().__init__(place, findings)


class StorageNameError(StorageCkptError, UsageError):
    """What is to be written has no form in the format."""

    def __init__(self, kind: Kind, place: str, problem: str, way_out: str) -> None:
        self.kind = kind
        super().__init__(f"{place}: {problem}. {way_out}")
