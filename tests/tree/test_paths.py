"""`format_path`: readable for ordinary names, and never the same text for two paths."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.tree.paths import Path, format_path

# Few characters, so that collisions would be met: digits, signs, quotes, escapes, the separator, a newline.
STEPS = st.one_of(st.integers(-12, 12), st.text(alphabet='01-/"\\ \nué٣\ud800', max_size=4))
PATHS = st.lists(STEPS, max_size=3).map(tuple)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("optimizer", 0, "mu", "kernel"), "optimizer/0/mu/kernel"),
        (("networks",), "networks"),
        (("a", -3), "a/-3"),
        (("a", "-3"), 'a/"-3"'),
        (("a", "0"), 'a/"0"'),
        (("a", ""), 'a/""'),
        (("a/b",), '"a/b"'),
        (("a", "b"), "a/b"),
        (('say "hi"',), r'"say \"hi\""'),
        (("two words",), "two words"),
        (("line\n",), r'"line\n"'),
        (("schlüssel",), "schlüssel"),
        (("3a",), "3a"),
    ],
)
def test_ordinary_names_are_plain_and_ambiguous_ones_quoted(path: Path, text: str):
    assert format_path(path) == text


@settings(max_examples=400, deadline=None)
@given(PATHS, PATHS)
def test_two_different_paths_never_read_the_same(a: Path, b: Path):
    assert (format_path(a) == format_path(b)) == (a == b)


@pytest.mark.parametrize("step", [0, 7, -1, 10**30])
def test_a_position_never_reads_like_the_text_of_its_digits(step: int):
    assert format_path(("a", step)) != format_path(("a", str(step)))
