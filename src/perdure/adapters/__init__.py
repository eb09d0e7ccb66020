"""Live objects to trees and back: one file per framework, imported when an object of it is met."""

from perdure.adapters.adapter import Adapter, Kind
from perdure.adapters.walk import Walk

__all__ = ["Adapter", "Kind", "Walk"]
