r"""How values of metric rows are spelled in a CSV file: each in one way, from which the very value comes back.

| value | cell |
|---|---|
| no such metric in this row | empty |
| integer | `12` (with more than 4,000 digits: `0x…`) |
| float | as Python's `repr`: `0.1`, `1e-05`, `-0.0`, `inf`, `-inf`; NaN: `nan`, `-nan`, else `nan:7ff0000000000001` |
| boolean, None | `True`, `False`, `None` |
| list | JSON of its parts' cells: `["1", "[\"0.5\", \"None\"]"]` |
| text | as it is; in JSON's quotes if it could be taken for one of the above: `"nan"` |
"""

import json
import math
import re
import struct
from typing import Any

_WORDS = {"True": True, "False": False, "None": None}
_INT = re.compile(r"-?\d+|-?0x[0-9a-f]+")
_FLOAT = re.compile(r"-?(?:\d+\.\d+(?:e[-+]\d+)?|\d+e[-+]\d+|inf)")
_NAN = re.compile(r"-?nan|nan:[0-9a-f]{16}")
_QUIET, _NEGATIVE = "7ff8000000000000", "fff8000000000000"
_MOST_BITS = 13_000
"""About 4,000 digits; Python refuses to spell much longer integers in decimals."""


def encode_cell(value: Any) -> str:
    """The cell of a value."""
    match value:
        case bool() | None:
            return str(value)
        case int():
            return str(value) if value.bit_length() < _MOST_BITS else hex(value)
        case float():
            return repr(value) if not math.isnan(value) else _spell_nan(value)
        case list():
            return json.dumps([encode_cell(part) for part in value], ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False) if _is_ambiguous(value) else value


def decode_cell(cell: str) -> Any:
    """The value of a cell that `encode_cell` wrote; an empty one is no value and not for this function."""
    if cell in _WORDS:
        return _WORDS[cell]
    if _INT.fullmatch(cell):
        return int(cell, 16 if "x" in cell else 10)
    if _FLOAT.fullmatch(cell):
        return float(cell)
    if _NAN.fullmatch(cell):
        bits = {"nan": _QUIET, "-nan": _NEGATIVE}.get(cell, cell[4:])
        return struct.unpack(">d", bytes.fromhex(bits))[0]
    if cell.startswith("["):
        return [decode_cell(part) for part in json.loads(cell)]
    return json.loads(cell) if cell.startswith('"') else cell


def _spell_nan(value: float) -> str:
    bits = struct.pack(">d", value).hex()
    return {_QUIET: "nan", _NEGATIVE: "-nan"}.get(bits, f"nan:{bits}")


def _is_ambiguous(text: str) -> bool:
    """Whether a cell with just this text would be read as something else, or be changed by CSV's own rules."""
    looks = text in _WORDS or _INT.fullmatch(text) or _FLOAT.fullmatch(text) or _NAN.fullmatch(text)
    return bool(looks) or not text or text[0] in '["' or not text.isprintable()
