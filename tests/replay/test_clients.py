"""Clients that give up, leave or are turned away, and requests that cannot run: traces small enough to do by hand.

Each step takes a second and a few milliseconds (`hardware.step_overhead_ms`), so a clock time says which step it is.
With asynchronous scheduling a step is decided while the one before it still runs.
"""

import csv

import pytest

from pipeline import config, hardware
from tests.replay import servecast

SECOND = {"hardware__step_overhead_ms": 1000}


@pytest.fixture
def replay(tmp_path):
    """Replay a line; return its requests as tuples of the named columns, and the run folder."""

    def replay(text, columns, *more, **changed):
        path = servecast.trace(tmp_path / "trace.parquet", text)
        folder = servecast.replay(path, tmp_path / "runs", *more, **SECOND | changed)
        return servecast.requests(folder).select(columns).rows(), folder

    return replay


def step_ns(*shapes):
    """Return ends of consecutive steps by the plain formula; a shape is (decodes, contexts, chunks)."""
    steps = hardware.resolve(config.load(overrides=["hardware.step_overhead_ms=1000"])).step_time
    ends, now = [], 0
    for decodes, contexts, chunks in shapes:
        now += steps.step_ns(decodes, contexts, chunks, len(chunks))
        ends.append(now)
    return ends


def test_stamps_of_one_request(replay):
    ends = step_ns((0, 0, [(32, 0)]), (1, 33, []), (1, 34, []))
    columns = ["outcome", "first_scheduled_ns", "first_token_ns", "finish_ns", "first_token_step", "finish_step"]
    rows, _ = replay("5us 32>3", columns)
    late = 5000
    assert rows == [("finished", late, ends[0] + late, ends[2] + late, 0, 2)]


def test_a_client_gives_up_while_its_request_runs(replay):
    """It leaves after 2.5 s; the engine sees that when it next decides, at the end of its third step."""
    columns = ["outcome", "finish_ns", "output_tokens", "computed_tokens", "first_token_step", "finish_step"]
    rows, _ = replay("0us 32>10", columns, load__timeout_s=2.5)
    assert rows == [("timed_out", 2_500_000_000, 3, 32 + 3, 0, 2)]  # the fourth token is in flight and reaches nobody


def test_a_client_gives_up_under_synchronous_scheduling(replay):
    rows, _ = replay(
        "0us 32>10",
        ["outcome", "output_tokens", "computed_tokens"],
        load__timeout_s=2.5,
        engine__async_scheduling="false",
    )
    assert rows == [("timed_out", 3, 32 + 2)]


def test_a_client_gives_up_in_the_queue(replay):
    columns = ["outcome", "first_scheduled_ns", "finish_ns", "output_tokens", "computed_tokens", "cached_tokens"]
    rows, _ = replay("0us 32>9, 1us 32>9", columns, load__timeout_s=3.5, engine__max_num_seqs=1)
    assert rows[0][0] == "timed_out"
    assert rows[1] == ("timed_out", None, 3_500_001_000, 0, 0, None)


def test_one_that_gives_up_makes_room_for_the_next(replay):
    """The first runs until its client leaves at 6 s; the second, there since 4 s, starts then and is done by 10 s."""
    rows, _ = replay("0us 32>50, 4s 32>2", ["outcome", "output_tokens"], load__timeout_s=6, engine__max_num_seqs=1)
    assert rows == [("timed_out", 6), ("finished", 2)]
    rows, _ = replay("0us 32>50, 1us 32>2", ["outcome", "output_tokens"], load__timeout_s=6, engine__max_num_seqs=1)
    assert rows == [("timed_out", 6), ("timed_out", 0)]
    rows, _ = replay("0us 32>5, 1us 32>2", ["outcome", "output_tokens"], load__timeout_s=10, engine__max_num_seqs=1)
    assert rows == [("finished", 5), ("finished", 2)]


def test_a_full_queue_refuses_at_once(replay):
    """Four arrive while the first runs; one may wait."""
    text = "0us 32>4, 100ms 32>2, 200ms 32>2, 300ms 32>2"
    columns = ["outcome", "finish_ns", "first_scheduled_ns", "output_tokens"]
    rows, _ = replay(text, columns, load__queue_limit=1, engine__max_num_seqs=1)
    assert [row[0] for row in rows] == ["finished", "finished", "queue_full", "queue_full"]
    assert rows[2:] == [("queue_full", 200_000_000, None, 0), ("queue_full", 300_000_000, None, 0)]


def test_a_cancelled_request_stops_where_the_log_says(replay):
    ends = step_ns((0, 0, [(32, 0)]), (1, 33, []), (1, 34, []))
    rows, _ = replay("0us 32>3 cancelled", ["outcome", "output_tokens", "finish_ns", "log_status"])
    assert rows == [("cancelled", 3, ends[2], "cancelled")]


def test_prompts_at_and_beyond_the_context_limit(replay):
    columns = ["outcome", "output_tokens", "first_token_ns", "finish_ns"]
    rows, folder = replay("0us 511>9, 1us 512>1, 2us 9000>1, 3us 500>100", columns)
    assert [row[:2] for row in rows] == [("max_model_len", 1), ("rejected", 0), ("rejected", 0), ("max_model_len", 12)]
    assert rows[1][2:] == rows[2][2:] == (None, None)
    assert servecast.facts(folder)["counts"]["outcomes"] == {"max_model_len": 2, "rejected": 2}


def test_every_outcome_is_counted_by_status(tmp_path):
    """One runs and two may wait. The fourth runs for 13 steps from 3 s on, to the context limit; the fifth then until
    its client leaves at 33 s; the sixth, waiting since 4 s, has no time left; two more found the queue full; the last
    still gets its token.
    """
    text = "0us 32>2 cancelled, 1us 9000>1, 2us 9>9 status=error, 3s 500>100, 3s 32>90, 4s 32>9 times=3, 20s 32>1"
    path = servecast.trace(tmp_path / "t.parquet", text)
    changes = {"load__queue_limit": 2, "load__timeout_s": 30, "engine__max_num_seqs": 1}
    full = servecast.replay(path, tmp_path / "runs", **SECOND | changes)
    changes = {"engine__num_gpu_blocks": 32}
    stalled = servecast.replay(path, tmp_path / "runs", **SECOND | changes)
    result = servecast.run("sql", full, stalled, "FROM requests_by_status", "--format", "csv")
    counted = {full.name: {}, stalled.name: {}}
    for row in csv.DictReader(result.stdout.splitlines()):
        counted[row["run_id"]][row["outcome"], row["log_status"]] = int(row["requests"])
    assert counted == {
        full.name: {
            ("cancelled", "cancelled"): 1,
            ("rejected", "ok"): 1,
            ("not_replayed", "error"): 1,
            ("max_model_len", "ok"): 1,
            ("timed_out", "ok"): 2,
            ("queue_full", "ok"): 2,
            ("finished", "ok"): 1,
        },
        stalled.name: {
            ("cancelled", "cancelled"): 1,
            ("rejected", "ok"): 1,
            ("not_replayed", "error"): 1,
            ("never_finished", "ok"): 6,
        },
    }


@pytest.mark.summary
def test_rejected_requests_are_in_the_summary(tmp_path):
    path = servecast.trace(tmp_path / "t.parquet", "0us 32>2, 1us 600>1, 2us 600>1")
    result = servecast.run("replay", path, "-o", tmp_path, *servecast.settings())
    assert "1 finished, 2 rejected" in result.stdout


def test_a_request_that_never_fits_holds_up_all_behind_it(replay):
    """31 blocks can be handed out: 496 tokens. vLLM starts all the same, and stalls."""
    text = "0us 32>2, 1s 500>1, 2s 32>2"
    rows, folder = replay(text, ["outcome", "output_tokens", "first_scheduled_ns"], engine__num_gpu_blocks=32)
    assert rows[0][:2] == ("finished", 2)
    assert rows[1:] == [("never_finished", 0, None)] * 2
    facts = servecast.facts(folder)
    assert facts["counts"]["stalled"] is True
    assert any("stalled" in text for text in facts["warnings"])


def test_what_the_log_did_not_serve_is_not_load(replay):
    columns = ["outcome", "output_tokens", "replica", "arrival_ns"]
    rows, folder = replay("0us 32>2, 1us 32>2 status=error, 2us 32>2 status=throttled", columns)
    assert rows == [("finished", 2, 0, 0), ("not_replayed", None, None, 1000), ("not_replayed", None, None, 2000)]
    assert servecast.facts(folder)["trace"]["replayed"] == 1


def test_twice_the_rate(replay):
    text = "0us 32>1, 7us 32>1, 3s 32>1"
    rows, folder = replay(text, ["arrival_ns", "outcome"], load__rate_scale=2)
    assert rows == [(0, "finished"), (3500, "finished"), (1_500_000_000, "finished")]
    assert servecast.facts(folder)["trace"]["span_us"] == 3_000_000  # of the log, not of the replay
