"""Names of leaves: nested trees under dotted names, and rules that rename them."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from perdure.errors import UsageError
from perdure.interop.losses import Losses
from perdure.tree.leaves import Tree, leaves
from perdure.tree.paths import Path, format_path


def listed(tree: Mapping[str | int, Tree]) -> dict[str, Tree]:
    """Every leaf of a tree under the steps that lead to it, joined by dots: `layers.0.kernel`.

    Leaves that would share such a name stand under their paths instead: `a/b` and `a.b`.
    """
    found = list(leaves(dict(tree)))
    names = Counter(_dotted(path) for path, _ in found)
    return {_dotted(path) if names[_dotted(path)] == 1 else format_path(path): leaf for path, leaf in found}


def flat(tree: Mapping[str | int, Tree]) -> dict[str, Tree]:
    """The same, for files of flat names.

    Raises:
        UsageError: two leaves have the same name.
    """
    named: dict[str, Tree] = {}
    places: dict[str, str] = {}
    for path, leaf in leaves(dict(tree)):
        name, place = _dotted(path), format_path(path)
        if name in named:
            raise UsageError(f"{place} and {places[name]} would both be called {name}; rename one of them with --map.")
        named[name], places[name] = leaf, place
    return named


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))


def note_nesting(tree: Mapping[str | int, Tree], losses: Losses) -> None:
    """Notes that a file of flat names tells neither where a name was parted, nor positions and integers from text."""
    if any(len(path) > 1 or any(isinstance(step, int) for step in path) for path, _ in leaves(dict(tree))):
        losses.add("names", "the steps that lead to a leaf became one text, joined by dots.")


@dataclass(frozen=True)
class Rule:
    """One rule of a name map."""

    pattern: re.Pattern[str]
    """What is looked for, anywhere in a name."""
    replacement: str
    r"""What is put in its place; `\1` stands for the first group."""

    @classmethod
    def of(cls, text: str) -> "Rule":
        r"""From `PATTERN=REPLACEMENT`; the first `=` that is not escaped (`\=`) parts them.

        Raises:
            UsageError: there is no `=`, or the pattern is no regular expression.
        """
        pattern, parting, replacement = _parted(text)
        if not parting or not pattern:
            raise UsageError(f"--map {text}: write PATTERN=REPLACEMENT, for instance 'policy\\.(.*)=actor.\\1'.")
        try:
            compiled = re.compile(pattern)
            compiled.sub(replacement, "")  # checks the replacement, although nothing need fit
        except (re.error, IndexError) as error:
            raise UsageError(f"--map {text}: {error}; the pattern is a regular expression of Python.") from error
        return cls(compiled, replacement)


def _parted(text: str) -> tuple[str, str, str]:
    parting = re.search(r"(?<!\\)=", text)
    if parting is None:
        return text, "", ""
    return text[: parting.start()].replace(r"\=", "="), "=", text[parting.end() :]


def renamed(named: Mapping[str, Tree], rules: Sequence[Rule], losses: Losses) -> tuple[dict[str, Tree], dict[str, str]]:
    """The leaves under the names that the rules give them, one rule after another; an empty name leaves one out.

    Args:
        named: leaves by name.
        rules: the map.
        losses: where leaves that are left out are noted.

    Returns:
        The leaves by their new names, and the old name of each new one.

    Raises:
        UsageError: a rule fits no name, two leaves get the same name, or a rule takes a step away and leaves its dot.
    """
    _refuse_idle(named, rules)
    found: dict[str, Tree] = {}
    origins: dict[str, str] = {}
    for name, leaf in named.items():
        new = apply(name, rules)
        if not new:
            losses.add(name, "left out, as --map says.")
            continue
        _refuse_torn(name, new)
        if new in found:
            raise UsageError(f"--map: {name} and {origins[new]} would both be called {new}.")
        found[new], origins[new] = leaf, name
    return found, origins


def apply(name: str, rules: Iterable[Rule]) -> str:
    """The new name; once it is empty, no other rule gives it one."""
    for rule in rules:
        name = rule.pattern.sub(rule.replacement, name) if name else name
    return name


def _refuse_torn(name: str, new: str) -> None:
    """An empty step is what is left where somebody meant to leave a leaf out: `opt.eps` under `eps=` is `opt.`."""
    if "" in new.split(".") and "" not in name.split("."):
        raise UsageError(
            f"--map: {name} would be called {new}. A rule replaces what its pattern fits and nothing else: to leave a "
            r"leaf out, fit its whole name ('.*eps.*='); to take a step away, fit its dot, too ('^policy\.=')."
        )


def _refuse_idle(named: Mapping[str, Tree], rules: Sequence[Rule]) -> None:
    """A rule that fits nothing is a misspelt one."""
    names = list(named)
    for rule in rules:
        if not any(rule.pattern.search(name) for name in names):
            some = ", ".join(names[:5])
            raise UsageError(f"--map: {rule.pattern.pattern} fits none of the {len(names)} names: {some}, …")
        names = [new for name in names if (new := rule.pattern.sub(rule.replacement, name))]
