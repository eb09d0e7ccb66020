"""Taking secrets out of text before it is written to a run's directory. Errs on the side of taking too much."""

import os
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

WITHHELD = "[withheld]"
"""Stands where a secret stood."""

_NAME = r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL"
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)

_URL = re.compile(r"((?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,30}://)[^\s/@'\"<>]+@", re.IGNORECASE)
"""`https://user:token@host`, and `https://token@host`."""

_SHAPES = re.compile(
    r"""
    \b(?:
        gh[opusr]_[A-Za-z0-9]{16,} | github_pat_\w{16,} | glpat-[\w-]{16,}       # GitHub, GitLab
      | sk-[\w-]{16,} | hf_[A-Za-z0-9]{16,} | xox[a-z]-[\w-]{10,}                # OpenAI, Hugging Face, Slack
      | (?:AKIA|ASIA)[A-Z0-9]{16} | AIza[\w-]{30,} | pypi-[\w-]{16,}             # Amazon, Google, PyPI
      | eyJ[\w-]{4,}\.[\w-]{4,}\.[\w-]*                                          # JSON web tokens
    )
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----(?:.|\n)*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    | (?<=["'])[0-9a-f]{40}(?=["'])                                              # Weights & Biases' keys
    """,
    re.VERBOSE,
)

_ASSIGNED = re.compile(
    r"""
    (?P<name>
      (?<![\w.-])[\w.-]*(?:(?:API|ACCESS|PRIVATE|SECRET|AUTH|SIGNING|ENCRYPTION)[_-]?KEY|SECRET|TOKEN|PASSW(?:OR)?D|PASSPHRASE
      |CREDENTIALS?)["']?
    )
    (?P<sign>=|\s*[=:]\s*)
    (?P<value>
      "[^"\n]+" | '[^'\n]+'                                            # in code
      | (?<=[^\s]=)[^\s"'(){}\[\],;]{6,}(?=\s*(?:[,;}]|$))             # in a file of variables
      | (?<=:\s)(?=\S*\d)[^\s"'(){}\[\],;]{6,}(?=\s*(?:[,;}]|$))       # in YAML
    )
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
"""`API_KEY=…`, `token: "…"`, `"password": '…'`; neither `tokenizer=…` nor `token = encode(text)`."""

_HARMLESS = re.compile(r"[\"']?(?:[-+]?[\d._]+(?:e[-+]?\d+)?|true|false|none|null|\[withheld\])[\"']?", re.IGNORECASE)


def names_a_secret(name: str) -> bool:
    """Whether a name says that its value is a secret."""
    return _SECRET_NAME.search(name) is not None


def redacted(text: str, environment: Mapping[str, str] | None = None) -> str:
    """The text without secrets, as far as they can be told.

    Those are the credentials in URLs, tokens of well-known shapes, values of variables with telling names, and whatever
    is the value of such a variable in this process's environment, unless it is the path of a file.

    Args:
        text: any.
        environment: default: that of this process.
    """
    environment = os.environ if environment is None else environment
    values = {value for name, value in environment.items() if names_a_secret(name) and len(value) >= 8}
    for value in sorted(values, key=len, reverse=True):
        is_secret = not _HARMLESS.fullmatch(value) and not os.path.exists(value)  # noqa: PTH110 - it may be no path
        text = text.replace(value, WITHHELD) if is_secret else text
    return _ASSIGNED.sub(
        lambda found: found[0] if _HARMLESS.fullmatch(found["value"]) else _kept(found), without_tokens(text)
    )


def without_tokens(text: str) -> str:
    """The text without credentials in URLs and tokens of well-known shapes, whatever the environment holds."""
    return _SHAPES.sub(WITHHELD, _URL.sub(rf"\g<1>{WITHHELD}@", text))


def _kept(found: re.Match[str]) -> str:
    quote = found["value"][0] if found["value"][0] in "\"'" else ""
    return f"{found['name']}{found['sign']}{quote}{WITHHELD}{quote}"


_OPTION_WORD = frozenset({"token", "secret", "password", "passwd", "passphrase", "credential", "credentials", "apikey"})
_OPTION_PAIR = frozenset({("api", "key"), ("access", "key"), ("private", "key"), ("secret", "key"), ("auth", "key")})


def redacted_words(words: Sequence[str], environment: Mapping[str, str] | None = None) -> list[str]:
    """A command line without what `redacted` takes, and without values of options (`--api-key X`, `--token=X`).

    Numbers are no secrets (`--max-token 4096`), and neither are other words (`--tokenizer`, `--tokens`).
    """
    result: list[str] = []
    for at, word in enumerate(words):
        before = words[at - 1] if at else ""
        is_value = not word.startswith("-") and before.startswith("-") and names_a_secret_option(before)
        name, equals, value = word.partition("=")
        if is_value and not _HARMLESS.fullmatch(word):
            result.append(WITHHELD)
        elif equals and names_a_secret_option(name) and not _HARMLESS.fullmatch(value):
            result.append(f"{name}={WITHHELD}")
        else:
            result.append(redacted(word, environment))
    return result


def names_a_secret_option(option: str) -> bool:
    """Whether an option, a key of a configuration or a variable in `NAME=value` says that its value is a secret."""
    words = re.findall(r"[a-z]+", option.rsplit(".", 1)[-1].lower())
    return bool(_OPTION_WORD & set(words)) or any(pair in _OPTION_PAIR for pair in pairwise(words))
