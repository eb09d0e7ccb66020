"""Which agent of noeira a file looks like: the order of its modules and its scalars, one row an agent.

The rows say what noeira's trainers write, in version 3 with scalars, in version 2 mostly without. A file names no
agent, and two agents may write the same modules, so this only ever says what a file looks like.
"""

import re
from dataclasses import dataclass

from perdure.interop.storage_ckpt.sections import Section, StorageCheckpoint

STEPS = "total_train_steps"


@dataclass(frozen=True)
class Agent:
    """What the files of one agent look like."""

    name: str
    modules: str
    """A pattern over the modules' prefixes in order, a space between them; `-` is a module without prefix."""
    told: str
    """The modules in words."""
    scalars: tuple[str, ...]
    """Beginnings of the names of all scalars that it writes; empty where it writes none."""
    needs: tuple[str, ...]
    """Scalars that must be there."""
    targets: str
    """Which target networks it keeps beside; they are in no file."""


_EPSILON = ("eps.epsilon", "eps.epsilon_decay", "eps.epsilon_min")
_ALPHA = ("alpha.", STEPS)

AGENTS = (
    Agent("SAC", "- - -", "actor, critic, critic", _ALPHA, ("alpha.value",), "both critics"),
    Agent("SAC", "actor critic1 critic2", "actor, critic1, critic2", (), (), "both critics"),
    Agent("DQN", "q_net", "q_net", (*_EPSILON, STEPS, f"_{STEPS}"), _EPSILON, "the Q-network"),
    Agent("C51", "q_net", "q_net", (*_EPSILON, STEPS, f"_{STEPS}"), _EPSILON, "the Q-network"),
    Agent("TD3", "actor critic1 critic2", "actor, critic1, critic2", (STEPS,), (), "the actor and both critics"),
    Agent("DDPG", "actor critic", "actor, critic", (STEPS,), (), "the actor and the critic"),
    Agent("PPO", "actor critic", "actor, critic", (STEPS,), (), ""),
    Agent("REDQ", r"actor critic0( critic\d+)*", "actor, critic0, critic1, …", _ALPHA, (), "all critics"),
    Agent(
        "REDQ-OFE",
        r"actor critic0( critic\d+)* state_branch action_branch predictor",
        "actor, critic0, critic1, …, state_branch, action_branch, predictor",
        _ALPHA,
        (),
        "all critics",
    ),
    Agent(
        "MBPO",
        r"actor critic1 critic2( dyn_member\d+)+",
        "actor, critic1, critic2, dyn_member0, …",
        ("alpha.", "elites.", STEPS),
        (),
        "both critics",
    ),
)


def modules_of(sections: tuple[Section, ...]) -> list[str]:
    """The prefixes of the modules in order; `-` for each module without one, which begins where a name repeats."""
    found: list[str] = []
    names: set[str] = set()
    for section in sections:
        first = section.name.partition(".")[0]
        prefix = "-" if first.isdigit() else first
        key = f"{section.kind} {section.name}"
        if prefix == "-" and (not found or found[-1] != "-" or key in names):
            found.append("-")
            names = set()
        elif prefix != "-" and prefix not in found:
            found.append(prefix)
        names.add(key)
    return found


def looks_like(checkpoint: StorageCheckpoint) -> list[Agent]:
    """All agents whose files look like this one; none if none do."""
    modules = " ".join(modules_of(checkpoint.sections))
    return [agent for agent in AGENTS if re.fullmatch(agent.modules, modules) and _has_scalars(agent, checkpoint)]


def _has_scalars(agent: Agent, checkpoint: StorageCheckpoint) -> bool:
    names = checkpoint.scalars
    is_theirs = all(any(name.startswith(known) for known in agent.scalars) for name in names)
    return is_theirs and all(name in names for name in agent.needs)


def notes_on_targets(checkpoint: StorageCheckpoint) -> list[str]:
    """What whoever goes on with an agent must do: target networks stand in no file."""
    told = [f"{agent.name} keeps targets of {agent.targets}" for agent in looks_like(checkpoint) if agent.targets]
    if not told:
        return []
    return [
        f"looks like an agent's file ({'; '.join(told)}): copy target networks from the online ones, none are in it."
    ]
