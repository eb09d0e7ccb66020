"""perdure: reinforcement-learning training that can be stopped anywhere and resumed exactly."""

from perdure.adapters.prioritized_ring import PrioritizedRing
from perdure.adapters.ring import Ring
from perdure.checkpoint.oneshot import Checkpoint, load, read, save
from perdure.contract.check import check_contract
from perdure.contract.config import contract_of
from perdure.contract.declared import EnvironmentVariable, File
from perdure.errors import (
    AllDamagedError,
    CaptureError,
    CommitError,
    ContractError,
    CrashLoopError,
    DamagedError,
    Finding,
    ForgottenValueError,
    LockedError,
    NoCheckpointError,
    NoRunError,
    NothingToLoadError,
    PerdureError,
    PolicyMismatchError,
    Preempted,
    RestoreError,
    UnknownObjectError,
    UnsupportedLeafError,
    UnsupportedVersionError,
    UsageError,
    WorkerDiedError,
)
from perdure.runs.boundary_reset import BoundaryReset
from perdure.runs.cadence import Every
from perdure.runs.choosing import checkpoint_path
from perdure.runs.normaliser import Normaliser
from perdure.runs.pins import pin, unpin
from perdure.runs.policy_loading import Policy, load_policy
from perdure.runs.retention import Keep
from perdure.runs.roles import policy_path
from perdure.runs.run import Run

__all__ = [
    "AllDamagedError",
    "BoundaryReset",
    "CaptureError",
    "Checkpoint",
    "CommitError",
    "ContractError",
    "CrashLoopError",
    "DamagedError",
    "EnvironmentVariable",
    "Every",
    "File",
    "Finding",
    "ForgottenValueError",
    "Keep",
    "LockedError",
    "NoCheckpointError",
    "NoRunError",
    "Normaliser",
    "NothingToLoadError",
    "PerdureError",
    "Policy",
    "PolicyMismatchError",
    "Preempted",
    "PrioritizedRing",
    "RestoreError",
    "Ring",
    "Run",
    "UnknownObjectError",
    "UnsupportedLeafError",
    "UnsupportedVersionError",
    "UsageError",
    "WorkerDiedError",
    "check_contract",
    "checkpoint_path",
    "contract_of",
    "load",
    "load_policy",
    "pin",
    "policy_path",
    "read",
    "save",
    "unpin",
]
