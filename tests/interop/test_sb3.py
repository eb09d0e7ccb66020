"""What Stable-Baselines3 saves comes as `get_parameters` gives it; what it keeps as pickles is named and not read."""

import base64
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import gymnasium
import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from tests.interop.torch_files import Members, assert_same, raw, rewritten

from perdure.errors import DamagedError, NoCheckpointError
from perdure.interop import convert
from perdure.interop.kinds.sb3 import KIND
from perdure.interop.recognition import kind_of

pytestmark = pytest.mark.full


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def small() -> dict[str, Any]:
    """A new dict every time: models write into it."""
    return {"net_arch": [8]}


def ppo(steps: int = 16) -> PPO:
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, n_epochs=1, policy_kwargs=small(), device="cpu")
    return model.learn(steps) if steps else model


def dqn() -> DQN:
    options: dict[str, Any] = {"buffer_size": 20, "learning_starts": 4, "policy_kwargs": small()}
    return DQN("MlpPolicy", "CartPole-v1", device="cpu", **options).learn(12)


def sac() -> SAC:
    options: dict[str, Any] = {"buffer_size": 20, "learning_starts": 4, "batch_size": 4, "policy_kwargs": small()}
    return SAC("MlpPolicy", "Pendulum-v1", device="cpu", **options).learn(8)


@pytest.mark.full
@pytest.mark.parametrize("make", [ppo, dqn, sac])
def test_a_model_comes_as_its_parameters(tmp_path: Path, make: Any):
    model: Any = make()
    model.save(tmp_path / "model.zip")
    carried = KIND.read(tmp_path / "model.zip")

    assert kind_of(tmp_path / "model.zip") is KIND
    parameters = model.get_parameters()
    assert set(parameters) <= set(carried.tree)
    assert sum(assert_same(carried.tree[name], dict(value)) for name, value in parameters.items()) > 10
    assert carried.tree["data"]["num_timesteps"] == model.num_timesteps
    assert carried.tree["data"]["gamma"] == model.gamma
    assert carried.metadata["stable_baselines3"] == "2.9.2"
    assert "Python" in carried.metadata["system_info"]
    if make is sac:
        assert raw(carried.tree["pytorch_variables"]["log_ent_coef"]) == raw(model.log_ent_coef)


@pytest.mark.full
def test_what_is_only_in_a_pickle_is_named_and_not_read(tmp_path: Path):
    ppo().save(tmp_path / "model.zip")
    carried, contents = KIND.read(tmp_path / "model.zip"), KIND.contents(tmp_path / "model.zip")

    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        document = json.loads(archive.read("data"))
    pickles = {key for key, value in document.items() if isinstance(value, dict) and ":serialized:" in value}
    assert {"policy_class", "observation_space", "action_space", "lr_schedule"} <= pickles
    assert carried.tree["data"] == {key: value for key, value in document.items() if key not in pickles}
    assert "data/observation_space: a pickle of gymnasium.spaces.box.Box, not read." in carried.losses
    assert "data/action_space: a pickle of gymnasium.spaces.discrete.Discrete, not read." in carried.losses
    assert contents.kind == "Stable-Baselines3 2.9.2"
    lines = {leaf.name: leaf.what for leaf in contents.leaves}
    assert lines["policy/action_net.weight"] == "float32 2×8"
    assert lines["policy.optimizer/state/0/exp_avg"] == "float32 8×4"
    assert lines["data/gamma"] == "0.99"


@pytest.mark.full
def test_a_policy_goes_to_every_kind_and_into_a_model_again(tmp_path: Path):
    model, other = ppo(), ppo(0)
    model.save(tmp_path / "model.zip")
    convert(tmp_path / "model.zip", tmp_path / "policy.pt", component="policy")
    convert(tmp_path / "model.zip", tmp_path / "policy.safetensors", component="policy")
    convert(tmp_path / "model.zip", tmp_path / "run")
    convert(tmp_path / "policy.safetensors", tmp_path / "again.pt")
    convert(tmp_path / "run", tmp_path / "content.pt")

    parameters = model.get_parameters()
    for name in ("policy.pt", "again.pt"):
        weights = torch.load(tmp_path / name, weights_only=True)
        assert_same(dict(sorted(weights.items())), dict(sorted(parameters["policy"].items())))
    whole = torch.load(tmp_path / "content.pt", weights_only=True)["content"]
    other.set_parameters({name: whole[name] for name in parameters})
    assert_same({**other.get_parameters()["policy"]}, {**parameters["policy"]})
    assert_same(other.get_parameters()["policy.optimizer"], parameters["policy.optimizer"])


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("models") / "model.zip"
    ppo(0).save(file)
    return file


@pytest.fixture
def model(model_file: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    (tmp_path / "model.zip").write_bytes(model_file.read_bytes())
    return tmp_path / "model.zip"


@pytest.mark.full
def test_a_flipped_bit_in_a_tensor_is_found(model: Path):
    weight = raw(KIND.read(model).tree["policy"]["value_net.weight"])
    assert weight is not None
    data = bytearray(model.read_bytes())
    data[data.index(weight[2])] ^= 1
    model.write_bytes(data)

    with pytest.raises(DamagedError, match=r"model\.zip: policy\.pth: its bytes are not those that its checksum"):
        KIND.read(model)


@pytest.mark.full
@pytest.mark.parametrize("cut", [60, 3000, -1])
def test_cut_archives_are_known_and_refused(model: Path, cut: int):
    model.write_bytes(model.read_bytes()[:cut])

    assert kind_of(model) is KIND
    with pytest.raises(DamagedError, match="no whole zip archive"):
        KIND.contents(model)


def set_members(**content: bytes) -> Any:
    names = {"data_": "data", "policy_pth": "policy.pth", "data_pth": "data.pth"}
    return lambda found: found.update({names.get(name, name): value for name, value in content.items()})


@pytest.mark.full
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_members(data_=b"{"), "data: is not JSON"),
        (set_members(data_=b"\xff"), "data: is not JSON"),
        (set_members(data_=b"[" * 100_000), "data: is not JSON"),
        (set_members(data_=b'{"a": ' + b"9" * 5000 + b"}"), "data: is not JSON"),
        (set_members(data_=b"[]"), "data: a list, not a mapping"),
        (set_members(policy_pth=b"PK"), "policy.pth: no whole zip archive"),
        (set_members(policy_pth=pickle.dumps({})), "policy.pth: no whole zip archive"),
        (set_members(data_pth=b"x"), "data.pth: data stands there twice"),
        (set_members(**{"../x.pth": b"x"}), "'../x.pth': a name of a member that leads elsewhere"),
        (set_members(**{"/x": b"x"}), "'/x': a name of a member that leads elsewhere"),
    ],
)
def test_damage_is_refused_with_its_place(model: Path, change: Any, message: str):
    rewritten(model, change)
    for look in (KIND.contents, KIND.read):
        with pytest.raises(DamagedError) as caught:
            look(model)
        assert str(caught.value).startswith(f"{model}: ")
        assert message in str(caught.value)


@pytest.mark.full
def test_archives_that_were_packed_anew_are_read(model: Path):
    before = KIND.read(model).tree
    found: Members = {}

    def keep(members: Members) -> None:
        found.update(members, note=b"of mine")
        members.clear()
        members.update(reversed(found.items()))

    rewritten(model, keep, zipfile.ZIP_DEFLATED)

    assert kind_of(model) is KIND
    carried = KIND.read(model)
    assert_same(carried.tree["policy"], before["policy"])
    assert "note: a member that Stable-Baselines3 does not write, not read." in carried.losses


class Harm:
    """Pickled by a call of `os.system`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch harmed",)


@pytest.mark.full
def test_nothing_in_a_pickle_is_run(model: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(model.parent)
    harm = {":type:": "<class 'x.Harm'>", ":serialized:": base64.b64encode(pickle.dumps(Harm())).decode()}

    def poison(found: Members) -> None:
        found["data"] = json.dumps(json.loads(found["data"]) | {"harm": harm}).encode()
        found["harm.pkl"] = pickle.dumps(Harm())

    rewritten(model, poison)
    torch.save({"harm": Harm(), "w": torch.ones(1)}, model.parent / "harm.pth")
    rewritten(model, lambda found: found.update({"more.pth": (model.parent / "harm.pth").read_bytes()}))
    carried = KIND.read(model)

    assert "data/harm: a pickle of x.Harm, not read." in carried.losses
    assert "more/harm: an object of posix.system, not read." in carried.losses
    assert "harm.pkl: a member that Stable-Baselines3 does not write, not read." in carried.losses
    assert sorted(path.name for path in model.parent.iterdir()) == ["harm.pth", "model.zip"]


@pytest.mark.full
def test_statistics_of_a_normaliser_are_read(tmp_path: Path):
    environment: Any = VecNormalize(DummyVecEnv([lambda: gymnasium.make("CartPole-v1")]))
    environment.reset()
    for _ in range(5):
        environment.step(np.array([0]))
    environment.save(str(tmp_path / "v.pkl"))
    carried = KIND.read(tmp_path / "v.pkl")

    assert kind_of(tmp_path / "v.pkl") is KIND
    assert raw(carried.tree["obs_rms"]["mean"]) == raw(environment.obs_rms.mean)
    assert raw(carried.tree["obs_rms"]["var"]) == raw(environment.obs_rms.var)
    assert carried.tree["ret_rms"]["count"] == environment.ret_rms.count
    assert (carried.tree["clip_obs"], carried.tree["epsilon"]) == (10.0, 1e-8)
    assert "observation_space: an object of gymnasium.spaces.box.Box, not read." in carried.losses


@pytest.mark.full
def test_a_replay_buffer_is_read(tmp_path: Path):
    model = dqn()
    model.save_replay_buffer(tmp_path / "r.pkl")
    carried = KIND.read(tmp_path / "r.pkl")
    buffer: Any = model.replay_buffer

    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
        assert raw(carried.tree[name]) == raw(getattr(buffer, name)), name
    assert (carried.tree["pos"], carried.tree["full"]) == (buffer.pos, buffer.full)
    assert carried.losses[0] == (
        "the file: stable_baselines3.common.buffers.ReplayBuffer became a mapping of its fields."
    )
    contents = {leaf.name: leaf.what for leaf in KIND.contents(tmp_path / "r.pkl").leaves}
    assert contents["observations"] == "float32 20×1×4"
    data = (tmp_path / "r.pkl").read_bytes()
    (tmp_path / "r.pkl").write_bytes(data[:-20])
    with pytest.raises(DamagedError, match="as Stable-Baselines3 wrote it"):
        KIND.read(tmp_path / "r.pkl")
    (tmp_path / "r.pkl").write_bytes(pickle.dumps({"of": "another class"}))
    with pytest.raises(NoCheckpointError, match="of no kind that is known here"):
        kind_of(tmp_path / "r.pkl")
