"""Shapes of what a class is named for: plain Python objects, named tuples, members of enums.

The class is the target's own or one that is imported already, and none of its code runs.
"""

import enum
from typing import Any

from perdure.adapters.gymnasium_classes import (
    attributes_of,
    class_name,
    constant_name,
    find_class,
    find_constant,
    is_plain,
    set_attributes,
)
from perdure.adapters.gymnasium_objects import CLASS, CONSTANT
from perdure.adapters.gymnasium_shapes import Parts, Sequence
from perdure.adapters.walk import Walk
from perdure.tree.leaves import Tree, children


class OfClass(Sequence):
    """What a class is named for."""

    def problem(self, value: Any, saved: Tree) -> tuple[str, str] | None:
        """The class must be there already; nothing is imported for a file."""
        kind = self.class_of(value, saved)
        if kind is None:
            return f"an object of {saved[CLASS]}", "no such class has been imported"
        return None if self.fits(kind) else (f"an object of {saved[CLASS]}", "a class of another sort")

    def class_of(self, value: Any, saved: Tree) -> type | None:
        """The class that was saved; the target's own where it is of that name, for one in a function is not found."""
        same = value is not None and class_name(type(value)) == saved[CLASS]
        return type(value) if same else find_class(saved[CLASS])

    def fits(self, kind: type) -> bool:
        """Whether objects of the class are what this shape makes."""
        return is_plain(kind)

    def saved_parts(self, saved: Tree) -> Parts:
        """All but the class."""
        return {step: child for step, child in children(saved) if step != CLASS}


class Object(OfClass):
    """A plain Python object, or a constant of a module."""

    def problem(self, value: Any, saved: Tree) -> tuple[str, str] | None:
        """A constant must be there; of an object, the class."""
        if CONSTANT not in saved:
            return super().problem(value, saved)
        missing = find_constant(saved[CONSTANT]) is None
        return (f"the object {saved[CONSTANT]}", "no such object has been imported") if missing else None

    def saved_parts(self, saved: Tree) -> Parts:
        """The attributes; a constant has none here."""
        return {} if CONSTANT in saved else super().saved_parts(saved)

    def target(self, value: Any, saved: Tree, walk: Walk) -> Any:
        """An object of the same class, unless it is a constant, which others use too."""
        is_same = value is not None and class_name(type(value)) == saved.get(CLASS) and constant_name(value) is None
        return value if is_same and walk.claim(value) else None

    def parts(self, target: Any) -> Parts:
        """The attributes."""
        return {} if target is None else attributes_of(target)

    def begin(self, value: Any, target: Any, saved: Tree) -> Any:
        """The target, or an object without attributes; none of the class's code runs."""
        if CONSTANT in saved:
            return find_constant(saved[CONSTANT])
        return object.__new__(self.class_of(value, saved) or object) if target is None else target

    def finish(self, made: Any, value: Any, saved: Tree, parts: Parts) -> Any:
        """With these attributes and no others."""
        if CONSTANT not in saved:
            set_attributes(made, parts)
        return made


class NamedTuple(OfClass):
    """A named tuple."""

    def fits(self, kind: type) -> bool:
        """A tuple whose fields have names."""
        return issubclass(kind, tuple) and hasattr(kind, "_fields")

    def saved_parts(self, saved: Tree) -> Parts:
        """The items."""
        return dict(enumerate(saved["items"]))

    def target(self, value: Any, saved: Tree, walk: Walk) -> Any:
        """One of the same class."""
        return value if value is not None and class_name(type(value)) == saved[CLASS] else None

    def begin(self, value: Any, target: Any, saved: Tree) -> Any:
        """Nothing."""

    def finish(self, made: Any, value: Any, saved: Tree, parts: Parts) -> Any:
        """Without the class's own code."""
        return tuple.__new__(self.class_of(value, saved) or tuple, parts.values())


class Member(OfClass):
    """A member of an enum."""

    def problem(self, value: Any, saved: Tree) -> tuple[str, str] | None:
        """The class must be there, and have the member."""
        problem = super().problem(value, saved)
        if problem is None and self._member(value, saved) is None:
            return f"{saved['member']} of {saved[CLASS]}", "no such member"
        return problem

    def fits(self, kind: type) -> bool:
        """An enum."""
        return issubclass(kind, enum.Enum)

    def saved_parts(self, saved: Tree) -> Parts:
        """None."""
        return {}

    def target(self, value: Any, saved: Tree, walk: Walk) -> Any:
        """Members are not changed."""

    def begin(self, value: Any, target: Any, saved: Tree) -> Any:
        """The member."""
        return self._member(value, saved)

    def finish(self, made: Any, value: Any, saved: Tree, parts: Parts) -> Any:
        """The member."""
        return made

    def _member(self, value: Any, saved: Tree) -> Any:
        kind: Any = self.class_of(value, saved)
        name = saved["member"]
        if issubclass(kind, enum.Flag) and type(name) is int:
            return kind(name)
        return kind.__members__.get(name)
