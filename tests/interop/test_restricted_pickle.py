"""Whatever a pickle says, reading it runs nothing, imports nothing and allocates no more than the file could hold."""

import builtins
import os
import pickle
import random
import resource
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import DamagedError, PerdureError
from perdure.interop import restricted_pickle
from perdure.interop.losses import Losses
from perdure.interop.pickled_values import Name, Record
from perdure.interop.plain_trees import PlainTrees
from perdure.interop.restricted_pickle import read_pickle

FIXTURE = Path(__file__).parent.parent / "data" / "nnx_ppo" / "mlp" / "step_0000000480" / "metadata.pkl"


def program(*opcodes: bytes) -> bytes:
    return b"\x80\x04" + b"".join(opcodes) + b"."


def text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


def plain(data: bytes) -> tuple[Any, tuple[str, ...]]:
    losses = Losses()
    tree = PlainTrees(len(data), "file", losses).plain(read_pickle(data, "file"), ("root",))
    return tree, losses.lines()


SYSTEM = text("posix") + text("system") + b"\x93"
COMMAND = text("touch harmed") + b"\x85"


class Harm:
    """Pickled by a call of `os.system`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch harmed",)


class WithState:
    """Whose `__setstate__` a real unpickling calls."""

    def __init__(self) -> None:
        self.harm = Harm()

    def __setstate__(self, state: Any) -> None:
        raise AssertionError("called")


INERT = {
    "REDUCE of STACK_GLOBAL": program(SYSTEM, COMMAND, b"R"),
    "REDUCE of GLOBAL": program(b"cposix\nsystem\n", COMMAND, b"R"),
    "NEWOBJ": program(text("subprocess") + text("Popen") + b"\x93", COMMAND, b"\x81"),
    "BUILD": program(text("builtins") + text("object") + b"\x93)\x81}", text("__setstate__"), SYSTEM, b"sb"),
    "a name alone": program(SYSTEM),
    "a class with __reduce__": pickle.dumps({"deep": [Harm()]}, 4),
    "a class with __setstate__": pickle.dumps(WithState(), 4),
    "eval": program(text("builtins") + text("eval") + b"\x93", text("1/0") + b"\x85", b"R"),
    "a module that is nowhere": program(text("no_such_module") + text("Thing") + b"\x93)R"),
}


@pytest.mark.parametrize("data", INERT.values(), ids=INERT)
def test_calls_become_descriptions(data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)

    def refuse(*words: Any, **_: Any) -> Any:
        raise AssertionError(f"imports {words[0]}")

    monkeypatch.setattr(builtins, "__import__", refuse)
    _, losses = plain(data)
    monkeypatch.undo()

    assert losses
    assert set(sys.modules) == before
    assert list(tmp_path.iterdir()) == []


def test_what_a_call_becomes():
    tree, losses = plain(program(SYSTEM, COMMAND, b"R"))

    assert tree == {"made_by": "posix.system", "arguments": ("touch harmed",)}
    assert losses == ("root: posix.system became a mapping that describes how it is made.",)


REFUSED = {
    "INST": (b"\x80\x02(S'touch harmed'\niposix\nsystem\n.", "the opcode STRING is not read"),
    "INST alone": (b"\x80\x02(iposix\nsystem\n.", "the opcode INST is not read"),
    "OBJ": (program(b"(", SYSTEM, text("touch harmed"), b"o"), "the opcode OBJ is not read"),
    "NEWOBJ_EX": (program(SYSTEM, COMMAND, b"}\x92"), "the opcode NEWOBJ_EX is not read"),
    "EXT1": (program(b"\x82\x01"), "the opcode EXT1 is not read"),
    "EXT2": (program(b"\x83\x01\x00"), "the opcode EXT2 is not read"),
    "EXT4": (program(b"\x84\x01\x00\x00\x00"), "the opcode EXT4 is not read"),
    "PERSID": (b"\x80\x02Pid\n.", "the opcode PERSID is not read"),
    "BINPERSID": (program(b"NQ"), "the opcode BINPERSID is not read"),
    "NEXT_BUFFER": (b"\x80\x05\x97.", "the opcode NEXT_BUFFER is not read"),
    "protocol 0": (pickle.dumps([1], 0), "the opcode LIST is not read"),
    "protocol 6": (b"\x80\x06N.", "pickle protocol 6, not 2 to 5"),
    "an unknown opcode": (program(b"\xff"), "opcode b'\\xff' unknown"),
    "nothing": (b"", "pickle exhausted before seeing STOP"),
    "no value": (program(), "the stack is empty"),
    "two values": (program(b"NN"), "it ends with values left on the stack"),
    "an open mark": (program(b"(N"), "it ends with values left on the stack"),
    "a pop through a mark": (program(b"N(0"), "the stack is empty"),
    "no mark": (program(b"t"), "there is no mark on the stack"),
    "a memo entry that is not there": (program(b"h\x07"), "the memo has no entry 7"),
    "a call of a number": (program(b"K\x01)R"), "a call of a int with tuple, not of a name with a tuple"),
    "a call of a call": (program(SYSTEM, COMMAND, b"R)R"), "a call of a Record with tuple"),
    "a call without a tuple": (program(SYSTEM, b"NR"), "a call of a Name with NoneType"),
    "a state for a dict": (program(b"}}b"), "BUILD sets the state of a dict"),
    "a second state": (program(SYSTEM, b")R}b}b"), "BUILD sets the state of a posix.system twice"),
    "items for a number": (program(b"K\x01(Ne"), "items for a int"),
    "entries for a list": (program(b"]", text("a"), b"Ns"), "entries for a list"),
    "a key without a value": (program(b"}(", text("a"), b"u"), "a key without a value"),
    "a key that is a tuple": (program(b"})Ns"), "a key that is a tuple, neither a str nor an int"),
    "a key that is true": (program(b"}\x88Ns"), "a key that is a bool, neither a str nor an int"),
    "a name of a number": (program(b"K\x01", text("x"), b"\x93"), "a int where the name of a module or class"),
    "a name that colours": (program(text("os"), text("\x1b[31mred"), b"\x93"), "'\\x1b[31mred' where the name"),
    "no text": (program(b"\x8c\x03\xed\xa0\x80"), "surrogates not allowed"),
    "an integer of 1,000 bytes": (
        program(b"\x8b" + struct.pack("<i", 1000) + b"\x7f" * 1000),
        "of more than 256 bytes",
    ),
    "a negative length": (program(b"\x8b\xff\xff\xff\xff"), "long4"),
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_understood_is_an_error(data: bytes, message: str):
    with pytest.raises(DamagedError) as caught:
        read_pickle(data, "metadata.pkl")

    assert message in str(caught.value)
    assert str(caught.value).startswith("metadata.pkl: byte ")
    assert str(caught.value).endswith("take an undamaged copy of the file as nnx-ppo wrote it.")


HUGE = {
    "BINBYTES8": b"\x8e" + struct.pack("<Q", 1 << 62),
    "BINUNICODE8": b"\x8d" + struct.pack("<Q", 1 << 40),
    "BYTEARRAY8": b"\x96" + struct.pack("<Q", 1 << 40),
    "BINBYTES": b"B" + struct.pack("<I", (1 << 32) - 1),
    "LONG4": b"\x8b" + struct.pack("<i", (1 << 31) - 1),
    "FRAME": b"\x95" + struct.pack("<Q", 1 << 62),
}
MEGABYTE = 1 << 20

BOUNDED = """
import resource, sys
from perdure.errors import DamagedError
from perdure.interop.restricted_pickle import read_pickle
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
for data in {data!r}:
    try:
        read_pickle(data, "file")
    except DamagedError:
        continue
    sys.exit("read")
"""


def test_lengths_are_compared_with_what_is_there():
    """In a process that may not have more than 1 GiB."""
    data = [program(opcode) for opcode in HUGE.values()]
    limited = BOUNDED.format(data=data)
    result = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, check=False)

    assert (result.returncode, result.stderr) == (0, "")


def test_a_memo_index_costs_no_memory():
    data = program(b"Nr\xff\xff\xff\xff", b"0j\xff\xff\xff\xff")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    assert read_pickle(data, "file") is None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1024 * 100


def doubled(times: int, empty: bytes, close: bytes) -> bytes:
    """A list that holds the one before twice, and so on: `times` steps, 2**times leaves."""
    step = b"q\x000" + empty + b"(h\x00h\x00" + close
    return program(b"K\x01", *[step] * times)


@pytest.mark.parametrize(("empty", "close"), [(b"]", b"e"), (b"", b"t")], ids=["lists", "tuples"])
def test_what_unfolds_is_bounded(empty: bytes, close: bytes):
    data = doubled(50, empty, close)
    read_pickle(data, "file")

    with pytest.raises(DamagedError, match="the file unfolds to more than 100 times its size") as caught:
        plain(data)
    assert "nnx-ppo writes no such file; take an undamaged copy." in str(caught.value)


def test_a_long_text_that_stands_everywhere_is_bounded():
    long = b"X" + struct.pack("<I", 1000) + b"a" * 1000 + b"q\x00"

    with pytest.raises(DamagedError, match="unfolds to more than 100 times"):
        plain(program(b"](", long, b"h\x00" * 500, b"e"))
    with pytest.raises(DamagedError, match="unfolds to more than 100 times"):
        plain(program(b"](}", long, b"Ns", *[b"}h\x00Ns"] * 1000, b"e"))


@pytest.mark.parametrize(
    "data",
    [
        program(b"]q\x00h\x00a"),
        program(b"}q\x00", text("me"), b"h\x00s"),
        program(text("a"), text("B"), b"\x93)\x81q\x00}", text("me"), b"h\x00sb"),
        program(b"]" * 100_000, b"a" * 99_999),
        program(b")", b"\x85" * 100_000),
    ],
    ids=["a list in itself", "a dict in itself", "a record in itself", "deep lists", "deep tuples"],
)
def test_depth_is_bounded(data: bytes):
    with pytest.raises(DamagedError, match="more than 60 containers inside one another, or one that contains itself"):
        plain(data)


def test_the_number_of_opcodes_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(restricted_pickle, "MAX_OPCODES", 100)

    with pytest.raises(DamagedError, match="more than 100 opcodes"):
        read_pickle(program(b"N0" * 100, b"N"), "file")


VALUES = [
    None, True, False, 0, -1, 255, 256, 65536, 2**31, -(2**63), 2**500, 0.5, float("inf"), "", "text ü", "x" * 70_000,
    b"", b"bytes", b"x" * 70_000, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1, [2, (3,)]], {}, {"a": {1: "b"}},
    bytes(300), {"long": list(range(3000))},
]  # fmt: skip


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_are_read_as_pickle_reads_them(protocol: int):
    values = [value for value in VALUES if protocol > 2 or not isinstance(value, bytes)]

    assert read_pickle(pickle.dumps(values, protocol), "file") == values
    assert pickle.loads(pickle.dumps(values, protocol)) == values


def test_sets_and_classes_are_records():
    read = read_pickle(pickle.dumps([{1}, frozenset({2}), WithState()], 4), "file")

    assert [type(record) for record in read] == [Record] * 3
    assert (read[0].made_by, read[0].items, read[1].items) == (Name("builtins", "set"), [1], [2])
    assert (read[2].made_by.name, read[2].is_class, list(read[2].state)) == ("WithState", True, ["harm"])


@pytest.mark.parametrize("seed", range(4))
def test_mutations_of_a_real_file_raise_typed_errors_or_nothing(seed: int, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole, generator = FIXTURE.read_bytes(), random.Random(seed)
    refused = 0
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(generator.randrange(1, 4)):
            data[generator.randrange(len(data))] = generator.randrange(256)
        cut = generator.choice([len(data), len(data), generator.randrange(len(data))])
        try:
            plain(bytes(data[:cut]))
        except PerdureError:
            refused += 1

    assert 100 < refused < 300
    assert list(tmp_path.iterdir()) == []
