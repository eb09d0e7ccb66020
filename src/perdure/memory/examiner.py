"""The examiner: looks at a script's memory where a turn of its loop begins, as `perdure audit` ordered from outside.

A turn's beginning is the one point that a straight and a resumed process have in common: after the boundary, and after
all that either of them does before it goes on. Python's line tracing finds it; it is on from the boundary (or the
restore) to there, and off at all other times.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from perdure.adapters.resolve import Resolver
from perdure.adapters.walk import Walk
from perdure.checkpoint.capture import in_order
from perdure.checkpoint.oneshot import read_snapshot, save_snapshot_at
from perdure.errors import CaptureError, PerdureError
from perdure.memory.frames import Loop, callers, looked_at, loop_around, users_modules
from perdure.memory.look import Look, Roots, look
from perdure.memory.slots import Target, put_saved
from perdure.memory.values import kind_of, memory_of, packed
from perdure.tree.leaves import PLAIN_TYPES


def held_by(objects: Mapping[str, Any], resolver: Resolver) -> dict[int, Any]:
    """The objects that a capture of these components meets, by identity."""
    walk = Walk(resolver)
    for name in in_order(objects, resolver):
        walk.capture(objects[name], name)
    return walk.met | {id(obj): obj for obj in objects.values() if type(obj) not in PLAIN_TYPES}


class Examiner:
    """Carries out the orders in a file, in one run of one process, and appends what it found to another file."""

    def __init__(self, orders: Path) -> None:
        """Reads the orders (`perdure.proof.audit_processes` writes them)."""
        self._orders: dict[str, Any] = json.loads(orders.read_text("utf-8"))
        told = self._orders.get("loop")
        self._loop = None if told is None else Loop(**told)
        self._resolver = Resolver()
        self._without: dict[int, Any] = {}
        self._held: dict[int, Any] = {}
        self._live: Mapping[str, Any] = {}
        self._boundary = -1
        self._traced: list[FrameType] = []
        self._before: list[FrameType] = []

    def restored(self, objects: Mapping[str, Any], boundary: int, resolver: Resolver, told: object) -> None:
        """The run was restored; `told` is what its user was handed.

        Args:
            objects: the components.
            boundary: where the run goes on.
            resolver: the run's.
            told: what is not looked into, for it holds what components held when they were restored.
        """
        self._without[id(told)] = told
        if self._loop is not None:
            self._wait(objects, boundary, resolver)

    def passed(self, objects: Mapping[str, Any], boundary: int, resolver: Resolver) -> None:
        """The run passed a boundary."""
        look_at = self._orders["look_at"]
        if self._loop is None and look_at and boundary + 1 >= min(look_at):
            self._find_loop(boundary)
        if boundary not in look_at:
            return
        if self._loop is not None:
            self._wait(objects, boundary, resolver)
        elif boundary == self._orders.get("at"):
            self._write({"boundary": boundary, "loop": None})

    def _find_loop(self, boundary: int) -> None:
        """Two boundaries tell which loop it is: it is in a function that both were called from, directly or not."""
        frame = sys._getframe(2)
        if self._before or boundary == 1 == self._orders.get("at"):
            self._loop = loop_around(frame, self._before or None)
        self._before = list(callers(frame)) if self._loop is None else []

    def _wait(self, objects: Mapping[str, Any], boundary: int, resolver: Resolver) -> None:
        """Until the next turn begins; whatever has waited for another one gives up."""
        if boundary not in self._orders["look_at"] or (sys.gettrace() is not None and not self._traced):
            return
        if self._is_reported(boundary):  # of the script's first run, by another examiner
            return
        self._resolver, self._boundary, self._live = resolver, boundary, objects
        self._held = held_by(objects, resolver)
        assert self._loop is not None  # noqa: S101 - callers have looked
        self._traced = [frame for frame in callers(sys._getframe(1)) if self._loop.is_in(frame.f_code)]
        for frame in self._traced:
            frame.f_trace = self._line
        sys.settrace(self._call)

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        if self._loop is None or not self._loop.is_in(frame.f_code):
            return None
        self._traced.append(frame)
        return self._line

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event != "line" or self._loop is None or not self._loop.is_at(frame.f_lineno):
            return self._line
        sys.settrace(None)
        for each in self._traced:
            each.f_trace = None
        self._traced.clear()
        self._examine(frame)
        return None

    def _examine(self, frame: FrameType) -> None:
        live = {name: obj for name, obj in self._live.items() if kind_of(obj) is None and name != "process_rng"}
        roots = Roots(live, looked_at(frame), users_modules())
        found = look(roots, self._held, self._resolver, self._without)
        document = {"boundary": self._boundary, "loop": asdict(self._loop) if self._loop else None}
        seen = {path: asdict(each) for path, each in found.values.items()}
        document |= {"values": seen, "skipped": dict(found.skipped), "files": _files(roots)}
        if self._boundary == self._orders.get("at"):
            document |= self._copy(found) | self._put(found)
        self._held, self._live = {}, {}
        self._write(document)

    def _copy(self, found: Look) -> dict[str, Any]:
        """Saves the values that were asked for."""
        order = self._orders.get("copy")
        if order is None:
            return {}
        paths = order["paths"]
        values = {at: found.targets[path].value for at, path in enumerate(paths) if path in found.targets}
        snapshot, problems = packed(values, self._resolver)
        save_snapshot_at(order["to"], snapshot)
        return {"problems": {paths[at]: why for at, why in problems.items()}}

    def _put(self, found: Look) -> dict[str, Any]:
        """Puts the values of the straight run in the place of those here."""
        order = self._orders.get("put")
        if order is None:
            return {}
        snapshot, straight, problems = read_snapshot(order["from"]), order["straight"], {}
        for path, number in order["numbers"].items():
            try:
                target = found.targets.get(path) or _nothing()
                put_saved(target, snapshot, number, self._resolver, in_place=_agrees(path, target, found, straight))
            except (PerdureError, RuntimeError, ValueError, TypeError) as error:
                problems[path] = str(error)
        return {"problems": problems}

    def _is_reported(self, boundary: int) -> bool:
        report = Path(self._orders["report"])
        lines = report.read_text("utf-8").splitlines() if report.exists() else []
        return any(json.loads(line)["boundary"] == boundary for line in lines)

    def _write(self, document: Mapping[str, Any]) -> None:
        with Path(self._orders["report"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(document) + "\n")


def _files(roots: Roots) -> dict[str, str]:
    """The source file of each frame and module."""
    frames = {f"frame {name}": frame.f_code.co_filename for name, frame in roots.frames.items()}
    return frames | {f"module {name}": str(vars(module)["__file__"]) for name, module in roots.modules.items()}


def _nothing() -> Target:
    raise CaptureError("there is no such variable in the resumed process.")


def _agrees(path: str, target: Target, found: Look, straight: Mapping[str, str]) -> bool:
    """Whether all that share a memory here are other than in the straight run, and the same object holds one value.

    Else to change it in place would change a variable that was restored as it should be.
    """
    for other in found.sharing[memory_of(target.value)]:
        then, now = straight.get(other), found.values[other].digest
        is_same_object = found.targets[other].value is target.value
        if then is None or then == now or (is_same_object and then != straight.get(path)):
            return False
    return True
