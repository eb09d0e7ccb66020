"""For authors of stores and for users' own tests; needs pytest.

- `assert_exact_resume`: a training that is stopped and resumed is the training that was never stopped.
- `StoreTests`: the protocol of a store as tests, to be inherited.
- `StoreCrashTests`: the same protocol across power losses and kills, for stores on a `FileSystem`.
- `SimulatedDisk`: a file system in memory that yields every disk a power loss could leave.
- `Fault`, `FaultyFileSystem`, `FaultyStore`: the n-th call fails.
"""

import pytest

pytest.register_assert_rewrite("perdure.testing.store_tests", "perdure.testing.crash_tests")

from perdure.testing.crash_tests import StoreCrashTests  # noqa: E402 - after the registration
from perdure.testing.exact_resume import assert_exact_resume  # noqa: E402
from perdure.testing.faults import Fault, FaultyFileSystem, FaultyStore  # noqa: E402
from perdure.testing.simulated_disk import SimulatedDisk  # noqa: E402
from perdure.testing.store_tests import StoreTests  # noqa: E402

__all__ = [
    "Fault",
    "FaultyFileSystem",
    "FaultyStore",
    "SimulatedDisk",
    "StoreCrashTests",
    "StoreTests",
    "assert_exact_resume",
]
