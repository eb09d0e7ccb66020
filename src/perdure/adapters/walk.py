"""The walk: recurses through objects, picks adapters, remembers which objects are shared.

One `Walk` serves one pass (capture, check or restore) over all components of a run, so that an object that two
components share is stored once and restored shared.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from perdure.adapters.adapter import Adapter
from perdure.adapters.omitted import Omitted
from perdure.adapters.resolve import WITHOUT_TARGET, Resolver, load_function
from perdure.adapters.settings import setting_of
from perdure.contract.text import Plain
from perdure.errors import CaptureError, Finding
from perdure.tree.leaves import Alias, Array, Tree, children
from perdure.tree.paths import Path, Step, format_path
from perdure.tree.snapshot import CLASSES

Object = Any

PLAIN_ADAPTERS = frozenset({"plain", "dict", "list", "tuple", "numpy-array", "numpy-scalar"})
"""What these make can be rebuilt without a target, if it holds nothing else."""


class Walk:
    """One pass over objects. Adapters call `capture`, `check` or `restore` for their children."""

    def __init__(
        self, resolver: Resolver, made: Mapping[Path, str] = MappingProxyType({}), at: Sequence[Step] = ()
    ) -> None:
        """Begins a pass.

        Args:
            resolver: finds the adapters.
            made: for `check` and `restore`: the ids of other adapters than the plain ones that made the saved tree.
            at: where it begins, if another process walks the rest (`remote.py`).
        """
        self._resolver = resolver
        self._made = made
        self._path: list[Step] = list(at)
        self._places: dict[int, tuple[Path, Object]] = {}
        self._by_path: dict[Path, Object] = {}
        self._open: set[int] = set()
        self._live_depth = 0
        self._notes_settings = False
        self._takes_objects = False
        self._claimed: dict[int, Object] = {}
        self._speakers: list[tuple[Path, Object]] = []
        self.facts: dict[Path, str] = {}
        """Functions, classes and dtypes met by `capture`, by path."""
        self.memory: dict[int, list[tuple[Path, Any]]] = {}
        """Arrays inside environments met by `capture`, with their places, by the identity of what owns their memory;
        for `restore`, tensors written to, by the address of their storage."""
        self.settings: dict[Path, Plain] = {}
        """Plain values met by `capture` that were chosen when objects were built: a fresh start must hold the same."""
        self.values: set[Step] = set()
        """Components in which `capture` met a value, which the caller must hand in again."""
        self.lives: set[Step] = set()
        """Components in which `capture` met a live object."""
        self.made: dict[Path, str] = {}
        """Ids of the adapters that made what stands directly in plain containers, where they are not plain."""
        self.weakest: dict[Step, tuple[str, str]] = {}
        """Per component, the weakest class below exact-snapshot that `capture` met, with the reason."""
        self.postponed: list[Callable[[], object]] = []
        """Random number generators that `restore` met: to be called last, in this order."""

    @property
    def path(self) -> Path:
        """Where the walk stands."""
        return tuple(self._path)

    @property
    def inside_live(self) -> bool:
        """Whether the object at hand is part of a live object, so that it is restored in place."""
        return self._live_depth > 0

    @property
    def inside_environment(self) -> bool:
        """Whether the object at hand is part of an environment, where plain Python objects count by what they hold."""
        return self._takes_objects

    @property
    def made_here(self) -> str | None:
        """For `check` and `restore`: the id of the adapter that made the saved tree at this place; None for plain."""
        return self._made.get(self.path)

    @property
    def met(self) -> dict[int, Object]:
        """The objects with an identity that the pass has met so far."""
        return {key: obj for key, (_, obj) in self._places.items()}

    def at(self, step: Step, do: Callable[[], Any]) -> Any:
        """What `do` gives when it is called one `step` further in."""
        return self._at(step, do)

    def know(self, obj: Object) -> None:
        """Notes that the saved object of this place is `obj` now, for places that share it."""
        self._by_path[self.path] = obj

    def claim(self, obj: Object) -> bool:
        """Whether `obj` may take the state of this place: it has taken none so far, which changes with this call."""
        is_free = id(obj) not in self._claimed
        self._claimed[id(obj)] = obj
        return is_free

    def adapter_of(self, obj: Object) -> Adapter:
        """The adapter of an object that stands somewhere below the object at hand."""
        return self._resolver.resolve(obj, (*self.path, 0), takes_objects=self._takes_objects)

    def made_at(self, step: Step) -> str | None:
        """The same one `step` further in."""
        return self._made.get((*self.path, step))

    def capture(self, obj: Object, step: Step) -> Tree:
        """The tree of `obj`, which stands at `step` below the object at hand.

        Raises:
            UnknownObjectError: no adapter knows an object on the way.
            CaptureError: a list or dict contains itself.
        """
        self._path.append(step)
        try:  # spelled out, and leaves not looked up: this runs hundreds of times a save
            return self._capture_leaf(obj) if type(obj) in self._resolver.leaf_types else self._capture(obj)
        finally:
            self._path.pop()

    def capture_below(self, obj: Object, *below: Step) -> Tree:
        """The same for an object that stands at several steps below the object at hand."""
        if len(below) == 1:
            return self.capture(obj, below[0])
        return self._at(below[0], lambda: self.capture_below(obj, *below[1:]))

    def meet(self, obj: Object, *below: Step) -> Alias | None:
        """Notes that a leaf with identity stands at the steps `below`; an alias if it was met before.

        The short way of `capture` for the parameters of a live object, of which there are hundreds and whose adapter is
        at work already.
        """
        if id(obj) in self._places:
            return Alias(self._places[id(obj)][0])
        path = (*self._path, *below)
        self._places[id(obj)], self._by_path[path] = (path, obj), obj
        return None

    def check(self, obj: Object, tree: Tree, step: Step) -> list[Finding]:
        """Why `tree` cannot be restored into `obj`."""
        return self._at(step, lambda: self._check(obj, tree))

    def restore(self, obj: Object, tree: Tree, step: Step) -> Object:
        """`obj` with the state of `tree`."""
        return self._at(step, lambda: self._restore(obj, tree))

    def capture_inner(self, obj: Object) -> Tree:
        """The tree of the value inside a wrapper, at the wrapper's own place."""
        return self._resolver.resolve(obj, self.path).capture(obj, self)

    def check_inner(self, obj: Object, tree: Tree) -> list[Finding]:
        """Why `tree` cannot be restored into the value inside a wrapper."""
        return self._resolver.resolve(obj, self.path).check(obj, tree, self)

    def restore_inner(self, obj: Object, tree: Tree) -> Object:
        """The restored value inside a wrapper."""
        return self._resolver.resolve(obj, self.path).restore(obj, tree, self)

    def is_plain(self, tree: Tree, *below: Step) -> bool:
        """Whether `rebuild` can do without a target: built-in containers, plain leaves, arrays and keys only."""
        return self._is_plain(tree, (*self.path, *below))

    def holds_plain(self, tree: Tree) -> bool:
        """Whether all that the container at this place holds is plain."""
        return all(self._is_plain(child, (*self.path, step)) for step, child in children(tree))

    def _is_plain(self, tree: Tree, path: Path) -> bool:
        if path in self._made and self._made[path] not in WITHOUT_TARGET:
            return False
        return all(self._is_plain(child, (*path, step)) for step, child in children(tree))

    def rebuild(self, tree: Tree) -> Object:
        """The value that a plain tree at this place stands for, without a target; it adopts the tree's arrays."""
        if isinstance(tree, Alias):
            return self._shared(tree.path)
        if self._made.get(self.path) in WITHOUT_TARGET:
            value = load_function(WITHOUT_TARGET[self._made[self.path]])(tree, self)
            self._by_path[self.path] = value
            return value
        if isinstance(tree, dict | list):
            return self._rebuild_mutable(tree)
        if isinstance(tree, tuple):
            value = tuple(self._at(at, partial(self.rebuild, child)) for at, child in enumerate(tree))
        elif isinstance(tree, Array):
            value = tree.value.reshape(-1)[0] if tree.scalar else tree.value
        else:
            value = tree
        self._by_path[self.path] = value
        return value

    def _rebuild_mutable(self, tree: dict[Step, Tree] | list[Tree]) -> Object:
        """A dict or list, known by its path before its children are: one of them may be this very object again."""
        value: Object = type(tree)()
        self._by_path[self.path] = value
        for step, child in children(tree):
            part = self._at(step, partial(self.rebuild, child))
            value.append(part) if isinstance(tree, list) else value.__setitem__(step, part)
        return value

    def rebuild_at(self, tree: Tree, step: Step) -> Object:
        """The same for the plain tree at `step` below the object at hand."""
        return self._at(step, lambda: self.rebuild(tree))

    def saved_made(self, *below: Step) -> dict[Path, str]:
        """For `check` and `restore`: the ids of the adapters that made what was saved below this place."""
        place = (*self.path, *below)
        return {path: adapter for path, adapter in self._made.items() if path[: len(place)] == place}

    def stands(self, obj: Object, *below: Step) -> Object:
        """Notes that an adapter kept `obj` in a restore, though the walk would have made a new one; returns it."""
        self._by_path[(*self.path, *below)] = obj
        return obj

    def fact(self, text: str, *below: Step) -> None:
        """Notes a function, class or dtype at this place, or what belongs to it at the steps `below`."""
        self.facts[(*self._path, *below)] = text

    def finding(self, saved: str, found: str, advice: str, *below: Step) -> Finding:
        """A finding at this place, or at the place that the steps `below` lead to."""
        return Finding(format_path((*self.path, *below)), saved, found, advice)

    def _at(self, step: Step, do: Callable[[], Any]) -> Any:
        self._path.append(step)
        try:
            return do()
        finally:
            self._path.pop()

    def _resolve(self, obj: Object) -> Adapter:
        return self._resolver.resolve(obj, tuple(self._path), takes_objects=self._takes_objects)

    def _capture_leaf(self, obj: Object) -> Tree:
        """What `_capture` comes to for a plain leaf, which is its own state."""
        if not self._live_depth:
            self.values.add(self._path[0])
        if self._notes_settings:
            self.settings[self.path] = obj
        return obj

    def _capture(self, obj: Object) -> Tree:
        adapter = self._resolve(obj)
        if adapter.has_identity:
            if id(obj) in self._places:
                return self._alias(obj, adapter)
            path = tuple(self._path)
            self._places[id(obj)], self._by_path[path] = (path, obj), obj
        self._note(obj, adapter)
        around = self._enter(obj, adapter)
        try:
            tree = adapter.capture(obj, self)
        finally:
            self._leave(obj, adapter, around)
        if self._notes_settings and adapter.kind == "value":
            for setting in setting_of(tree):  # however deep it is
                self.settings[self.path] = setting
        return tree

    def _alias(self, obj: Object, adapter: Adapter) -> Alias:
        first, _ = self._places[id(obj)]
        if id(obj) in self._open and adapter.kind != "live" and not self._takes_objects:
            raise CaptureError(f"{format_path(self.path)}: a {type(obj).__name__} that contains itself.")
        self._note(obj, adapter)
        if self._notes_settings and adapter.kind != "live":
            self._note_settings_of(obj, first)
        return Alias(first)

    def _note_settings_of(self, obj: Object, path: Path) -> None:
        """A module's attribute that is a component too: its settings, where it was met first."""
        again = Walk(self._resolver)
        again._path, again._notes_settings = list(path[:-1]), True
        again.capture(obj, path[-1])
        self.settings |= again.settings

    def _note(self, obj: Object, adapter: Adapter) -> None:
        if adapter.kind == "live":
            self.lives.add(self._path[0])
        elif adapter.kind == "value" and not self._live_depth:
            self.values.add(self._path[0])
        if adapter.id not in PLAIN_ADAPTERS:
            self.made[tuple(self._path)] = adapter.id
        fidelity, reason = adapter.fidelity(obj)
        if fidelity != CLASSES[0]:  # the unusual case: this runs hundreds of times a save
            self.weaken(fidelity, f"{format_path(self.path)}: {reason}")

    def weaken(self, fidelity: str, reason: str) -> None:
        """Notes a class that the component at hand cannot be better than, and why."""
        weakest, _ = self.weakest.get(self._path[0], (CLASSES[0], ""))
        if CLASSES.index(fidelity) > CLASSES.index(weakest):
            self.weakest[self._path[0]] = (fidelity, reason)

    def _within(self, obj: Object, adapter: Adapter, do: Callable[[], Any]) -> Any:
        around = self._enter(obj, adapter)
        try:
            return do()
        finally:
            self._leave(obj, adapter, around)

    def _enter(self, obj: Object, adapter: Adapter) -> tuple[bool, bool]:
        """Goes into an object; returns what held around it, for `_leave`."""
        around = self._notes_settings, self._takes_objects
        self._takes_objects |= getattr(adapter, "takes_objects", False)
        if adapter.kind == "live":
            self._live_depth += 1
            self._notes_settings = getattr(adapter, "holds_settings", False)
        self._open.add(id(obj))
        return around

    def _leave(self, obj: Object, adapter: Adapter, around: tuple[bool, bool]) -> None:
        self._open.discard(id(obj))
        self._live_depth -= adapter.kind == "live"
        self._notes_settings, self._takes_objects = around

    def _check(self, obj: Object, tree: Tree) -> list[Finding]:
        adapter = self._resolve(obj)
        if adapter.kind == "live":
            sharing = self._check_sharing(obj, tree)
            if sharing or isinstance(tree, Alias):
                return sharing
            self._places[id(obj)] = (self.path, obj)
        elif isinstance(tree, Alias):
            return []
        self._by_path[self.path] = obj
        return self._within(obj, adapter, lambda: adapter.check(obj, tree, self))

    def _check_sharing(self, obj: Object, tree: Tree) -> list[Finding]:
        seen_at = self._places[id(obj)][0] if id(obj) in self._places else None
        wanted = tree.path if isinstance(tree, Alias) else None
        if seen_at == wanted:
            return []
        describe: Callable[[Path | None], str] = lambda at: (  # noqa: E731
            f"the same object as {format_path(at)}" if at else "an object of its own"
        )
        return [self.finding(describe(wanted), describe(seen_at), "Share objects as the run did.")]

    def spoke(self, obj: Object) -> None:
        """Notes that the object at this place took its state by itself, so that what it holds now is its own affair."""
        self._speakers.append((self.path, obj))

    def _shared(self, path: Path) -> Object:
        """What stands at `path` now; below an object that took its state by itself, what it holds afterwards."""
        for speaker, obj in self._speakers:
            if path[: len(speaker)] == speaker and path != speaker:
                again = Walk(self._resolver)
                again._path = list(speaker[:-1])
                again.capture(obj, speaker[-1])
                return again._by_path.get(path, self._by_path[path])
        found = self._by_path[path]
        return found.component if isinstance(found, Omitted) else found

    def _restore(self, obj: Object, tree: Tree) -> Object:
        if isinstance(tree, Alias):
            return self._shared(tree.path)
        adapter = self._resolve(obj)
        if adapter.kind == "live":
            self._by_path[self.path] = obj
        if adapter.is_rng:
            # Now, for a `load_state_dict` may copy it; and last of all, for later ones may draw from it.
            path = self.path
            self.postponed.append(lambda: self._restore_late(obj, tree, path, adapter))
        restored = self._within(obj, adapter, lambda: adapter.restore(obj, tree, self))
        self._by_path[self.path] = restored
        return restored

    def _restore_late(self, obj: Object, tree: Tree, path: Path, adapter: Adapter) -> None:
        before, self._path = self._path, list(path)
        adapter.restore(obj, tree, self)
        self._path = before
