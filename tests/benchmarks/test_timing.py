"""Peers take turns: equally often, each time in another order, and the first round does not count."""

from benchmarks.common.timing import Sample, interleaved


def test_the_first_round_is_thrown_away_and_the_order_rotates():
    calls: list[tuple[str, int]] = []

    def work(name):
        def do(turn):
            calls.append((name, turn))
            return float(turn)

        return do

    samples = interleaved({"a": work("a"), "b": work("b")}, repeats=2)

    assert samples == {"a": Sample((1.0, 2.0)), "b": Sample((1.0, 2.0))}
    assert calls == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]


def test_median_and_quartiles():
    assert (Sample((4.0, 1.0, 2.0, 3.0, 5.0)).median, Sample((4.0, 1.0, 2.0, 3.0, 5.0)).quartiles) == (3.0, (2.0, 4.0))
    assert Sample((7.0,)).quartiles == (7.0, 7.0)
