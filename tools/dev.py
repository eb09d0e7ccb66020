"""The work behind `./dev`: make or reuse `.venv`, then hand over to one of its programs.

Standard library only: this file runs before anything is installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NoReturn

USAGE = """\
usage: ./dev demo [options of examples/demo.py]
       ./dev test [fast|slow] [pytest options]
       ./dev lint
       ./dev bench [NAME] [--repeats N]

Each verb first makes .venv from requirements.lock, or reuses it.

  demo        train, kill and resume CartPole, and compare with the run that was never stopped
  test        every test but those marked `slow`
  test fast   neither `slow` nor `full`
  test slow   everything; first adds requirements-envs.lock (brax, MuJoCo Playground) and requirements-buffers.lock
              (flashbax, TorchRL) to .venv, and makes .cache/other-jax from requirements-other-jax.lock, and
              .cache/gymnasium-0.29, -1.4 and .cache/wandb from theirs
  lint        ruff check, ruff format --check, pyright
  bench       one benchmark of benchmarks/, or all
"""

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".perdure-stamp"
ENVS_STAMP = VENV / ".perdure-envs-stamp"
BUFFERS_STAMP = VENV / ".perdure-buffers-stamp"
OTHER_JAX = CACHE / "other-jax"
OTHERS = ("gymnasium-0.29", "gymnasium-1.4", "wandb")
BENCHMARKS = ROOT / "benchmarks"
INCOMPLETE = "incomplete"
PIP = (str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input", "install")
MARKS = {"fast": "not slow and not full", "slow": "", "": "not slow"}
LINTERS = (
    ("ruff", "check"),
    ("ruff", "format", "--check"),
    ("pyright",),
)


def main(argv: Sequence[str]) -> int:
    """Run one verb; returns an exit code unless the process is handed over to another program."""
    verb, *rest = argv or [""]
    if verb in {"-h", "--help", "help"}:
        print(USAGE, end="")
        return 0
    verbs = {"demo": demo, "test": test, "lint": lint, "bench": bench}
    if verb not in verbs:
        print(f"./dev: unknown verb {verb!r}\n\n{USAGE}" if verb else USAGE, end="", file=sys.stderr)
        return 2
    try:
        prepare_venv()
    except subprocess.CalledProcessError as error:
        print(f"./dev: setting up .venv failed (exit code {error.returncode}), see above", file=sys.stderr)
        return 1
    os.chdir(ROOT)
    return verbs[verb](rest)


def demo(options: Sequence[str]) -> NoReturn:
    """Hand over to the demo."""
    hand_over("examples/demo.py", *options)


def test(options: Sequence[str]) -> int:
    """Hand over to pytest, whose exit code and closing line become ours; return only if the set-up fails.

    Later options win in pytest, so `-m`, `-n 0` or `--dist` given by the caller replace these.
    """
    tier = options[0] if options and options[0] in MARKS else ""
    rest = options[1:] if tier else options
    parts = (prepare_envs, prepare_other_jax, prepare_others)
    if tier == "slow" and not all(prepared("the slow tests", part) for part in parts):
        return 1
    marks = ("-m", MARKS[tier]) if MARKS[tier] else ()
    return hand_over("-m", "pytest", "-n", "2", "--dist", "loadfile", *marks, *rest)


def lint(options: Sequence[str]) -> int:
    """Run every linter, also after one has failed; returns the first exit code that is not 0."""
    if options:
        print(f"./dev: lint takes no options, got {' '.join(options)}\n\n{USAGE}", end="", file=sys.stderr)
        return 2
    quiet = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    codes: list[int] = []
    for linter in LINTERS:
        print(f"$ {' '.join(linter)}", flush=True)
        codes.append(subprocess.call([VENV / "bin" / linter[0], *linter[1:]], env=quiet))
    return next((code for code in codes if code), 0)


def bench(options: Sequence[str]) -> int:
    """Run one benchmark or all, one after another; returns the first exit code that is not 0."""
    known = sorted(path.stem for path in BENCHMARKS.glob("[a-z]*.py"))
    is_named = bool(options) and not options[0].startswith("-")
    names, rest = ([options[0]], options[1:]) if is_named else (known, options)
    if not set(names) <= set(known):
        print(f"./dev: no benchmark {names[0]!r}; there are: {', '.join(known)}\n\n{USAGE}", end="", file=sys.stderr)
        return 2
    codes = [subprocess.call([PYTHON, "-m", f"benchmarks.{name}", *rest], env=environment()) for name in names]
    return next((code for code in codes if code), 0)


def hand_over(*arguments: str) -> NoReturn:
    """Become the venv's Python."""
    sys.stdout.flush()
    os.execve(PYTHON, [str(PYTHON), *arguments], environment())  # noqa: S606 - no shell, a path of ours


def environment() -> dict[str, str]:
    """For the venv's Python: on the CPU, and with JAX's compilation cache inside the project."""
    return {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(CACHE / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def prepare_venv() -> None:
    """Make `.venv` hold what `requirements.lock` says, and this checkout, unless its stamp says it does.

    The stamp is written last. While pip works it reads "incomplete", and an interruption leaves it so: pip
    takes a half-copied package for an installed one, hence the next call starts from an empty venv. A pip
    that *fails* (no network, say) has changed nothing or undone it, and the venv is kept.

    Raises:
        subprocess.CalledProcessError: venv or pip failed; their output has been shown.
    """
    wanted = fingerprint("requirements.lock", "pyproject.toml")
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "dev.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two `./dev` at once: the second one waits, then finds the stamp
        if stamp(STAMP) == wanted and PYTHON.exists():
            return
        if stamp(STAMP) == INCOMPLETE or not is_usable(PYTHON):
            note("making .venv")
            run(lock, sys.executable, "-m", "venv", "--clear", str(VENV))
        note("installing requirements.lock into .venv (minutes the first time)")
        STAMP.write_text(INCOMPLETE)
        install(lock)
        write_stamp(STAMP, wanted)


def prepared(what: str, prepare: Callable[[], None]) -> bool:
    """Whether an addition to `.venv` is there now; if not, what failed has been said."""
    try:
        prepare()
    except subprocess.CalledProcessError as error:
        print(f"./dev: setting up {what} failed (exit code {error.returncode}), see above", file=sys.stderr)
        return False
    return True


def prepare_envs() -> None:
    """Add environments and buffers that only slow tests need, without what they never import; see `add`."""
    add("requirements-envs.lock", ENVS_STAMP, "--no-deps")
    add("requirements-buffers.lock", BUFFERS_STAMP, "--no-deps")


def prepare_other_jax() -> None:
    """Make `.cache/other-jax`, where slow tests load and resume under another JAX; see `make`."""
    make(OTHER_JAX)


def prepare_others() -> None:
    """Make `.cache/gymnasium-…`, where slow tests resume under other versions of it, and `.cache/wandb`; see `make`."""
    for name in OTHERS:
        make(CACHE / name)


def make(place: Path) -> None:
    """Make an environment of its own from the lock file that bears its name; from nothing if that changed.

    Raises:
        subprocess.CalledProcessError: venv or pip failed; their output has been shown.
    """
    name, own_stamp = f"requirements-{place.name}.lock", place / ".perdure-stamp"
    wanted = fingerprint(name)
    with (CACHE / "dev.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp(own_stamp) == wanted:
            return
        note(f"making .cache/{place.name} from {name}")
        python = str(place / "bin" / "python")
        run(lock, sys.executable, "-m", "venv", "--clear", str(place))
        run(lock, python, *PIP[1:], "-r", str(ROOT / name))
        write_stamp(own_stamp, wanted)


def add(name: str, own_stamp: Path, *options: str) -> None:
    """Add what a lock file says to a prepared `.venv`, unless its own stamp says it is there.

    An interruption leaves the venv's stamp at "incomplete", for the same reason as in `prepare_venv`.

    Raises:
        subprocess.CalledProcessError: pip failed; its output has been shown.
    """
    wanted = fingerprint("requirements.lock", name)
    with (CACHE / "dev.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp(own_stamp) == wanted:
            return
        note(f"adding {name} to .venv")
        usual = stamp(STAMP)
        STAMP.write_text(INCOMPLETE)
        try:
            run(lock, *PIP, *options, "-r", str(ROOT / name))
        except subprocess.CalledProcessError:
            write_stamp(STAMP, usual)
            raise
        write_stamp(own_stamp, wanted)
        write_stamp(STAMP, usual)


def install(lock: IO[str]) -> None:
    """Install the locked packages, then this checkout as it stands."""
    try:
        run(lock, *PIP, "-r", str(ROOT / "requirements.lock"))
        run(lock, *PIP, "--quiet", "--no-deps", "--no-build-isolation", "-e", str(ROOT))
    except subprocess.CalledProcessError:
        STAMP.unlink()
        raise


def run(lock: IO[str], *command: str) -> None:
    """Run a program that keeps the lock for as long as it lives, even should it outlive us."""
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, pass_fds=[lock.fileno()])


def fingerprint(*names: str) -> str:
    """A digest of the files that decide what `.venv` holds, and of its path, for its scripts name it."""
    digest = hashlib.sha256(os.fsencode(ROOT))
    for name in names:
        digest.update(b"\0" + (ROOT / name).read_bytes())
    return digest.hexdigest()


def stamp(path: Path) -> str:
    """What the last set-up left: a fingerprint, "incomplete", or "" for a venv that we have not set up."""
    return path.read_text() if path.exists() else ""


def write_stamp(path: Path, fingerprint: str) -> None:
    """Replace a stamp in one step."""
    fresh = path.with_suffix(".new")
    fresh.write_text(fingerprint)
    fresh.replace(path)


def is_usable(python: Path) -> bool:
    """Whether this interpreter starts, is new enough and has pip."""
    probe = "import pip, sys; sys.exit(sys.version_info < (3, 11))"
    try:
        return subprocess.run([python, "-c", probe], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def note(text: str) -> None:
    """Say on stderr what takes time."""
    print(f"./dev: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
