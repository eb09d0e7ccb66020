"""Trainings of `torch_families.py` in another process, each in a child: to be killed, or to go on where they stood.

python -m tests.resume.torch_elsewhere kill DIRECTORY FAMILY...     kills DIRECTORY/FAMILY/killed after a boundary
python -m tests.resume.torch_elsewhere resume DIRECTORY FAMILY...   goes on with every run in DIRECTORY/FAMILY
"""

import argparse
import json
import multiprocessing
from collections.abc import Sequence
from pathlib import Path

import torch
from tests.resume.torch_families import FAMILIES, train_family


def kill(root: Path, name: str) -> None:
    """Trains until the process kills itself, after the last boundary at which the family is stopped."""
    train_family(root / name / "killed", name, kill_at_boundary=FAMILIES[name].stops[-1])


def resume(root: Path, name: str) -> None:
    """Trains every run of the family to its end."""
    for directory in sorted((root / name).iterdir()):
        train_family(directory, name)


def main(argv: Sequence[str] | None = None) -> None:
    """Writes the exit codes of the children, by family, to DIRECTORY/VERB.json."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("verb", choices=("kill", "resume"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("families", nargs="+", choices=FAMILIES)
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    context, codes = multiprocessing.get_context("fork"), {}
    for name in given.families:
        child = context.Process(target=kill if given.verb == "kill" else resume, args=(given.directory, name))
        child.start()
        child.join()
        codes[name] = child.exitcode
    (given.directory / f"{given.verb}.json").write_text(json.dumps(codes))


if __name__ == "__main__":
    main()
