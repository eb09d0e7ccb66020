"""What an agent's file looks like: the agents that write such modules and scalars, all of them where several do."""

from pathlib import Path

import numpy as np
import pytest

from perdure.interop.storage_ckpt import Section, StorageCheckpoint, describe, read
from perdure.interop.storage_ckpt.agents import AGENTS, looks_like, modules_of, notes_on_targets

DATA = Path(__file__).parents[2] / "data" / "storage_ckpt"
ALPHA = tuple(f"alpha.{name}" for name in ("value", "m", "v", "t", "b1_pow", "b2_pow"))
EPSILON = ("eps.epsilon", "eps.epsilon_decay", "eps.epsilon_min")
STEPS = "total_train_steps"


def file_of(modules: str, scalars: tuple[str, ...]) -> StorageCheckpoint:
    """A file of two layers a module."""
    names = [f"{prefix}.{at}.bias".removeprefix("-.") for prefix in modules.split() for at in range(2)]
    sections = tuple(Section("P", name, np.zeros(1, np.float32)) for name in names)
    return StorageCheckpoint(Path("x"), 3, sections, dict.fromkeys(scalars, 1.0))


@pytest.mark.parametrize(
    ("modules", "scalars", "agents"),
    [
        ("- - -", (*ALPHA, STEPS), ["SAC"]),
        ("- - -", (), []),
        ("- - -", (STEPS,), []),
        ("- -", (*ALPHA, STEPS), []),
        ("actor critic1 critic2", (), ["SAC", "TD3"]),
        ("actor critic1 critic2", (STEPS,), ["TD3"]),
        ("q_net", (*EPSILON, STEPS), ["DQN", "C51"]),
        ("q_net", (*EPSILON, f"_{STEPS}"), ["DQN", "C51"]),
        ("q_net", (), []),
        ("actor critic", (STEPS,), ["DDPG", "PPO"]),
        ("actor critic", (STEPS, "other"), []),
        ("actor critic0 critic1 critic2", (*ALPHA, STEPS), ["REDQ"]),
        ("actor critic0 critic1 state_branch action_branch predictor", (*ALPHA, STEPS), ["REDQ-OFE"]),
        ("actor critic1 critic2 dyn_member0 dyn_member1", (*ALPHA, "elites.n", "elites.0", STEPS), ["MBPO"]),
        ("critic actor", (STEPS,), []),
    ],
)
def test_a_file_looks_like_the_agents_that_write_such(modules: str, scalars: tuple[str, ...], agents: list[str]):
    checkpoint = file_of(modules, scalars)

    assert modules_of(checkpoint.sections) == modules.split()
    assert [agent.name for agent in looks_like(checkpoint)] == agents
    assert [line for line in describe(checkpoint).lines if line.startswith("looks like")] == [
        f"looks like {agent.name}: {agent.told}" for agent in looks_like(checkpoint)
    ]


def test_every_agent_of_the_specification_has_a_row():
    assert {agent.name for agent in AGENTS} == {"SAC", "DQN", "C51", "TD3", "DDPG", "PPO", "REDQ", "REDQ-OFE", "MBPO"}


def test_targets_are_told_of_where_an_agent_keeps_some():
    (note,) = notes_on_targets(file_of("actor critic", (STEPS,)))
    assert note.startswith("looks like an agent's file (DDPG keeps targets of the actor and the critic): copy target")
    assert notes_on_targets(file_of("net", ())) == []


def test_the_specification_s_files_are_described():
    sac = describe(read(DATA / "v3_multi_unprefixed_sac.ckpt"))
    assert (sac.agents, sac.modules, sac.sections) == (("SAC",), ("-", "-", "-"), 12)
    assert sac.lines[:3] == (
        "storage-ckpt version 3: 12 sections of 148 values",
        "looks like SAC: actor, critic, critic",
        "P 0.weight (24)",
    )
    assert sac.lines[-1] == "K total_train_steps = 400"
    assert "K alpha.value = -1.609" in sac.lines
    assert describe(read(DATA / "v3_multi_prefixed_td3.ckpt")).agents == ("TD3",)
    assert describe(read(DATA / "v2_dqn_trailing_kv.ckpt")).agents == ("DQN", "C51")
    assert describe(read(DATA / "v2_sac_prefixed.ckpt")).agents == ("SAC", "TD3")
    mixed = describe(read(DATA / "v3_mixed_moments_tdmpc2mt.ckpt"))
    assert (mixed.agents, mixed.with_moments) == ((), 1)
    assert mixed.lines[0] == "storage-ckpt version 3: 3 sections of 16 values, 1 with Adam's moments"


def test_names_of_a_foreign_file_cannot_order_a_terminal():
    section = Section("P", "a\x1b[2J.b", np.zeros(1, np.float32))
    described = describe(StorageCheckpoint(Path("x"), 3, (section,), {"k\r": float("nan"), "big": 1e300}))

    assert all(line.isprintable() for line in (*described.lines, *described.modules))
    assert described.lines[1:] == ("P a?[2J.b (1)", "K k? = nan", "K big = 1e+300")
