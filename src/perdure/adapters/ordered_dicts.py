"""`collections.OrderedDict`, which may have attributes besides its items: state dicts of PyTorch keep facts there."""

from collections import OrderedDict as PythonOrderedDict
from typing import Any

from perdure.adapters.containers import Dict
from perdure.adapters.walk import Walk
from perdure.errors import CaptureError
from perdure.tree.leaves import Tree
from perdure.tree.paths import format_path

VERSIONS = "_metadata"
"""Where `torch.nn.Module.state_dict` says of which version each module is; a restore takes its target's."""


class OrderedDict(Dict):
    """`collections.OrderedDict`; of its attributes only versions of PyTorch's modules are known."""

    id = "ordered-dict"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A dict of the children's trees.

        Raises:
            CaptureError: a key is neither text nor an int, or it has attributes.
        """
        unknown = sorted(name for name, value in vars(obj).items() if not (name == VERSIONS and _is_versions(value)))
        if unknown:
            raise CaptureError(
                f"{format_path(walk.path)}: an OrderedDict with attributes of its own ({', '.join(unknown)}), which "
                "would be lost. Keep them in its items, or in an object with state_dict() and load_state_dict(): of "
                "a TensorDict, to_dict() has all."
            )
        return super().capture(obj, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """A new ordered dict with the target's attributes; the same one if every child was restored in place."""
        restored = super().restore(obj, tree, walk)
        if not isinstance(restored, PythonOrderedDict):
            restored = PythonOrderedDict(restored)
        if restored is not obj and isinstance(obj, PythonOrderedDict):
            vars(restored).update(vars(obj))
        return restored


def rebuild_ordered_dict(tree: Tree, walk: Walk) -> Any:
    """An ordered dict without a target."""
    return PythonOrderedDict((key, walk.rebuild_at(child, key)) for key, child in tree.items())


def _is_versions(metadata: Any) -> bool:
    """Whether it says nothing but versions: what modules add to it themselves would be lost."""
    return isinstance(metadata, dict) and all(
        type(about) is dict and about.keys() <= {"version"} for about in metadata.values()
    )
