import numpy as np
import polars as pl

from pipeline.ingest import ticks


def frame(*stamps):
    return pl.DataFrame({"clock_us": list(stamps), "n": range(len(stamps))})


def test_rows_stay_in_their_tick_and_in_their_order():
    stamps = [0] * 5 + [3000] * 4 + [6000, 12000, 12000]
    moved, width = ticks.spread(frame(*stamps), 1)
    clock = moved["clock_us"].to_list()
    assert width == 3000
    assert clock == sorted(clock)
    assert moved["n"].to_list() == list(range(12))
    assert all(0 <= new - old < 3000 for new, old in zip(clock, stamps, strict=True))
    assert len(set(clock)) > 8


def test_the_seed_decides():
    stamps = [0] * 20 + [3000] * 20
    first, again, other = (ticks.spread(frame(*stamps), seed)[0]["clock_us"].to_list() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_offsets_are_uniform():
    moved, _ = ticks.spread(frame(*[0] * 20_000, 1_000_000), 3)
    quarters = np.histogram(moved["clock_us"].to_numpy()[:-1], 4, (0, 1_000_000))[0]
    assert abs(quarters - 5_000).max() < 5 * np.sqrt(20_000 * 3 / 16)


def test_one_stray_stamp_does_not_decide_the_tick():
    stamps = [3000 * k for k in range(300)]
    assert ticks.tick_us(np.array(sorted([*stamps, 4501]))) == 3000


def test_one_stamp_has_no_tick():
    moved, width = ticks.spread(frame(5, 5, 5), 1)
    assert (width, moved["clock_us"].to_list()) == (0, [5, 5, 5])
    assert not moved["flag:ticks_spread"].any()


def test_bucketed_means_two_rows_a_stamp():
    assert ticks.is_bucketed(pl.Series([0, 0, 1, 1]))
    assert not ticks.is_bucketed(pl.Series([0, 0, 1]))
