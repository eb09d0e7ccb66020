"""Secrets are taken out of text, and ordinary code, options and URLs are left as they are."""

import pytest

from perdure.contract.redaction import WITHHELD, names_a_secret_option, redacted, redacted_words

HEX = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("https://me:hunter2@example.org/a.git", "hunter2"),
        ("https://ghp_abc@example.org/a.git", "ghp_abc"),
        ("http://u:p%40x@proxy:8080", "p%40x"),
        ("x = f('ghp_0123456789abcdefghij')", "ghp_0123456789abcdefghij"),
        ("github_pat_11ABCDEFG0abcdefghij", "github_pat_11ABCDEFG0abcdefghij"),
        ("sk-ant-0123456789abcdefghij", "sk-ant-0123456789abcdefghij"),
        ("hf_abcdefghijklmnopqrst", "hf_abcdefghijklmnopqrst"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
        ("Bearer eyJhbGciOi.eyJzdWIiOi.c2ln", "eyJhbGciOi.eyJzdWIiOi.c2ln"),
        (f"wandb.login(key='{HEX}')", HEX),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----", "MIIabc"),
        ("+-----BEGIN PRIVATE KEY-----\n+MIIabc", "MIIabc"),
        ("+WANDB_API_KEY=correcthorse", "correcthorse"),
        ("export AWS_SECRET_ACCESS_KEY=wJalr/XUtn", "wJalr/XUtn"),
        ("password = 'correct horse'", "correct horse"),
        ('{"api-key": "abc", "x": 1}', "abc"),
        ("db_password: hunter22", "hunter22"),
    ],
)
def test_what_is_taken_out(text: str, secret: str):
    assert secret in text
    assert secret not in redacted(text, {})
    assert WITHHELD in redacted(text, {})


@pytest.mark.parametrize(
    "text",
    [
        "token = tokenizer.encode(text)",
        "self.token_embedding = nn.Embedding(8)",
        "max_tokens = 4096",
        "tokenizer=bert-base-uncased",
        "key = jax.random.PRNGKey(0)",
        "sort_key: name12",
        "token: str | None = None",
        "index 83ab12f..deadbee 100644",
        f"Subproject commit {HEX}",
        "git@example.org:me/a.git",
        "https://example.org/a?x=1",
        "use_secret=False, token=None",
        "",
    ],
)
def test_what_is_left(text: str):
    assert redacted(text, {}) == text


def test_long_lines_take_no_longer_than_their_length_asks_for():
    """A pattern that begins anew at each letter of a word would take hours."""
    for text in ("a" * (1 << 20), "a.-" * 300_000, "token" * 200_000, "'" * (1 << 20), "://" * 300_000):
        assert redacted(text, {}) == text


def test_the_rest_of_the_line_stays():
    assert redacted("a = 1\n+API_KEY='x'  # note\nb = 2\n", {}) == f"a = 1\n+API_KEY='{WITHHELD}'  # note\nb = 2\n"


def test_values_of_secret_variables_are_taken_out_wherever_they_stand(tmp_path):
    file = tmp_path / "credentials.json"
    file.write_text("{}")
    environment = {"MY_TOKEN": "correct-horse", "CREDENTIALS": str(file), "SHORT_KEY": "abc", "PLAIN": "battery-staple"}
    text = f"print('correct-horse', 'battery-staple', 'abc', '{file}')"

    assert redacted(text, environment) == text.replace("correct-horse", WITHHELD)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--api-key", "abc", "--seed", "1"], ["--api-key", WITHHELD, "--seed", "1"]),
        (["--token=abc"], [f"--token={WITHHELD}"]),
        (["--wandb.api_key", "abc"], ["--wandb.api_key", WITHHELD]),
        (["WANDB_API_KEY=abc"], [f"WANDB_API_KEY={WITHHELD}"]),
        (["--url", "https://a:b@c"], ["--url", f"https://{WITHHELD}@c"]),
        (["--token", "--verbose"], ["--token", "--verbose"]),
        (["--max-token", "4096", "--tokenizer", "bert", "--tokens=7"],) * 2,
        (["train.py", "secret", "x"],) * 2,
        ([],) * 2,
    ],
)
def test_command_lines(words: list[str], expected: list[str]):
    assert redacted_words(words, {}) == expected


def test_which_keys_speak_of_a_secret():
    assert all(map(names_a_secret_option, ["api_key", "wandb.api-key", "TOKEN", "db_password", "secret"]))
    assert not any(map(names_a_secret_option, ["key", "tokenizer", "n_tokens", "secretary", "api", "keys.api"]))
