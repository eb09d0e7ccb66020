"""The examples of docs/format.md are what perdure writes today, the worked one byte for byte; its recipe works."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest
import xxhash
from flax import nnx
from safetensors.numpy import load_file

import perdure
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


def block(language: str, heading: str) -> str:
    """The only code block of this language below a heading of the document."""
    section = DOCUMENT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert len(found) == 1
    return found[0]


def fields(heading: str) -> list[str]:
    """The names in the first column of the tables below a heading."""
    section = DOCUMENT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)
    return sorted(name for row in rows for name in re.findall(r"`(\w+)`", row))


def test_the_manifest_of_the_example(tmp_path: Path):
    """The manifest is shown with line breaks; without them it is the file."""
    data = (write_example(tmp_path) / "MANIFEST.json").read_bytes()

    shown = json.loads(block("json", "A worked example"))
    assert shown == json.loads(data)
    assert json.dumps(shown, sort_keys=True, separators=(",", ":")).encode() + b"\n" == data


def test_the_bytes_of_the_tensor_file(tmp_path: Path):
    """The hexadecimal dump is the file."""
    data = (write_example(tmp_path) / "agent.safetensors").read_bytes()

    assert block("hexdump", "A worked example") == hex_dump(data) + "\n"


def test_the_recipe_for_a_recovery_by_hand(tmp_path: Path):
    """The document's Python block reads the example with stock tools alone."""
    directory = write_example(tmp_path)
    namespace: dict[str, object] = {"directory": directory}

    exec(compile(block("python", "Recovery by hand"), "docs/format.md", "exec"), namespace)

    assert namespace["weights"].tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]  # pyright: ignore[reportAttributeAccessIssue]
    assert load_file(directory / "agent.safetensors").keys() == {"w"}
    assert xxhash.xxh3_128_hexdigest((directory / "agent.safetensors").read_bytes()) in DOCUMENT


def train(path: Path, *, total: int, until: int) -> None:
    """One attempt at the run whose contract the document shows."""
    with perdure.Run(
        path,
        config={"ppo": {"learning_rate": 3e-4, "clip": 0.2}, "total": total, "seed": 1, "track": False},
        free=["track"],
        contract={"env": {"id": "CartPole-v1"}},
        horizon="total",
        schedules="restretch",
    ) as run:
        s = run.restore(dropout=nnx.Dropout(0.1), tx=optax.scale(-3e-4), rate=3e-4)
        run.finish(env_steps=until, tx=s.tx, rate=s.rate)


@pytest.fixture
def changed_total(global_generators: None, tmp_path: Path) -> dict[str, Any]:
    """The last manifest of that run."""
    train(tmp_path / "run", total=1200, until=600)
    train(tmp_path / "run", total=2000, until=700)
    return json.loads((tmp_path / "run" / "checkpoints" / "step_0000000700" / "MANIFEST.json").read_bytes())


@pytest.mark.jax
def test_the_contract_on_disk(changed_total: dict[str, Any]):
    """With every section that a contract can have but the user's own."""
    assert changed_total["contract"] == json.loads(block("json", "The contract"))


@pytest.mark.jax
def test_the_facts_on_disk(changed_total: dict[str, Any]):
    """Digest and version aside."""
    facts = changed_total["components"]["tx"]["facts"]
    shown = dict(re.split(r"  +", line, maxsplit=1) for line in block("facts", "Facts").splitlines())

    facts["traced"] = re.sub(r"^xxh3_128:[0-9a-f]{32} under jax [\d.]+$", "DIGEST under jax VERSION", facts["traced"])
    assert {path or "(empty)": text for path, text in facts.items()} == shown


@pytest.mark.jax
def test_every_field_of_manifest_and_record_is_documented(changed_total: dict[str, Any], tmp_path: Path):
    """And none that is not there."""
    record = json.loads((tmp_path / "run" / "run.json").read_bytes())
    component = next(iter(changed_total["components"].values()))

    assert fields("The manifest") == sorted([*changed_total, *component])
    assert fields("run.json") == sorted(record)
