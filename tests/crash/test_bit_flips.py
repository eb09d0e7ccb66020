"""Damage to a checkpoint is always detected and named, and a run steps back from it: zero silent loads."""

import json
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

import perdure
from perdure import AllDamagedError, DamagedError
from perdure.format import canonical
from perdure.format.digests import digest_of

SEED = 2_000
FLIPS = 70
CUTS = 30
NEWEST = "step_0000000120"
BEFORE = "step_0000000105"


@dataclass(frozen=True)
class Region:
    """A stretch of a file whose bytes have one meaning."""

    file: str
    kind: str
    start: int
    end: int
    named: str
    """What the error must name if the stretch is damaged."""


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, numpy_loop: ModuleType) -> Path:
    """A finished run of the NumPy loop, saved at every boundary; tests work on copies."""
    directory = tmp_path_factory.mktemp("straight") / "run"
    numpy_loop.train(directory)
    return directory


@pytest.fixture
def run(straight: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(straight, tmp_path / "run"))


def manifest_of(checkpoint: Path) -> dict:
    return json.loads((checkpoint / "MANIFEST.json").read_bytes())


def regions(checkpoint: Path) -> list[Region]:
    """Every file of the checkpoint, cut into header length, header, padding and one stretch an array."""
    found = [Region("MANIFEST.json", "manifest", 0, (checkpoint / "MANIFEST.json").stat().st_size, "MANIFEST.json")]
    for file in sorted(path.name for path in checkpoint.iterdir() if path.name != "MANIFEST.json"):
        data = (checkpoint / file).read_bytes()
        length = int.from_bytes(data[:8], "little")
        text = data[8 : 8 + length]
        end_of_text = 8 + len(text.rstrip(b" "))
        found.append(Region(file, "length", 0, 8, file))
        found.append(Region(file, "header", 8, end_of_text, file))
        if end_of_text < 8 + length:
            found.append(Region(file, "padding", end_of_text, 8 + length, file))
        for name, entry in json.loads(text).items():
            if name != "__metadata__" and entry["data_offsets"][0] < entry["data_offsets"][1]:
                start, end = (8 + length + offset for offset in entry["data_offsets"])
                component = file.removesuffix(".safetensors")
                named = component if name == component else f"{component}/{name}"
                found.append(Region(file, "array", start, end, named))
    return found


def sampled(checkpoint: Path, number: int, seed: int) -> list[tuple[Region, int]]:
    """Bytes to damage: every region once, then by chance among regions, so that large ones take no share of others."""
    draw = random.Random(seed)
    everywhere = regions(checkpoint)
    draw.shuffle(everywhere)
    chosen = (everywhere + [draw.choice(everywhere) for _ in range(number)])[:number]
    return [(region, draw.randrange(region.start, region.end)) for region in chosen]


def test_the_regions_cover_every_byte_of_every_file(straight: Path) -> None:
    """The samples below can fall everywhere, on every kind of byte."""
    checkpoint = straight / "checkpoints" / NEWEST
    covered: dict[str, int] = {}
    for region in regions(checkpoint):
        covered[region.file] = covered.get(region.file, 0) + region.end - region.start

    assert covered == {path.name: path.stat().st_size for path in checkpoint.iterdir()}
    assert {region.kind for region in regions(checkpoint)} == {"manifest", "length", "header", "padding", "array"}
    assert len(covered) >= 9


def test_every_flipped_bit_is_refused_and_named(run: Path) -> None:
    """One bit anywhere: the load raises, and the message names the array, or the file where no array is hit."""
    checkpoint = run / "checkpoints" / NEWEST
    print(f"seed {SEED}")
    draw = random.Random(SEED + 1)
    samples = sampled(checkpoint, FLIPS, SEED)
    for region, at in samples:
        bit = draw.randrange(8)
        what = f"bit {bit} of byte {at} of {region.file} ({region.kind})"
        _damage(checkpoint / region.file, lambda data, at=at, bit=bit: _flipped(data, at, bit), region.named, what)

    assert {region.file for region, _ in samples} == {path.name for path in checkpoint.iterdir()}
    assert {region.kind for region, _ in samples} == {"manifest", "length", "header", "padding", "array"}
    perdure.read(checkpoint)


def test_every_truncation_is_refused_and_named(run: Path) -> None:
    """A file cut at any byte, from nothing left to one byte missing."""
    checkpoint = run / "checkpoints" / NEWEST
    print(f"seed {SEED}")
    files = sorted(path.name for path in checkpoint.iterdir())
    cuts = [(region.file, at) for region, at in sampled(checkpoint, CUTS - 2 * len(files), SEED)]
    cuts += [(file, 0) for file in files] + [(file, (checkpoint / file).stat().st_size - 1) for file in files]
    for file, at in cuts:
        _damage(checkpoint / file, lambda data, at=at: data[:at], file, f"{file} cut to {at} bytes")

    assert len(cuts) == CUTS
    perdure.read(checkpoint)


@pytest.mark.slow
def test_every_single_byte_of_a_checkpoint_is_guarded(run: Path) -> None:
    """The sample made exhaustive: one flipped bit in each byte of each file."""
    checkpoint = run / "checkpoints" / NEWEST
    draw = random.Random(SEED)
    for region in regions(checkpoint):
        for at in range(region.start, region.end):
            bit = draw.randrange(8)
            what = f"bit {bit} of byte {at} of {region.file} ({region.kind})"
            _damage(checkpoint / region.file, lambda data, at=at, bit=bit: _flipped(data, at, bit), region.named, what)


def _flipped(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def _damage(file: Path, change: Callable[[bytes], bytes], named: str, what: str) -> None:
    """Damages one file, demands the refusal, and repairs it."""
    whole = file.read_bytes()
    file.write_bytes(change(whole))
    refusal = _refusal(file.parent)
    file.write_bytes(whole)
    assert refusal is not None, f"loaded silently: {what}"
    assert refusal.startswith(file.parent.name), what
    assert named in refusal, f"{what}: {named} is not named: {refusal}"


def _refusal(checkpoint: Path) -> str | None:
    try:
        perdure.read(checkpoint)
    except DamagedError as error:
        return str(error)
    return None


def _swap(first: Path, second: Path) -> None:
    a, b = first.read_bytes(), second.read_bytes()
    first.write_bytes(b)
    second.write_bytes(a)


def _append(file: Path, data: bytes) -> None:
    file.write_bytes(file.read_bytes() + data)


def _edited(manifest: Path, *, digest: bool, **fields: object) -> None:
    """Writes other fields into a manifest, in canonical JSON; with a digest that fits, or with the old one."""
    document = {**json.loads(manifest.read_bytes()), **fields}
    if digest:
        del document["digest"]
        document["digest"] = digest_of(canonical.encode(document))
    manifest.write_bytes(canonical.encode(document))


Harm = Callable[[Path, Path], object]
"""Damages the first checkpoint; the second is the one before it."""

HARMS: dict[str, tuple[Harm, str]] = {
    "tensor file deleted": (
        lambda new, old: (new / "weights.safetensors").unlink(),
        rf"{NEWEST}/weights\.safetensors: \d+ bytes were written, found missing",
    ),
    "manifest deleted": (
        lambda new, old: (new / "MANIFEST.json").unlink(),
        rf"{NEWEST}: MANIFEST\.json is missing",
    ),
    "all files deleted": (
        lambda new, old: [path.unlink() for path in new.iterdir()],
        rf"{NEWEST}: MANIFEST\.json is missing",
    ),
    "tensor file emptied": (
        lambda new, old: (new / "carry.safetensors").write_bytes(b""),
        rf"{NEWEST}/carry\.safetensors: \d+ bytes were written, found 0 bytes",
    ),
    "manifest emptied": (
        lambda new, old: (new / "MANIFEST.json").write_bytes(b""),
        rf"{NEWEST}: MANIFEST\.json: not canonical JSON",
    ),
    "manifest zeroed, as after a power loss": (
        lambda new, old: (new / "MANIFEST.json").write_bytes(bytes((new / "MANIFEST.json").stat().st_size)),
        rf"{NEWEST}: MANIFEST\.json: not canonical JSON",
    ),
    "tensor file zeroed, as after a power loss": (
        lambda new, old: (new / "legacy.safetensors").write_bytes(bytes((new / "legacy.safetensors").stat().st_size)),
        rf"{NEWEST}/legacy\.safetensors: legacy/\S+: bytes \d+ to \d+ are not what was written",
    ),
    "tensor file grown": (
        lambda new, old: _append(new / "carry.safetensors", b"\0"),
        rf"{NEWEST}/carry\.safetensors: \d+ bytes were written, found \d+ bytes",
    ),
    "tensor files of two components swapped": (
        lambda new, old: _swap(new / "weights.safetensors", new / "optimizer.safetensors"),
        rf"{NEWEST}/optimizer\.safetensors: \d+ bytes were written, found \d+ bytes",
    ),
    "tensor file from the checkpoint before": (
        lambda new, old: shutil.copy(old / "weights.safetensors", new / "weights.safetensors"),
        rf"{NEWEST}/weights\.safetensors: weights/\S+: bytes \d+ to \d+ are not what was written",
    ),
    "manifest from the checkpoint before": (
        lambda new, old: shutil.copy(old / "MANIFEST.json", new / "MANIFEST.json"),
        rf"{NEWEST}/carry\.safetensors: carry: bytes \d+ to \d+ are not what was written",
    ),
    "everything from the checkpoint before": (
        lambda new, old: shutil.copytree(old, new, dirs_exist_ok=True),
        rf"{NEWEST}: was written as step 105 and renamed",
    ),
    "a file replaced by a directory": (
        lambda new, old: ((new / "carry.safetensors").unlink(), (new / "carry.safetensors").mkdir()),
        rf"{NEWEST}/carry\.safetensors: \d+ bytes were written, found missing",
    ),
    "a file replaced by a link to its double": (
        lambda new, old: (
            (new / "carry.safetensors").rename(new.parent.parent / "double"),
            (new / "carry.safetensors").symlink_to(new.parent.parent / "double"),
        ),
        rf"{NEWEST}/carry\.safetensors: \d+ bytes were written, found missing",
    ),
    "step edited, old digest": (
        lambda new, old: _edited(new / "MANIFEST.json", env_steps=121, digest=False),
        rf"{NEWEST}: MANIFEST\.json: its digest does not match its text",
    ),
    "step edited, digest made to fit": (
        lambda new, old: _edited(new / "MANIFEST.json", env_steps=121, digest=True),
        rf"{NEWEST}: the state does not have the digest that was saved",
    ),
    "boundary edited, digest made to fit": (
        lambda new, old: _edited(new / "MANIFEST.json", boundary=9, digest=True),
        rf"{NEWEST}: the state does not have the digest that was saved",
    ),
    "manifest in another spelling": (
        lambda new, old: (new / "MANIFEST.json").write_text(json.dumps(manifest_of(new), indent=1)),
        rf"{NEWEST}: MANIFEST\.json: not in canonical form",
    ),
    "a component added, digest made to fit": (
        lambda new, old: _edited(
            new / "MANIFEST.json",
            components={**manifest_of(new)["components"], "extra": manifest_of(new)["components"]["exploration"]},
            digest=True,
        ),
        rf"{NEWEST}: the state does not have the digest that was saved",
    ),
    "an unknown field added, digest made to fit": (
        lambda new, old: _edited(new / "MANIFEST.json", note="hello", digest=True),
        rf"{NEWEST}: MANIFEST\.json: unknown field: note",
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("harm", HARMS)
def test_a_run_steps_back_from_a_damaged_checkpoint_and_moves_it_aside(
    harm: str, run: Path, straight: Path, comparing: ModuleType, numpy_loop: ModuleType
) -> None:
    """The resume names the damage, goes on from the checkpoint before, and ends like the run never damaged."""
    do, named = HARMS[harm]
    do(run / "checkpoints" / NEWEST, run / "checkpoints" / BEFORE)
    harmed = _content(run / "checkpoints" / NEWEST)

    resumed = numpy_loop.train(run)

    (notice,) = [notice for notice in resumed.notices if "stepped back" in notice]
    assert re.search(named, notice), notice
    assert notice.endswith(f"It was moved to {run / 'damaged' / NEWEST}.")
    assert _content(run / "damaged" / NEWEST) == harmed
    assert comparing.differences(straight, run) == []
    assert sorted(comparing.checkpoints(run)) == list(range(9))


def _content(directory: Path) -> dict[str, bytes | None]:
    return {path.name: path.read_bytes() if path.is_file() else None for path in directory.iterdir()}


@pytest.mark.parametrize("harm", [name for name in HARMS if name != "everything from the checkpoint before"])
def test_a_damaged_checkpoint_is_refused_when_it_is_read_alone(harm: str, run: Path) -> None:
    """The same damage without a run around it: no verb loads it."""
    do, named = HARMS[harm]
    do(run / "checkpoints" / NEWEST, run / "checkpoints" / BEFORE)

    with pytest.raises(DamagedError, match=named):
        perdure.read(run / "checkpoints" / NEWEST)


def test_a_renamed_checkpoint_is_refused(
    run: Path, straight: Path, comparing: ModuleType, numpy_loop: ModuleType
) -> None:
    """A directory's name is no proof: a checkpoint under the name of a later step is damaged."""
    (run / "checkpoints" / NEWEST).rename(run / "checkpoints" / "step_0000000999")

    resumed = numpy_loop.train(run)

    assert "step_0000000999: was written as step 120 and renamed" in "\n".join(resumed.notices)
    assert (run / "damaged" / "step_0000000999").is_dir()
    assert comparing.differences(straight, run) == []
    assert sorted(comparing.checkpoints(run)) == list(range(9))


def test_a_checkpoint_of_another_run_is_refused(run: Path, tmp_path: Path, numpy_loop: ModuleType) -> None:
    """The same name, the same step, intact: it still is not this run's."""
    numpy_loop.train(tmp_path / "other")
    shutil.rmtree(run / "checkpoints" / NEWEST)
    shutil.copytree(tmp_path / "other" / "checkpoints" / NEWEST, run / "checkpoints" / NEWEST)

    resumed = numpy_loop.train(run)

    assert f"{NEWEST}: belongs to run " in "\n".join(resumed.notices)
    assert (run / "damaged" / NEWEST).is_dir()


def test_several_damaged_checkpoints_are_stepped_over(
    run: Path, straight: Path, comparing: ModuleType, numpy_loop: ModuleType
) -> None:
    """The newest intact one wins, however far back it stands; each damaged one is named and kept."""
    names = sorted(path.name for path in (run / "checkpoints").iterdir())
    for name in names[3:]:
        (run / "checkpoints" / name / "carry.safetensors").unlink()

    resumed = numpy_loop.train(run)

    assert len([notice for notice in resumed.notices if "stepped back" in notice]) == 6
    assert sorted(path.name for path in (run / "damaged").iterdir()) == names[3:]
    assert comparing.differences(straight, run) == []
    assert sorted(comparing.checkpoints(run)) == list(range(9))


def test_a_run_without_an_intact_checkpoint_does_not_start_afresh(run: Path, numpy_loop: ModuleType) -> None:
    """All damaged: every one is named, and nothing is touched."""
    for checkpoint in (run / "checkpoints").iterdir():
        _damage_one_byte(checkpoint / "weights.safetensors")
    before = {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file() and path.name[0] != "."}

    with pytest.raises(AllDamagedError, match="all 9 checkpoints are damaged; nothing was changed") as caught:
        numpy_loop.train(run)

    assert all(f"step_{15 * boundary:010d}/weights" in str(caught.value) for boundary in range(9))
    after = {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file() and path.name[0] != "."}
    assert after == before


def _damage_one_byte(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(_flipped(data, len(data) - 1, 0))


@pytest.mark.parametrize("name", ["step_42", "step_0000000042.bak", "0000000999", "step_-000000001", "notes"])
def test_a_directory_with_a_number_in_its_name_is_no_checkpoint(
    name: str, run: Path, straight: Path, comparing: ModuleType, numpy_loop: ModuleType
) -> None:
    """Only the commit rule counts; whatever else stands there is neither loaded nor moved nor removed."""
    shutil.rmtree(run / "checkpoints" / NEWEST)
    stranger = Path(shutil.copytree(run / "checkpoints" / BEFORE, run / "checkpoints" / name))

    resumed = numpy_loop.train(run)

    assert not [notice for notice in resumed.notices if name in notice]
    assert stranger.is_dir()
    shutil.rmtree(stranger)
    assert comparing.differences(straight, run) == []
