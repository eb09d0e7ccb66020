"""Declared files count by content, folders by relative paths and contents, variables by value; secrets are refused."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from perdure import EnvironmentVariable, File
from perdure.contract.config import contract_of
from perdure.errors import UsageError


def folder(path: Path, **files: str) -> Path:
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


def test_the_same_content_is_the_same_wherever_it_stands(tmp_path: Path):
    first, second = folder(tmp_path / "a", x="1", y="2"), folder(tmp_path / "b", y="2", x="1")
    os.utime(second / "x", (0, 0))

    assert File(first).fact() == File(second).fact()
    assert File(first / "x").fact() == File(str(second / "x")).fact()


@pytest.mark.parametrize(
    "files",
    [{"x": "1", "y": "3"}, {"x": "1", "z": "2"}, {"x": "1"}, {"x": "1", "y": "2", "z": ""}, {"x": "12", "y": ""}],
)
def test_another_folder_is_another_fact(tmp_path: Path, files: dict[str, str]):
    assert File(folder(tmp_path / "a", x="1", y="2")).fact() != File(folder(tmp_path / "b", **files)).fact()


def test_a_name_cannot_pass_for_content(tmp_path: Path):
    """Two folders whose names and contents are the same text when they are joined."""
    assert File(folder(tmp_path / "a", ab="c")).fact() != File(folder(tmp_path / "b", a="bc")).fact()


def test_a_link_to_a_folder_counts_by_what_it_leads_to(tmp_path: Path):
    first, second = folder(tmp_path / "a", x="1"), folder(tmp_path / "b", x="1")
    elsewhere = folder(tmp_path / "c", y="2")
    (first / "more").symlink_to(elsewhere)
    folder(second / "more", y="2")
    before = File(first).fact()

    assert before == File(second).fact()
    (elsewhere / "y").write_text("3")
    assert File(first).fact() != before


def test_a_folder_in_itself_and_a_pipe_are_refused(tmp_path: Path):
    looping = folder(tmp_path / "a", x="1")
    (looping / "self").symlink_to(looping)
    os.mkfifo(folder(tmp_path / "b", x="1") / "pipe")

    with pytest.raises(UsageError, match="leads back to a folder around it"):
        File(looping).fact()
    with pytest.raises(UsageError, match="is neither a file nor a folder"):
        File(tmp_path / "b").fact()


def test_a_large_file_is_read_in_pieces(tmp_path: Path):
    path = tmp_path / "large"
    path.write_bytes(b"x" * (2 << 20) + b"y")

    assert File(path).fact().endswith(f",{(2 << 20) + 1}bytes")


def test_a_missing_file_is_refused_with_its_path(tmp_path: Path):
    with pytest.raises(UsageError) as caught:
        contract_of(None, horizon=None, free=(), own={"env": {"levels": File(tmp_path / "none")}})

    assert str(caught.value) == (
        f"File({str(tmp_path / 'none')!r}): No such file or directory. Give the path of a file or folder."
    )


def test_a_file_in_the_configuration_counts_by_content_too(tmp_path: Path):
    (tmp_path / "jar").write_text("x")

    contract = contract_of({"jar": File(tmp_path / "jar")}, horizon=None, free=())

    assert contract["algorithm"] == {"jar": File(tmp_path / "jar").fact()}
    assert str(tmp_path) not in str(contract)


def test_a_variable_counts_by_value(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERDURE_TEST_X", "1")
    assert EnvironmentVariable("PERDURE_TEST_X").fact() == "1"
    monkeypatch.delenv("PERDURE_TEST_X")
    assert EnvironmentVariable("PERDURE_TEST_X").fact() is None


@pytest.mark.parametrize("name", ["WANDB_API_KEY", "HF_TOKEN", "my_secret", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY"])
def test_a_secret_is_never_copied(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(name, "s3cr3t")

    with pytest.raises(UsageError, match="the name speaks of a secret") as caught:
        EnvironmentVariable(name).fact()
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("section", ["seed", "horizon", "numerics", "start", "a b", 1])
def test_sections_that_cannot_be_one(section: object):
    with pytest.raises(UsageError, match="a section's name is an identifier"):
        contract_of(None, horizon=None, free=(), own={section: {"x": 1}})  # pyright: ignore[reportArgumentType]


def test_a_key_in_two_places_is_refused():
    with pytest.raises(UsageError, match="config= has the key 'lr' too"):
        contract_of({"lr": 1}, horizon=None, free=(), own={"algorithm": {"lr": 2}})


@pytest.mark.parametrize("path", [None, 3, b"x", "", "~nosuchuser-perdure/x", "a\0b"])
def test_what_is_no_path_is_refused_by_name(path: Any):
    with pytest.raises(UsageError) as caught:
        File(path).fact()

    assert str(caught.value).startswith(f"File({path!r}): ")
    assert "Give the path of a file or folder" in str(caught.value)


@pytest.mark.parametrize("name", [None, 3, "", "A=B", "a\0b"])
def test_what_is_no_variable_is_refused_by_name(name: Any):
    with pytest.raises(UsageError) as caught:
        EnvironmentVariable(name).fact()

    assert str(caught.value) == (
        f"EnvironmentVariable({name!r}): no name of a variable. Give one as a text, such as "
        "EnvironmentVariable('JAVA_OPTS')."
    )


@pytest.mark.parametrize("free", [None, 3, [1], ["a", None]])
def test_free_is_a_list_of_patterns(free: Any):
    with pytest.raises(UsageError) as caught:
        contract_of({"a": 1}, horizon=None, free=free)

    assert str(caught.value) == f"free={free!r}: a list of patterns, such as ['track', 'wandb_*']."


@dataclasses.dataclass
class Reward:
    weight: float = 0.5


@pytest.mark.parametrize("keys", [Reward, 0.5, None])
def test_a_section_holds_keys(keys: Any):
    with pytest.raises(UsageError) as caught:
        contract_of(None, horizon=None, free=(), own={"reward": keys})

    assert str(caught.value) == f"contract['reward']={keys!r}: a mapping or a dataclass's instance."


def test_a_value_of_a_section_that_cannot_be_compared_is_named_with_its_section():
    with pytest.raises(UsageError, match=r"^contract\['reward'\] x: a set cannot be compared at a resume\.$"):
        contract_of(None, horizon=None, free=(), own={"reward": {"x": {1}}})
