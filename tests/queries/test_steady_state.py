"""Warm-up by MSER-5 against the definition written out in Python, and what counts inside a window."""

import random

import pytest

from tests.queries.conftest import table

STEP_NS = 10_000_000


def steps(sql, running, replica=0):
    lines = [f"{replica} {i} {i * STEP_NS} {(i + 1) * STEP_NS} {n} {n}" for i, n in enumerate(running)]
    return "replica step start_ns end_ns running sampled\n" + "\n".join(lines)


def span(sql, last_ns):
    sql.rows("run_span", f"first_ns last_ns end_ns time_zone\n0 {last_ns} {last_ns + STEP_NS} UTC")


def mser5_ns(running, last_ns):
    """Return where the warm-up ends: the cut with the least sum of squares over the square of the number kept."""
    groups = [running[i : i + 5] for i in range(0, len(running), 5) if i * STEP_NS <= last_ns]
    means = [sum(group) / 5 for group in groups if len(group) == 5]
    best = None
    for cut in range(len(means) // 2 + 1):
        kept = means[cut:]
        mean = sum(kept) / len(kept)
        error = sum((value - mean) ** 2 for value in kept) / len(kept) ** 2
        if best is None or error < best[0] - 1e-12:
            best = (error, cut)
    return best[1] * 5 * STEP_NS, best[1] < len(means) // 2


def test_a_ramp_is_warm_up_and_what_follows_the_last_arrival_is_not_looked_at(sql):
    running = [1] * 5 + [4] * 5 + [8] * 30 + [2] * 20
    span(sql, 39 * STEP_NS)
    sql.rows("step_load", steps(sql, running))
    assert sql.ask("FROM steady_span") == table(f"from_ns to_ns\n{10 * STEP_NS} {39 * STEP_NS}")


@pytest.mark.parametrize("seed", range(6))
def test_warm_up_is_that_of_the_definition(sql, seed):
    rng = random.Random(seed)
    filled = rng.randint(5, 60)
    running = [round(min(1, i / filled) * 20 + rng.gauss(0, 2)) for i in range(200)]
    span(sql, 200 * STEP_NS)
    sql.rows("step_load", steps(sql, running))
    from_ns, settled = mser5_ns(running, 200 * STEP_NS)
    assert settled
    assert sql.ask("SELECT from_ns FROM steady_span") == table(f"from_ns\n{from_ns}")


def test_a_run_that_grows_to_its_end_never_settles(sql):
    span(sql, 100 * STEP_NS)
    sql.rows("step_load", steps(sql, range(100)))
    sql.rows("request_latency", "arrival_ns ttft_ms\n0 5\n900_000_000 7")
    assert sql.ask("SELECT from_ns FROM steady_span") == table("from_ns\n-")
    assert sql.answer("steady_state") == table("from_s settled requests output_tokens\n- false 0 -")
    assert sql.answer("latency_in_window") == table("metric samples")
    assert sql.answer("latency_in_window", from_s=0.5) == table("metric samples mean_ms\nttft 1 7")


def test_the_last_replica_to_settle_decides(sql):
    span(sql, 100 * STEP_NS)
    early, late = [9] * 60, [1] * 10 + [9] * 50
    text = steps(sql, early) + "\n" + steps(sql, late, replica=1).split("\n", 1)[1]
    sql.rows("step_load", text)
    assert sql.ask("SELECT from_ns FROM steady_span") == table(f"from_ns\n{10 * STEP_NS}")


def test_tokens_count_when_they_are_made_and_requests_when_they_arrive(sql):
    sql.rows("run_span", "first_ns last_ns end_ns time_zone\n0 200_000_000 260_000_000 UTC")
    sql.rows("steady_span", "from_ns to_ns\n100_000_000 200_000_000")
    sql.rows(
        "step_load",
        """
        step start_ns    end_ns      running sampled
        0    50_000_000  100_000_000 9       9
        1    90_000_000  150_000_000 4       3
        2    150_000_000 200_000_000 2       2
        3    200_000_000 260_000_000 1       1""",
    )
    sql.rows(
        "request_latency",
        """
        arrival_ns  ttft_ms e2e_ms
        0           500     900
        100_000_000 10      30
        200_000_000 20      -""",
    )
    assert sql.answer("steady_state") == table("""
        from_s to_s settled before_requests requests after_s output_tokens output_tokens_per_s running_mean
        0.1    0.2  true    1               2        0.06    5             50                  3""")
    assert sql.answer("steady_state", from_s=0.0, to_s=0.15) == table("requests output_tokens\n2 12")
    assert sql.answer("latency_in_window") == table("""
        metric samples mean_ms p50_ms max_ms
        ttft   2       15      15     20
        e2e    1       30      30     30""")
    assert sql.answer("latency_in_window", to_s=0.1) == table("metric samples\nttft 1\ne2e 1")
