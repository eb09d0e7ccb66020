"""The worked example of docs/format.md is what perdure writes today, byte for byte, and its recipe works."""

import json
import re
from pathlib import Path

import numpy as np
import xxhash
from safetensors.numpy import load_file

from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, capture
from perdure.checkpoint.save import About, save
from perdure.store.local import LocalStore

DOCUMENT = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")


def write_example(directory: Path) -> Path:
    """The checkpoint that the document shows."""
    weights = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)
    state = {"agent": {"w": weights, "same": weights, "lr": 0.5, "best": float("nan")}, "steps": 2**60}
    snapshot = capture(state, Resolver(), Counters(64, 4, 4)).snapshot
    save(
        LocalStore(directory, directory / "damaged"),
        "example",
        snapshot,
        About(created="2026-11-30T00:00:00.000+00:00"),
    )
    return directory / "example"


def hex_dump(data: bytes) -> str:
    """Sixteen bytes a line: offset, hexadecimal, and what is printable."""
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<47}  {text}")
    return "\n".join(lines)


def block(language: str) -> str:
    """The document's only code block of this language."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE)
    assert len(found) == 1
    return found[0]


def test_the_manifest_of_the_example(tmp_path: Path):
    """The manifest is shown with line breaks; without them it is the file."""
    data = (write_example(tmp_path) / "MANIFEST.json").read_bytes()

    assert json.loads(block("json")) == json.loads(data)
    assert json.dumps(json.loads(block("json")), sort_keys=True, separators=(",", ":")).encode() + b"\n" == data


def test_the_bytes_of_the_tensor_file(tmp_path: Path):
    """The hexadecimal dump is the file."""
    data = (write_example(tmp_path) / "agent.safetensors").read_bytes()

    assert block("hexdump") == hex_dump(data) + "\n"


def test_the_recipe_for_a_recovery_by_hand(tmp_path: Path):
    """The document's Python block reads the example with stock tools alone."""
    directory = write_example(tmp_path)
    namespace: dict[str, object] = {"directory": directory}

    exec(compile(block("python"), "docs/format.md", "exec"), namespace)

    assert namespace["weights"].tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]  # pyright: ignore[reportAttributeAccessIssue]
    assert load_file(directory / "agent.safetensors").keys() == {"w"}
    assert xxhash.xxh3_128_hexdigest((directory / "agent.safetensors").read_bytes()) in DOCUMENT
