"""storage-ckpt, the checkpoint format of the Mojo library noeira: versions 2 and 3 are read, version 3 is written.

- `save_params`, `load_params`, `save_params_multi`, `load_params_multi`: modules of PyTorch and Flax NNX, with Adam.
- `read`, `write`: sections and scalars as arrays, without any framework.
- `describe`, `is_storage_ckpt`: what a file is, from its content.
"""

from perdure.interop.storage_ckpt.describing import Description, describe
from perdure.interop.storage_ckpt.faults import (
    Kind,
    StorageCkptError,
    StorageFileError,
    StorageMismatchError,
    StorageNameError,
)
from perdure.interop.storage_ckpt.loading import LoadReport
from perdure.interop.storage_ckpt.modules import load_params, load_params_multi, save_params, save_params_multi
from perdure.interop.storage_ckpt.reader import is_storage_ckpt, read
from perdure.interop.storage_ckpt.sections import Section, StorageCheckpoint
from perdure.interop.storage_ckpt.writer import write

__all__ = [
    "Description",
    "Kind",
    "LoadReport",
    "Section",
    "StorageCheckpoint",
    "StorageCkptError",
    "StorageFileError",
    "StorageMismatchError",
    "StorageNameError",
    "describe",
    "is_storage_ckpt",
    "load_params",
    "load_params_multi",
    "read",
    "save_params",
    "save_params_multi",
    "write",
]
