"""In and out of other libraries' files: what can be carried is carried exactly, and every loss is listed."""

from perdure.interop.carried import Leaf
from perdure.interop.conversion import Conversion, convert
from perdure.interop.loading import load_into

__all__ = ["Conversion", "Leaf", "convert", "load_into"]
