"""What functions, classes, dtypes and modules are called: the same in every process and on every machine."""

import sys
from functools import lru_cache
from pathlib import PurePath
from types import ModuleType
from typing import Any

import numpy as np

_MAIN = frozenset({"__main__", "__mp_main__"})


def name_of(obj: Any) -> str:
    """Kind, top package and qualified name. Of its module only the top package counts, for inner modules move."""
    if isinstance(obj, np.dtype):
        return f"dtype {obj.name if obj.isnative else obj.str}"
    if isinstance(obj, ModuleType):
        return f"module {obj.__name__}"
    if type(obj) is type and obj.__module__ not in _MAIN:  # a metaclass may call two equal: `jnp.float32`, NumPy's
        return _name_of_class(obj)
    kind = "class" if isinstance(obj, type) else "function"
    module = getattr(obj, "__module__", None) or "builtins"
    package = (_name_of_main() if module in _MAIN else module).split(".")[0]
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None) or f"of {type(obj).__qualname__}"
    return f"{kind} {package}:{name}"


@lru_cache(maxsize=4096)
def _name_of_class(kind: type) -> str:
    """Asked for hundreds of times a save, and for the same few classes."""
    return f"class {(kind.__module__ or 'builtins').split('.')[0]}:{kind.__qualname__}"


def full_name_of(obj: Any) -> str:
    """Module and qualified name: for a configuration, in which two functions of one name are two choices."""
    module = getattr(obj, "__module__", None) or "builtins"
    return f"{_name_of_main() if module in _MAIN else module}.{obj.__qualname__}"


def _name_of_main() -> str:
    """What the script would be called if it were imported, so that `python train.py` and `import train` agree."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return spec.name
    file = getattr(main, "__file__", None)
    return PurePath(file).stem if file else "__main__"
