"""The commit, the branch and what was not committed; whatever is wrong with git is no failure."""

import os
import subprocess
from pathlib import Path

import pytest

from perdure.runs import code
from perdure.runs.code import Code, code_at_launch, code_before, code_in, may_hold_secrets, told_changes


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=main")
    command = ["git", *identity, *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One commit on `main`, nothing changed."""
    folder = tmp_path / "repository"
    (folder / "deep").mkdir(parents=True)
    (folder / "train.py").write_text("lr = 0.1\n")
    (folder / "deep" / "net.py").write_text("width = 4\n")
    (folder / ".env").write_text("A=1\n")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def found(folder: Path) -> Code:
    there = code_in(folder)
    assert there is not None
    return there


def test_a_clean_repository_seen_from_a_folder_in_it(repository: Path):
    assert found(repository / "deep") == Code(
        commit=git(repository, "rev-parse", "HEAD"),
        branch="main",
        remote=None,
        dirty=False,
        untracked=(),
        left_out=(),
        patch=None,
        patch_bytes=0,
    )


def test_the_patch_makes_the_commit_into_what_was_launched(repository: Path, tmp_path: Path):
    (repository / "train.py").write_text("lr = 0.2\n")
    (repository / "added.py").write_text("new = 1\n")
    git(repository, "add", "added.py")
    (repository / "deep" / "net.py").unlink()
    (repository / "untracked.py").write_text("draft\n")
    there = found(repository / "deep" if (repository / "deep").exists() else repository)

    assert (there.dirty, there.untracked) == (True, ("untracked.py",))
    assert there.patch is not None
    git(tmp_path, "clone", "-q", str(repository), "clone")
    (tmp_path / "code.patch").write_text(there.patch)
    git(tmp_path / "clone", "apply", str(tmp_path / "code.patch"))
    assert (tmp_path / "clone" / "train.py").read_text() == "lr = 0.2\n"
    assert (tmp_path / "clone" / "added.py").read_text() == "new = 1\n"
    assert not (tmp_path / "clone" / "deep" / "net.py").exists()
    assert "draft" not in there.patch


def test_looking_changes_nothing_in_the_repository(repository: Path):
    (repository / "train.py").write_text("lr = 0.2\n")
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in repository.rglob("*") if path.is_file()}
    code_in(repository)

    assert before == {
        path: (path.stat().st_mtime_ns, path.read_bytes()) for path in repository.rglob("*") if path.is_file()
    }


def test_files_that_may_hold_secrets_are_named_and_not_copied(repository: Path):
    (repository / ".env").write_text("A=changed-value\n")
    there = found(repository)

    assert (there.dirty, there.left_out, there.patch) == (True, (".env",), None)
    assert all(map(may_hold_secrets, ["a/.env.local", "prod.env", "id_rsa", "x.PEM", "secrets/x.py", "my_credentials"]))
    assert not any(map(may_hold_secrets, ["train.py", "environment.yml", "tokens.py", "keys.py"]))


def test_a_patch_that_is_too_long_is_measured_and_not_kept(repository: Path):
    (repository / "train.py").write_text("x\n" * (1 << 20))
    there = found(repository)

    assert (there.patch, there.patch_bytes > code.MOST_BYTES) == (None, True)


def test_very_many_untracked_files_are_not_all_named(repository: Path):
    for number in range(code.MOST_NAMES + 50):
        (repository / f"note-{number}").write_text("")

    assert len(found(repository).untracked) == code.MOST_NAMES


def test_no_branch_and_a_remote_without_its_credentials(repository: Path):
    git(repository, "checkout", "-q", "--detach")
    git(repository, "remote", "add", "origin", "https://me:hunter2@example.org/a.git")

    assert (found(repository).branch, found(repository).remote) == (None, "https://[withheld]@example.org/a.git")


def test_no_repository_no_commit_no_git_and_no_time(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    git(tmp_path, "init", "-q", "empty")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))

    assert code_in(tmp_path / "gone") is None
    assert code_in(tmp_path / "empty") is None
    with monkeypatch.context() as hurried:
        hurried.setattr(code, "LIMIT_S", 0.0)
        assert code_in(repository) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert code_in(repository) is None


def test_a_git_that_hangs_is_stopped(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(code, "LIMIT_S", 0.1)

    assert code_in(repository) is None


def test_it_is_asked_once_a_process(repository: Path):
    code_at_launch.cache_clear()
    first = code_at_launch(str(repository))
    (repository / "train.py").write_text("lr = 0.2\n")

    assert first is not None
    assert code_at_launch(str(repository)) is first
    code_at_launch.cache_clear()


def test_where_the_folder_is_in_no_repository_the_script_s_counts(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.argv", [str(repository / "deep" / "net.py")])
    code_at_launch.cache_clear()
    there = code_at_launch(str(tmp_path))
    code_at_launch.cache_clear()

    assert there is not None
    assert there.commit == git(repository, "rev-parse", "HEAD")


def test_changes_in_words(repository: Path):
    first = found(repository)
    (repository / "train.py").write_text("lr = 0.2\n")
    dirty = found(repository)
    git(repository, "commit", "-q", "-a", "-m", "second")
    git(repository, "checkout", "-q", "-b", "other")
    second = found(repository)
    old, new = first.commit[:12], second.commit[:12]

    assert told_changes(first.facts(), first) == []
    assert told_changes(None, first) == told_changes(first.facts(), None) == []
    assert told_changes(first.facts(), dirty) == [
        f"the code changed: what is not committed is not the same as before, on commit {old}."
    ]
    assert told_changes(first.facts(), second) == [
        f"the code changed: commit {old} then, {new} now (branch main then, other now)."
    ]
    assert code_before(None, []) is None
    events = [{"event": "resumed", "code": {"commit": "a"}}, {"event": "resumed", "code": None}, {"event": "stopped"}]
    assert code_before({"commit": "b"}, events) == {"commit": "a"}
