"""Files that somebody made or planted to do harm: links, pipes, sizes, pickles; typed errors, and nothing is run."""

import os
import pickle
import resource
import shutil
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.format.hostile_setup import files

import perdure
from perdure.checkpoint.opening import open_checkpoint
from perdure.cli.main import main
from perdure.errors import DamagedError, PerdureError
from perdure.store.local import LocalStore


def on_disk(tmp_path: Path) -> tuple[LocalStore, Path]:
    checkpoint = tmp_path / "checkpoints" / "c"
    checkpoint.mkdir(parents=True)
    for name, content in files().items():
        (checkpoint / name).write_bytes(content)
    return LocalStore(tmp_path / "checkpoints", tmp_path / "damaged"), checkpoint


@pytest.mark.parametrize("file", ["MANIFEST.json", "weights.safetensors"])
@pytest.mark.parametrize("kind", ["symlink to its double", "symlink to nowhere", "directory", "pipe", "socket"])
def test_what_is_no_regular_file_is_no_file_of_a_checkpoint(tmp_path: Path, file: str, kind: str) -> None:
    """Neither followed, nor waited for."""
    store, checkpoint = on_disk(tmp_path)
    path = checkpoint / file
    path.rename(tmp_path / "double")
    match kind:
        case "symlink to its double":
            path.symlink_to(tmp_path / "double")
        case "symlink to nowhere":
            path.symlink_to(tmp_path / "nowhere")
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case _:
            os.mknod(path, stat.S_IFSOCK | 0o600)

    with pytest.raises(DamagedError, match=file.replace(".", r"\.")):
        open_checkpoint(store, "c")


def test_a_link_to_a_checkpoint_is_no_checkpoint_of_a_run(tmp_path: Path) -> None:
    store, checkpoint = on_disk(tmp_path)
    (tmp_path / "checkpoints" / "step_0000000007").symlink_to(checkpoint)

    assert store.names() == ["c"]


SPARSE = """
import sys, resource
from pathlib import Path
import perdure
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
try:
    perdure.read(Path(sys.argv[1]))
except perdure.DamagedError as error:
    print(error)
"""


def test_a_file_that_only_looks_large_is_not_read(tmp_path: Path) -> None:
    """A sparse file of 64 GiB under a limit of 3 GiB of memory, as tensor file and as manifest."""
    _, checkpoint = on_disk(tmp_path)
    for file, told in (
        ("weights.safetensors", "were written, found"),
        ("MANIFEST.json", "more than any that perdure writes"),
    ):
        with (checkpoint / file).open("r+b") as sparse:
            sparse.truncate(64 << 30)
        result = subprocess.run(
            [sys.executable, "-c", SPARSE, str(checkpoint)], capture_output=True, text=True, check=False
        )
        assert told in result.stdout, result.stderr
    assert resource.getrlimit(resource.RLIMIT_AS)[0] != 3 << 30


class Payload:
    """Unpickled, it makes a file."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple:
        return (Path.touch, (self._marker,))


def test_a_planted_pickle_never_runs(tmp_path: Path) -> None:
    """In the place of each file of a run and beside them: read, load, resume and the tool refuse or ignore it."""
    marker = tmp_path / "ran"
    planted = pickle.dumps(Payload(marker))
    pickle.loads(planted)
    assert marker.exists()
    marker.unlink()

    def train(path: Path, until: int) -> None:
        with perdure.Run(path, every=perdure.Every(updates=1), background=False) as run:
            value = run.restore(value=np.zeros(3)).value
            for step in range(run.env_steps + 1, until + 1):
                run.boundary(env_steps=step, value=value + step, metrics={"x": step})

    train(tmp_path / "first", 2)
    inside = [path.relative_to(tmp_path / "first") for path in (tmp_path / "first").rglob("*") if path.is_file()]
    beside = [
        "metadata.pkl",
        "checkpoints/x.pkl",
        "checkpoints/step_0000000002/data.pickle",
        "checkpoints/step_0000000009",
    ]
    for at, name in enumerate([*map(str, inside), *beside]):
        run = Path(shutil.copytree(tmp_path / "first", tmp_path / str(at)))
        (run / name).write_bytes(planted)
        for verb in ("show", "verify", "diff", "ls"):
            main([verb, str(run), *([str(tmp_path / "first")] if verb == "diff" else [])])
        for checkpoint in (run / "checkpoints").iterdir():
            with suppress(PerdureError):
                perdure.read(checkpoint)
        with suppress(PerdureError):
            train(run, 3)
        assert not marker.exists(), name
