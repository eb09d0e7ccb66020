"""perdure's own trainers are exact, stopped at every boundary and killed at random instants."""

import json
import sys
from pathlib import Path

import pytest

from perdure.cli.main import main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

COMMANDS = {
    "torch-ppo": ["-m", "perdure", "train", "torch-ppo", "--env", "CartPole-v1", "--run", "runs/x", "--seed", "1"],
    "ppo": ["-m", "perdure", "train", "ppo", "--env", "CartPole-v1", "--run", "runs/x", "--seed", "1"],
    "examples/torch_ppo.py": [str(ROOT / "examples" / "torch_ppo.py"), "--run", "runs/x"],
    "examples/torch_dqn.py": [str(ROOT / "examples" / "torch_dqn.py"), "--run", "runs/x"],
    "examples/torch_sac.py": [str(ROOT / "examples" / "torch_sac.py"), "--run", "runs/x"],
    "examples/sb3_ppo.py": [str(ROOT / "examples" / "sb3_ppo.py"), "--run", "runs/x"],
}


@pytest.mark.parametrize("how", [["--every", "--until", "4"], ["--kill", "--random", "2", "--until", "8"]], ids=str)
@pytest.mark.parametrize("name", COMMANDS)
def test_exact(name: str, how: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["prove", "--json", *how, "--keep", str(tmp_path / "kept"), "--", sys.executable, *COMMANDS[name]]
    code = main(words)

    document = json.loads(capsys.readouterr().out)
    assert (code, document["exact"]) == (0, True), document
