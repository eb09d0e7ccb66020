"""Likely causes in words: a table of rules over what was seen to differ. A guess, and said as one."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from perdure.adapters.process_rng import NAME as PROCESS_RNG


@dataclass(frozen=True)
class Symptoms:
    """What was seen to differ at the first boundary that does."""

    is_resume: bool
    """Whether a resumed run differs from a straight one; else two straight runs differ."""
    boundary: int
    """The boundary."""
    components: tuple[str, ...] = ()
    """Components that differ there."""
    metrics: bool = False
    """Whether metric rows differ up to there."""
    counters: bool = False
    """Whether env-steps or updates differ there."""
    is_other_run: bool = False
    """Whether a run was opened by one side alone."""
    is_other_end: bool = False
    """Whether one side ended at another boundary, and all is equal up to there."""
    leaves: tuple[str, ...] = ()
    """Paths of all leaves that differ there."""
    adapters: Mapping[str, str] = field(default_factory=dict)
    """Component -> its adapter."""
    fidelity: Mapping[str, str] = field(default_factory=dict)
    """Component -> its continuation class."""
    resembles: Mapping[str, int] = field(default_factory=dict)
    """Component -> the earlier boundary of the straight run at which it was the same."""
    hash_seed_helps: bool = False
    """Whether two straight runs are equal once the order of sets is fixed."""

    def leaf(self, pattern: re.Pattern[str]) -> str | None:
        """The first leaf whose path the pattern is found in."""
        return next((path for path in self.leaves if pattern.search(path)), None)


_GENERATOR = re.compile(r"bit_generator|np_random|rng|generator|(^|/)key$|(^|/)keys?/|random", re.IGNORECASE)
_RATE = re.compile(r"(^|/)(lr|learning_rate|step_size|_last_lr|last_epoch)($|/)")
_ENVIRONMENT = re.compile(r"^(envs?|environments?|obs|observations?|next_obs|episodes?)(_|/|$)")
_SPACE = re.compile(r"_spaces?/(?:[^/]+/)*_np_random/")
_STATE_METHODS = frozenset({"state-dict", "get-state"})

Rule = Callable[[Symptoms], str | None]


def likely_causes(symptoms: Symptoms) -> list[str]:
    """What may lie behind the symptoms, the most telling first; never empty."""
    rules = RESUME_RULES if symptoms.is_resume else SCRIPT_RULES
    return [said for rule in rules if (said := rule(symptoms)) is not None]


def _metrics_alone(s: Symptoms) -> str | None:
    if s.components or s.counters or not s.metrics:
        return None
    return (
        "The state is equal and a metric is not: it is computed from something that the run does not hold (a deque of "
        "returns, a running mean) or from the time. Hand that to restore, or leave the metric out of `metrics`."
    )


def _other_run(s: Symptoms) -> str | None:
    if not s.is_other_run:
        return None
    return (
        "The run's directory has another name in each process: a time stamp, a process id, a random word, the next "
        "free number. Give `Run` one that stays, or nothing is ever resumed."
    )


def _other_end(s: Symptoms) -> str | None:
    if not s.is_other_end:
        return None
    return (
        "What ends the loop is no state: a count that begins anew in each process (`for update in range(N)`), or a "
        "clock; or several runs share a loop, so that a stop at a boundary of one leaves the others a turn behind. Go "
        "on from `run.updates` or `run.env_steps`, or loop while `not run.is_finished`."
    )


def _restarted(s: Symptoms) -> str | None:
    names = [f"{name} is what the straight run had at boundary {at}" for name, at in sorted(s.resembles.items())]
    if not names:
        return None
    return (
        f"{'; '.join(names)}: it was begun anew, seeded anew or held still after `restore`. Do everything that seeds "
        "or resets before `restore`, or only `if not run.resumed`."
    )


def _process_generator(s: Symptoms) -> str | None:
    if PROCESS_RNG not in s.components:
        return None
    return (
        "A process-wide generator (`random`, `numpy.random`, `torch`) differs: something seeds it after `restore`, or "
        "draws from it another number of times in a resumed process: imports, a helper, evaluation at start."
    )


def _generator(s: Symptoms) -> str | None:
    leaf = s.leaf(_GENERATOR)
    if leaf is None or leaf.split("/")[0] == PROCESS_RNG:
        return None
    return (
        f"A generator differs ({leaf}): evaluation, a reset or a warm-up after `restore` draws from a training "
        "generator, or seeds it anew: give evaluation a generator of its own. Or how often it is drawn from depends on "
        "a value that no component holds (an exploration rate, a count, a network that chooses actions): `perdure "
        "audit` looks for it."
    )


def _rate(s: Symptoms) -> str | None:
    leaf = s.leaf(_RATE)
    if leaf is None:
        return None
    return (
        f"A learning rate differs ({leaf}): its scheduler is not handed to `restore`, or the rate is set anew, or "
        "cached, when the script starts."
    )


def _replayed(s: Symptoms) -> str | None:
    names = [name for name in s.components if s.fidelity.get(name) == "exact-replay"]
    if not names:
        return None
    return (
        f"{', '.join(names)}: an environment that is only replayed (docs/environments.md); something in it is not "
        "decided by its seed and its actions."
    )


def _state_dict(s: Symptoms) -> str | None:
    names = [name for name in s.components if s.adapters.get(name) in _STATE_METHODS]
    if not names:
        return None
    return (
        f"{', '.join(names)}: what its own state_dict (or get_state) leaves out is lost: a count, a cache, a moving "
        "average that its next update reads."
    )


def _environment(s: Symptoms) -> str | None:
    name = next((name for name in s.components if _ENVIRONMENT.search(name)), None)
    if name is None:
        return None
    return (
        f"{name}: an episode was reset after `restore`, a stream of levels or episodes begins anew, or actions come "
        "from a generator that is not handed in (`action_space.sample()` has one of its own)."
    )


def _outside(s: Symptoms) -> str | None:
    if not s.components or PROCESS_RNG in s.components or s.leaf(_GENERATOR) is not None:
        return None
    return (
        f"All generators are equal, and {', '.join(s.components)} {'is' if len(s.components) == 1 else 'are'} not: a "
        "component is missing that feeds it. Hand to `restore` whatever an iteration reads and an earlier one has "
        "written: a target network, a scheduler, a learning rate or coefficient in a variable, a deque of returns, "
        "a normaliser, an action space, a file of the script's own. `perdure audit` looks for it."
    )


def _other(s: Symptoms) -> str | None:
    return (
        "Less often: another number of threads or another device in the resumed process; `torch.compile` or JAX "
        "caches that choose other kernels; a thread of the script's own that changes state while it is saved; the "
        "order of a small set that was the same in both straight runs by luck (PYTHONHASHSEED=0 would tell)."
    )


def _set_order(s: Symptoms) -> str | None:
    if not s.hash_seed_helps:
        return None
    return (
        "The order of a set, or of `hash()` of texts: with PYTHONHASHSEED=0 two runs are equal. Iterate over "
        "`sorted(…)`, or set PYTHONHASHSEED for the script."
    )


def _unseeded_spaces(s: Symptoms) -> str | None:
    if not s.leaves or not all(_SPACE.search(path) for path in s.leaves):
        return None
    return (
        "Only generators of spaces differ: the system seeds them where nobody does, and `reset(seed=…)` leaves them "
        "out. `perdure.gym.seed_spaces(envs, seed)`, once they are made, seeds them all."
    )


def _unseeded_at_start(s: Symptoms) -> str | None:
    if s.boundary != 0:
        return None
    names = ", ".join(s.components)
    return f"Already the initial state differs ({names}): seed every generator before it is made, weights included."


def _unseeded_process(s: Symptoms) -> str | None:
    if PROCESS_RNG not in s.components:
        return None
    return (
        "A process-wide generator is drawn from and never seeded, or another number of times: call random.seed, "
        "numpy.random.seed, torch.manual_seed before anything draws."
    )


def _unseeded_environment(s: Symptoms) -> str | None:
    name = next((name for name in s.components if _ENVIRONMENT.search(name)), None)
    if name is None:
        return None
    return (
        f"{name}: an environment without a seed: `env.reset(seed=…)` once at the start, and "
        "`env.action_space.seed(…)` where actions are sampled from it."
    )


def _general(s: Symptoms) -> str | None:
    seen = "" if s.hash_seed_helps else " The order of sets is not it: with PYTHONHASHSEED=0 they differ, too."
    return (
        "The time, a process id or a path in the state or the metrics; a file outside of `run.directory` that one "
        "process writes and the next one reads; threads or a device that sum in another order (OMP_NUM_THREADS=1, "
        f"torch.use_deterministic_algorithms(True)); an unseeded generator.{seen}"
    )


RESUME_RULES: tuple[Rule, ...] = (
    _other_run,
    _other_end,
    _metrics_alone,
    _restarted,
    _rate,
    _process_generator,
    _generator,
    _replayed,
    _state_dict,
    _environment,
    _outside,
    _other,
)
"""For a resumed run that differs from a straight one."""

SCRIPT_RULES: tuple[Rule, ...] = (
    _other_run,
    _other_end,
    _set_order,
    _metrics_alone,
    _unseeded_spaces,
    _unseeded_at_start,
    _unseeded_process,
    _unseeded_environment,
    _general,
)
"""For two straight runs that differ."""
