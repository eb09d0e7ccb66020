"""The readers under a coverage-guided fuzzer."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FUZZER = Path(__file__).with_name("fuzz_checkpoint.py")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris has no wheel for this platform")
def test_no_manifest_makes_the_readers_raise_anything_untyped(tmp_path: Path):
    """Two minutes of mutated manifests: a crash, a hang of 10 s or 2 GB of memory would end it with another code."""
    options = ["-max_total_time=120", "-timeout=10", "-rss_limit_mb=2048", f"-artifact_prefix={tmp_path}/", "-seed=1"]
    # By a shell's child: a process begins with the peak of memory of the one that starts it, here the tests' own.
    command = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, str(FUZZER), str(tmp_path / "corpus"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "Done " in done.stderr
