"""A coverage-guided fuzzer of the readers: whatever a checkpoint's files hold, only typed errors come out.

    python tests/format/fuzz_checkpoint.py CORPUS [options of libFuzzer]

Inputs are manifests. One that parses is signed anew, so that the fuzzer gets past the digest.
"""

import json
import sys
from pathlib import Path

import atheris

INSTRUMENTED = ["perdure.format", "perdure.checkpoint.opening", "perdure.tree"]

with atheris.instrument_imports(include=INSTRUMENTED):  # pyright: ignore[reportAttributeAccessIssue]
    from perdure.checkpoint.opening import open_checkpoint
    from perdure.errors import PerdureError
    from perdure.format import canonical
    from perdure.format.digests import digest_of
    from perdure.format.manifest import FILE_NAME
    from perdure.store.memory import MemoryStore

GOLDEN = Path(__file__).parents[1] / "golden" / "v0" / "checkpoint"
FILES = {path.name: path.read_bytes() for path in GOLDEN.iterdir()}


def signed(data: bytes) -> bytes:
    """The document with a digest that fits, if it is one."""
    try:
        document = json.loads(data)
        if not isinstance(document, dict):
            return data
        document.pop("digest", None)
        return canonical.encode({**document, "digest": digest_of(canonical.encode(document))})
    except (ValueError, RecursionError):
        return data


def read(data: bytes) -> None:
    """Opens the golden checkpoint with this manifest in place of its own; anything but a typed error is a finding."""
    store = MemoryStore()
    for manifest in (data, signed(data)):
        store.entries["checkpoint"] = {**FILES, FILE_NAME: manifest}
        try:
            open_checkpoint(store, "checkpoint")
        except PerdureError:
            continue


def main() -> None:
    """Fuzzes from the golden manifest."""
    corpus = Path(sys.argv[1])
    corpus.mkdir(parents=True, exist_ok=True)
    (corpus / "golden").write_bytes(FILES[FILE_NAME])
    atheris.Setup(sys.argv, read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
