"""A reader of the pickle format that runs nothing: calls are kept as inert records, and no name is ever resolved.

The format is a program for a stack machine. This machine knows the opcodes that build containers and plain values, and
the four that would call or import something (`STACK_GLOBAL`, `GLOBAL`, `REDUCE`, `NEWOBJ`) or hand a state over
(`BUILD`): those make a `Name` or a `Record` and do nothing else. Every other opcode is an error, but for two that a
`Dialect` may allow. What records mean is said elsewhere, by tables that perdure owns (`pickled_arrays.py`,
`plain_trees.py`, `torch_trees.py`).
"""

import pickletools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from perdure.errors import DamagedError
from perdure.interop.pickled_values import NOTHING, Name, OddKey, PersistentId, Record
from perdure.interop.windows import Window

MAX_OPCODES = 5_000_000
"""The most steps of one program. An opcode of one byte may cost some 200 bytes of memory, so this bounds both."""

MAX_INTEGER_BYTES = 256
"""The longest integer; Python writes longer ones as text in quadratic time."""

PROTOCOLS = range(2, 6)
"""Versions of the pickle format that are read. Older ones are text with other opcodes; nothing writes them any more."""

_WORDS = re.compile(r"[\w.<>]{1,200}")
"""What names of modules and classes are made of: nothing that could play tricks on a terminal."""


@dataclass(frozen=True)
class Dialect:
    """What the pickles of a library may hold."""

    writer: str
    """Who writes them, for messages."""
    is_open: bool = False
    """Persistent ids, keys of any kind, and calls of what calls gave are kept as inert values. Else they are errors."""


@dataclass(frozen=True)
class Pickled:
    """What a pickle holds."""

    value: Any
    """Nested `dict`, `list`, `tuple`, plain values, `Name`, `Record`, `PersistentId`; keys are text, int, `OddKey`."""
    persistent: list[PersistentId]
    """Every persistent id in it, in its order."""


NNX_PPO = Dialect("nnx-ppo")


class _Refused(ValueError):
    """The program does what this machine does not."""


def read_pickle(data: bytes, place: str, dialect: Dialect = NNX_PPO) -> Any:
    """Reads a pickle without running it.

    Args:
        data: the file's content; lengths in it are compared with what is there before anything is made.
        place: the file, for messages.
        dialect: what it may hold.

    Returns:
        Nested `dict`, `list`, `tuple`, plain values, `Name` and `Record`. Objects may be shared, and may contain
        themselves: whoever walks them bounds the depth and counts.

    Raises:
        DamagedError: it is cut, uses an opcode that is not known here, or goes beyond a limit.
    """
    return read_next(Window(memoryview(data)), place, dialect).value


def read_next(file: Window, place: str, dialect: Dialect) -> Pickled:
    """Reads the pickle that begins at the file's position, and leaves the position behind it.

    Raises:
        DamagedError: as `read_pickle`.
    """
    position = 0
    machine = _Machine(dialect)
    try:
        for at, name, argument in _opcodes(file):
            position = at
            machine.step(name, argument)
        return Pickled(machine.result(), machine.persistent)
    except ValueError as error:
        raise DamagedError(
            f"{place}: byte {position}: {error}. perdure reads pickles of plain data without running them; take an "
            f"undamaged copy of the file as {dialect.writer} wrote it."
        ) from error


def _opcodes(file: Window) -> Iterator[tuple[int, str, Any]]:
    """Position, name and argument of each opcode. `Window` cuts every length to what is there."""
    source: Any = file  # it has `read`, `readline` and `tell`, which is all that `genops` asks for
    for count, (opcode, argument, position) in enumerate(pickletools.genops(source)):
        if count >= MAX_OPCODES:
            raise _Refused(f"more than {MAX_OPCODES:,} opcodes")
        yield position or 0, opcode.name, argument


class _Machine:
    """The stack, the marks in it, and the memo."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.persistent: list[PersistentId] = []
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._result: Any = NOTHING

    def step(self, opcode: str, argument: Any) -> None:
        """Does one opcode."""
        if opcode in _CONSTANTS:
            self._push(_CONSTANTS[opcode])
        elif opcode in _LITERALS:
            self._push(_checked_literal(argument))
        elif opcode in _STEPS:
            _STEPS[opcode](self, argument)
        elif self._dialect.is_open and opcode in _OPEN_STEPS:
            _OPEN_STEPS[opcode](self, argument)
        else:
            raise _Refused(f"the opcode {opcode} is not read")

    def result(self) -> Any:
        """What stands alone on the stack at the end."""
        if self._result is NOTHING:
            raise _Refused("it ends without a value")
        return self._result

    def protocol(self, version: int) -> None:
        if version not in PROTOCOLS:
            raise _Refused(f"pickle protocol {version}, not {PROTOCOLS.start} to {PROTOCOLS.stop - 1}")

    def skip(self, _: Any) -> None:
        """Frames tell unpicklers how far to read ahead."""

    def stop(self, _: Any) -> None:
        self._result = self._pop()
        if self._stack or self._marks:
            raise _Refused("it ends with values left on the stack")

    def mark(self, _: Any) -> None:
        self._marks.append(len(self._stack))

    def pop(self, _: Any) -> None:
        self._pop()

    def pop_mark(self, _: Any) -> None:
        self._since_mark()

    def duplicate(self, _: Any) -> None:
        self._push(self._top())

    def memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self._top()

    def put(self, index: int) -> None:
        self._memo[index] = self._top()

    def get(self, index: int) -> None:
        if index not in self._memo:
            raise _Refused(f"the memo has no entry {index}")
        self._push(self._memo[index])

    def empty_dict(self, _: Any) -> None:
        self._push({})

    def empty_list(self, _: Any) -> None:
        self._push([])

    def empty_set(self, _: Any) -> None:
        self._push(Record(Name("builtins", "set"), (), is_class=False))

    def frozen_set(self, _: Any) -> None:
        items = self._since_mark()
        self._push(Record(Name("builtins", "frozenset"), (), is_class=False, items=items))

    def empty_tuple(self, _: Any) -> None:
        self._push(())

    def tuple_1(self, _: Any) -> None:
        self._push((self._pop(),))

    def tuple_2(self, _: Any) -> None:
        second, first = self._pop(), self._pop()
        self._push((first, second))

    def tuple_3(self, _: Any) -> None:
        third, second, first = self._pop(), self._pop(), self._pop()
        self._push((first, second, third))

    def tuple_(self, _: Any) -> None:
        self._push(tuple(self._since_mark()))

    def append(self, _: Any) -> None:
        self._extend([self._pop()])

    def appends(self, _: Any) -> None:
        self._extend(self._since_mark())

    def set_item(self, _: Any) -> None:
        value, key = self._pop(), self._pop()
        self._update([key, value])

    def set_items(self, _: Any) -> None:
        self._update(self._since_mark())

    def global_(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._push(_name(module, name))

    def stack_global(self, _: Any) -> None:
        name, module = self._pop(), self._pop()
        self._push(_name(module, name))

    def reduce(self, _: Any) -> None:
        self._call(is_class=False)

    def new_object(self, _: Any) -> None:
        self._call(is_class=True)

    def build(self, _: Any) -> None:
        state, record = self._pop(), self._top()
        if not isinstance(record, Record):
            raise _Refused(f"BUILD sets the state of a {type(record).__name__}")
        if record.state is not NOTHING:
            raise _Refused(f"BUILD sets the state of a {record.made_by} twice")
        record.state = state

    def new_object_ex(self, _: Any) -> None:
        entries, arguments = self._pop(), self._pop()
        self._push(arguments)
        self._call(is_class=True)
        self._top().entries["keyword arguments"] = entries

    def persistent_id(self, _: Any) -> None:
        value = self._pop()
        match value:
            case ("module", Name() as name, *_):
                self._push(name)  # torch before 1.6 wrote classes of modules so, with their source beside them
                return
        self.persistent.append(PersistentId(value))
        self._push(self.persistent[-1])

    def _call(self, *, is_class: bool) -> None:
        arguments, made_by = self._pop(), self._pop()
        if isinstance(made_by, Record) and self._dialect.is_open:
            made_by = Name(made_by.made_by.module, f"{made_by.made_by.name.removesuffix('(…)')}(…)")
        if not isinstance(made_by, Name) or not isinstance(arguments, tuple):
            kinds = f"{type(made_by).__name__} with {type(arguments).__name__}"
            raise _Refused(f"a call of a {kinds}, not of a name with a tuple")
        self._push(Record(made_by, arguments, is_class))

    def _extend(self, values: list[Any]) -> None:
        match self._top():
            case list() as target:
                target.extend(values)
            case Record() as record:
                record.items.extend(values)
            case other:
                raise _Refused(f"items for a {type(other).__name__}")

    def _update(self, flat: list[Any]) -> None:
        if len(flat) % 2:
            raise _Refused("a key without a value")
        match self._top():
            case dict() as target:
                pass
            case Record(entries=target):
                pass
            case other:
                raise _Refused(f"entries for a {type(other).__name__}")
        for key, value in zip(flat[::2], flat[1::2], strict=True):
            # Hashing anything else could recurse as deep as the file likes.
            if type(key) is not str and type(key) is not int:
                if not self._dialect.is_open:
                    raise _Refused(f"a key that is a {type(key).__name__}, neither a str nor an int")
                key = OddKey(key)
            target[key] = value

    def _floor(self) -> int:
        return self._marks[-1] if self._marks else 0

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _top(self) -> Any:
        if len(self._stack) <= self._floor():
            raise _Refused("the stack is empty")
        return self._stack[-1]

    def _pop(self) -> Any:
        value = self._top()
        self._stack.pop()
        return value

    def _since_mark(self) -> list[Any]:
        if not self._marks:
            raise _Refused("there is no mark on the stack")
        start = self._marks.pop()
        values = self._stack[start:]
        del self._stack[start:]
        return values


def _checked_literal(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > 8 * MAX_INTEGER_BYTES:
        raise _Refused(f"an integer of more than {MAX_INTEGER_BYTES} bytes")
    if isinstance(value, str):
        value.encode()  # a lone surrogate is no text; the UnicodeEncodeError is a ValueError
    return bytes(value) if isinstance(value, bytearray) else value


def _name(module: Any, name: Any) -> Name:
    for word in (module, name):
        if not isinstance(word, str) or not _WORDS.fullmatch(word):
            shown = ascii(word[:40]) if isinstance(word, str) else f"a {type(word).__name__}"
            raise _Refused(f"{shown} where the name of a module or class belongs")
    return Name(module, name)


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}

_LITERALS = frozenset(
    {"BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
    | {"SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"}
)

_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": _Machine.protocol,
    "FRAME": _Machine.skip,
    "STOP": _Machine.stop,
    "MARK": _Machine.mark,
    "POP": _Machine.pop,
    "POP_MARK": _Machine.pop_mark,
    "DUP": _Machine.duplicate,
    "MEMOIZE": _Machine.memoize,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "EMPTY_DICT": _Machine.empty_dict,
    "EMPTY_LIST": _Machine.empty_list,
    "EMPTY_SET": _Machine.empty_set,
    "FROZENSET": _Machine.frozen_set,
    "EMPTY_TUPLE": _Machine.empty_tuple,
    "TUPLE1": _Machine.tuple_1,
    "TUPLE2": _Machine.tuple_2,
    "TUPLE3": _Machine.tuple_3,
    "TUPLE": _Machine.tuple_,
    "APPEND": _Machine.append,
    "APPENDS": _Machine.appends,
    "ADDITEMS": _Machine.appends,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "GLOBAL": _Machine.global_,
    "STACK_GLOBAL": _Machine.stack_global,
    "REDUCE": _Machine.reduce,
    "NEWOBJ": _Machine.new_object,
    "BUILD": _Machine.build,
}

_OPEN_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "BINPERSID": _Machine.persistent_id,
    "NEWOBJ_EX": _Machine.new_object_ex,
}
