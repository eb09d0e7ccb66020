"""The blocks of docs/convert.md run on a real checkpoint, and what it shows is what perdure says.

`PERDURE_WRITE_DOCS=1 python -m pytest tests/docs` writes the shown outputs anew.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.docs.blocks import ROOT, assert_shown, execute

import perdure
from perdure.tree.leaves import leaves

pytestmark = pytest.mark.jax

DOCUMENT = "docs/convert.md"


def networks_like(tree: Any, name: str = "") -> Any:
    """Modules and variables of zeros that bear the names of a tree."""
    from flax import nnx
    from jax import numpy, random

    if not isinstance(tree, dict):
        return nnx.RngKey(random.key(0), tag="default") if name == "key" else nnx.Param(numpy.zeros_like(tree))
    parts = {key: networks_like(child, key) for key, child in tree.items()}
    return nnx.List(parts[at] for at in range(len(parts))) if 0 in parts else nnx.Dict(parts)


def bits_of(networks: Any) -> list[tuple[str, bytes]]:
    import jax
    from flax import nnx

    values = [(path, variable.get_value()) for path, variable in nnx.to_flat_state(nnx.state(networks))]
    keys = {path for path, value in values if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)}
    found = [(path, jax.random.key_data(value) if path in keys else value) for path, value in values]
    return sorted(("/".join(map(str, path)), np.asarray(value).tobytes()) for path, value in found)


def test_the_document_s_code_runs_and_its_outputs_are_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.copytree(ROOT / "tests" / "data" / "nnx_ppo" / "mlp", tmp_path / "old")
    monkeypatch.chdir(tmp_path)
    document = execute(DOCUMENT, lambda output: output.replace(f"{tmp_path}/", ""))

    assert_shown(DOCUMENT, document.real)

    take: Any = document.namespace["take"]
    tree = perdure.read("imported")["networks"]
    networks = networks_like(tree)
    before = bits_of(networks)
    take(networks, "imported")
    saved = sorted(("/".join(map(str, path)), np.asarray(leaf).tobytes()) for path, leaf in leaves(tree))
    assert bits_of(networks) == saved != before
