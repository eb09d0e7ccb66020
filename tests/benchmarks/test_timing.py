"""Peers take turns: equally often, in changing orders, and the first round does not count."""

from benchmarks.common.timing import Sample, interleaved


def test_the_first_round_is_thrown_away_and_orders_change():
    calls: list[tuple[str, int]] = []

    def work(name):
        def do(turn):
            calls.append((name, turn))
            return float(turn)

        return do

    samples = interleaved({name: work(name) for name in "abc"}, repeats=9)
    rounds = [[name for name, turn in calls if turn == at] for at in range(10)]

    assert samples == dict.fromkeys("abc", Sample(tuple(map(float, range(1, 10)))))
    assert calls == [(name, at) for at, names in enumerate(rounds) for name in names]
    assert all(sorted(names) == ["a", "b", "c"] for names in rounds)
    assert len({tuple(names) for names in rounds}) > 3  # more than a rotation has


def test_median_and_quartiles():
    assert (Sample((4.0, 1.0, 2.0, 3.0, 5.0)).median, Sample((4.0, 1.0, 2.0, 3.0, 5.0)).quartiles) == (3.0, (2.0, 4.0))
    assert Sample((7.0,)).quartiles == (7.0, 7.0)
