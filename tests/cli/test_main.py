"""Every way to end has its exit code; a user's mistake shows no traceback, a fault of ours shows it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import perdure
from perdure import errors
from perdure.cli.exit_codes import ExitCode, code_of
from perdure.cli.main import VERBS, main

HEAVY = {"flax", "gymnasium", "gymnax", "jax", "jaxlib", "ml_dtypes", "optax", "pandas", "rich", "torch", "tyro"}


def test_version(perdure_cli):
    result = perdure_cli("--version")

    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("perdure 0.")


def test_python_m_perdure_is_the_same_tool():
    result = subprocess.run([sys.executable, "-m", "perdure", "--version"], capture_output=True, text=True, check=False)

    assert (result.returncode, result.stdout[:8]) == (0, "perdure ")


def test_help_lists_the_verbs_and_the_exit_codes(perdure_cli):
    result = perdure_cli("--help")

    assert result.code == 0
    assert all(f"    {verb} " in result.out for verb in VERBS)
    assert "  5    another process is training this run" in result.out


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_has_help(perdure_cli, verb: str):
    result = perdure_cli(verb, "--help")

    assert result.code == 0
    assert f"usage: perdure {verb} " in result.out


def test_without_a_verb_it_shows_the_help_on_stderr(perdure_cli):
    result = perdure_cli()

    assert (result.code, result.out) == (2, "")
    assert "verbs:" in result.err


@pytest.mark.parametrize("words", [["shw"], ["show"], ["show", "a", "b"], ["ls", "--jsn"], ["ls", "--js"]])
def test_an_impossible_command_is_usage(perdure_cli, words: list[str]):
    result = perdure_cli(*words)

    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("usage: perdure")


def test_a_command_after_dashes_is_for_those_that_run_one(perdure_cli):
    result = perdure_cli("ls", "--", "x")

    assert result.code == 2
    taking = "`perdure resume DIR -- CMD`, `perdure prove -- CMD` and `perdure audit -- CMD`"
    assert result.err == f"perdure: ls: takes no command after `--`; only {taking} do.\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ContractError("run", []), 3),
        (errors.NoRunError("no run"), 4),
        (errors.NoCheckpointError("no checkpoint"), 4),
        (errors.AllDamagedError("all damaged"), 4),
        (errors.DamagedError("damaged"), 4),
        (errors.UnsupportedVersionError("newer"), 4),
        (errors.LockedError("locked"), 5),
        (errors.UsageError("usage"), 2),
        (errors.CrashLoopError("again and again"), 6),
        (errors.WorkerDiedError(1, -9), 7),
        (errors.CommitError("disk full"), 70),
        (errors.RestoreError("half-way"), 70),
        (PermissionError("not yours"), 2),
        (NotADirectoryError("a file"), 2),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_an_expected_error_is_a_message_and_its_code(perdure_cli, fails: Callable[[BaseException], None], error, code):
    fails(error)
    result = perdure_cli("ls")

    assert (result.code, result.out, result.err) == (code, "", f"perdure: {error}\n")


def test_every_error_of_perdure_has_a_code():
    kinds = [value for value in vars(perdure).values() if isinstance(value, type) and issubclass(value, Exception)]

    assert len(kinds) > 10
    assert {code_of(kind.__new__(kind)) for kind in kinds} == {
        ExitCode.USAGE,
        ExitCode.CONTRACT,
        ExitCode.NOTHING_TO_LOAD,
        ExitCode.LOCKED,
        ExitCode.CRASH_LOOP,
        ExitCode.WORKER_DIED,
        ExitCode.UNEXPECTED,
    }


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Makes `perdure ls` raise."""

    def arrange(error: BaseException) -> None:
        def run(arguments: object) -> int:
            raise error

        monkeypatch.setattr("perdure.cli.ls.run", run)

    return arrange


def test_an_unexpected_error_shows_its_traceback(perdure_cli, fails: Callable[[BaseException], None]):
    fails(ZeroDivisionError("a fault"))
    result = perdure_cli("ls")

    assert result.code == 70
    assert result.err.startswith("Traceback (most recent call last):")
    assert result.err.endswith("ZeroDivisionError: a fault\nperdure: an unexpected error, see above.\n")


@pytest.mark.parametrize(("error", "said"), [(KeyboardInterrupt(), ""), (KeyboardInterrupt("go on"), "; go on")])
def test_ctrl_c(perdure_cli, fails: Callable[[BaseException], None], error: KeyboardInterrupt, said: str):
    fails(error)
    result = perdure_cli("ls")

    assert (result.code, result.err) == (130, f"perdure: interrupted{said}\n")


def test_a_script_s_own_exit_is_passed_on(perdure_cli, fails: Callable[[BaseException], None]):
    fails(SystemExit(75))

    assert perdure_cli("ls").code == 75


def test_a_reader_that_goes_away_is_no_error(run_path: Path):
    program = (
        "import sys; from perdure.cli.main import main\n"
        "sys.stdin.read()\n"  # until the reader is gone
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "show", str(run_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.close()
        error = process.stderr.read()

    assert (process.returncode, error) == (141, b"")


def test_a_terminal_without_our_characters_is_no_error(run_path: Path):
    command = [sys.executable, "-m", "perdure", "show", str(run_path / "checkpoints" / "step_0000000010"), "--leaves"]
    environment = {"PYTHONIOENCODING": "ascii", "PATH": ""}
    result = subprocess.run(command, capture_output=True, check=False, env=environment)

    assert (result.returncode, result.stderr) == (0, b"")
    assert b"float64 2?3" in result.stdout


@pytest.mark.parametrize("verb", ["show", "ls", "verify", "diff", "log", "fork"])
def test_looking_at_runs_loads_no_framework(run_path: Path, verb: str):
    program = (
        "import json, sys; from perdure.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        "print(json.dumps([code, sorted({name.split('.')[0] for name in sys.modules})]), file=sys.stderr)"
    )
    more = {"diff": [str(run_path)], "fork": ["--at", "20", "--to", str(run_path.parent / "new")]}
    words = [verb, str(run_path), *more.get(verb, [])]
    result = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    code, modules = json.loads(result.stderr)

    assert code == 0
    assert set(modules) & HEAVY == set()


def test_only_the_verb_that_is_called_is_loaded(run_path: Path):
    program = "import sys; from perdure.cli.main import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    words = [sys.executable, "-c", program, "show", str(run_path)]
    result = subprocess.run(words, capture_output=True, text=True, check=True)
    loaded = {name.removeprefix("perdure.cli.") for name in result.stderr.split() if name.startswith("perdure.cli.")}

    assert loaded & set(VERBS) == {"show"}


def test_main_takes_this_process_s_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(sys, "argv", ["perdure", "--version"])

    assert main() == 0
    assert capsys.readouterr().out.startswith("perdure ")
