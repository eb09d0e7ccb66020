"""In and out of other libraries' files: what can be carried is carried exactly, and every loss is listed."""

from perdure.interop.carried import Leaf
from perdure.interop.conversion import Conversion, convert

__all__ = ["Conversion", "Leaf", "convert"]
