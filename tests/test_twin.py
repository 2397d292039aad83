"""The twin against the recorded decisions of the real scheduler, hand calculations, and rules that always hold."""

import itertools
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from tests import cases, engines, oracle, shared, strategies, vllm_cases
from tests.builders import trace

RECORDED = Path(__file__).parent / "cases" / "vllm"
QUICK = sorted([*RECORDED.glob("hand_*"), RECORDED / "fuzz"])
# The twin takes seconds for each of the longer ones. tests/kernel compares the engine with all of them, and
# `python tests/vllm_cases.py --engine twin FOLDER...` compares the twin.
LONGER = [RECORDED / name for name in ("chat_vtight_async", "longout_tight_async_priority")]
ELSEWHERE = ["azcode_tight_async", "azconv_long_prefill", "mooncake_syn_tight"]
MS = 1_000_000


def disagreements(folder):
    found = {}
    for case in cases.read(folder):
        lines = vllm_cases.differences(case, engines.twin_engine(case))
        if lines:
            found[case.name] = lines
    return found


@pytest.mark.parametrize("folder", QUICK, ids=lambda folder: folder.name)
def test_twin_decides_as_recorded(folder):
    assert disagreements(folder) == {}


@pytest.mark.parametrize("folder", LONGER, ids=lambda folder: folder.name)
def test_twin_decides_as_recorded_on_longer_cases(folder):
    assert disagreements(folder) == {}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_twin_decides_as_recorded_on_real_traces(name):
    assert disagreements(shared.path("oracle", "vllm", name)) == {}


def test_bundle_is_read_whole():
    bundle = list(cases.read(RECORDED / "fuzz"))
    assert len(bundle) == 160
    assert sum(len(case.arrival_ns) for case in bundle) == 5220
    assert sum(len(case.expected.steps["step"]) for case in bundle) == 35704


def test_block_numbers_stand_for_content():
    # three requests with blocks of 4: the second continues what the first said, cut into other segments
    first = [(7, 0, 6)]
    second = [(7, 0, 2), (7, 2, 4), (cases.GENERATED, 0, 3), (8, 0, 1)]
    third = [(7, 1, 6)]
    numbers, offsets = cases.intern_blocks([first, second, third], [3, 2, 0], 4)
    a, b, c = (list(numbers[offsets[i] : offsets[i + 1]]) for i in range(3))
    assert offsets.tolist() == [0, 3, 6, 8]
    assert a[:2] == b[:2]  # tokens 0 to 8 are the same
    assert a[2] != b[2]  # a ends there, b goes on with another token
    assert not set(c) & set(a + b)


# The command that compares


def test_comparison_shows_the_first_difference(tmp_path, capsys):
    folder = shutil.copytree(RECORDED / "hand_basic", tmp_path / "altered")
    steps = pq.read_table(folder / "steps.parquet")
    free = steps["free_blocks"].to_numpy().copy()
    free[[7, 9]] += 1
    steps = steps.set_column(steps.schema.get_field_index("free_blocks"), "free_blocks", pa.array(free, pa.int32()))
    pq.write_table(steps, folder / "steps.parquet")
    assert vllm_cases.main(["--engine", "twin", str(folder), str(RECORDED / "hand_maxlen")]) == 1
    altered, untouched, total = capsys.readouterr().out.splitlines()
    assert altered.endswith(f"steps, row 7, free_blocks: recorded {free[7]}, got {free[7] - 1}")
    assert untouched.endswith("ok")
    assert total == "1 of 2 folders agree"


def test_comparison_takes_folders_of_cases_and_names_what_is_none(tmp_path, capsys):
    for name in ("hand_basic", "hand_active"):
        shutil.copytree(RECORDED / name, tmp_path / name)
    assert vllm_cases.main(["--engine", "twin", str(tmp_path)]) == 0
    (tmp_path / "hand_active" / "steps.parquet").unlink()
    assert vllm_cases.main(["--engine", "twin", str(tmp_path)]) == 2
    assert "hand_active: no steps.parquet" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert vllm_cases.main(["--engine", "twin", str(tmp_path / "empty")]) == 2


def test_a_line_becomes_a_canonical_trace():
    table = trace("0us 20>4 prefix=a tenant=x, 1ms 30>5 follows=0 cancelled, 2s 8>1 status=error covered=0").table()
    table.validate(full=True)
    rows = table.to_pylist()
    assert [row["arrival_us"] for row in rows] == [0, 1000, 2_000_000]
    assert [row["status"] for row in rows] == ["ok", "cancelled", "error"]
    assert [row["replayable"] for row in rows] == [True, True, False]
    assert [row["tenant"] for row in rows] == ["x", None, None]
    assert [row["prefix_tokens"] for row in rows] == [24, 35, None]
    assert [len(row["prefix_hashes"] or []) for row in rows] == [2, 3, 0]
    assert rows[0]["prefix_hashes"][0] == rows[1]["prefix_hashes"][0]
    # the second block of row 0 ends at token 24, that of row 1 goes on to 32
    assert rows[0]["prefix_hashes"][1] != rows[1]["prefix_hashes"][1]


# Hand calculations. Step time 10 ms, whatever is in the step.


def replay(text, timeout_ns=None, queue_limit=None, **changes):
    settings_ = {
        "block_size": 4,
        "num_gpu_blocks": 100,
        "max_model_len": 64,
        "max_num_batched_tokens": 64,
        "max_num_seqs": 8,
        "async_scheduling": False,
        **changes,
    }
    engine = oracle.Engine(**settings_)
    requests = trace(text, block_tokens=4).requests(engine.block_size)
    return oracle.run(requests, engine, lambda _: 10 * MS, timeout_ns, queue_limit, check=True)


def outcomes(result):
    return list(zip(result.requests["outcome"], result.requests["output_tokens"], strict=True))


def test_one_request_alone():
    result = replay("5ms 6>3")
    assert result.requests["first_token_ns"] == [15 * MS]
    assert result.requests["finish_ns"] == [35 * MS]
    assert result.steps["prefill_tokens"] == [6, 0, 0]
    assert result.steps["decode_tokens"] == [0, 1, 1]
    assert result.steps["context_tokens"] == [6, 7, 8]
    assert result.steps["prefill_area"] == [18.0, 0, 0]  # 6 * (0 + 6 / 2)
    assert result.steps["free_blocks"] == [97, 97, 97]
    assert result.gaps["request"] == []


def test_async_decides_one_step_ahead():
    result = replay("0us 6>3", async_scheduling=True)
    assert result.steps["scheduled_ns"] == [0, 0, 10 * MS]
    assert result.steps["start_ns"] == [0, 10 * MS, 20 * MS]


def test_later_turn_finds_what_was_generated():
    # 10 + 7 tokens known, the last one never computed: 16 of 17 in KV, four blocks of 4
    result = replay("0us 10>7, 1s 20>3 follows=0")
    assert result.requests["cached_tokens"] == [0, 16]
    result = replay("0us 10>7 covered=prompt, 1s 20>3 follows=0")
    assert result.requests["cached_tokens"] == [0, 8]


def test_trace_blocks_of_another_size_hide_what_differs_inside_them():
    # 20 tokens in common; trace blocks of 8 show 16 of them, so engine blocks of 4 end at 16
    engine = oracle.Engine(4, 100, 64, 64, 8, async_scheduling=False)
    pair = trace("0us 30>1 prefix=a:20, 1s 30>1 prefix=a:20", block_tokens=8)
    result = oracle.run(pair.requests(4), engine, lambda _: MS)
    assert result.requests["cached_tokens"] == [0, 16]
    # engine blocks of 5 that end inside a common trace block are the same: 5, 10, 15
    result = oracle.run(pair.requests(5), oracle.Engine(5, 100, 64, 64, 8), lambda _: MS)
    assert result.requests["cached_tokens"] == [0, 15]


def test_preempted_request_has_a_gap():
    # 9 usable blocks of 4: both prompts take 4; at 17 tokens each needs a fifth, so the later one gives way
    result = replay("0us 16>4, 0us 16>3", num_gpu_blocks=10, enable_prefix_caching=False)
    assert result.requests["preemptions"] == [0, 1]
    assert result.steps["preempted"] == [0, 1, 0, 0, 0, 0]
    # the first runs steps 0 to 3; the second has 17 tokens to compute again in step 4
    assert result.requests["finish_step"] == [3, 5]
    assert result.gaps == {"request": [1], "step": [4], "previous_step": [0], "gap_ns": [40 * MS]}


def test_client_gives_up_at_the_next_decision():
    # deadline 25 ms: tokens at 10 and 20 ms are delivered, the one of the step that ends at 30 ms as well
    result = replay("0us 6>9", timeout_ns=25 * MS)
    assert outcomes(result) == [("timed_out", 3)]
    assert result.requests["finish_ns"] == [25 * MS]
    assert len(result.steps["step"]) == 3


def test_async_discards_the_token_in_flight():
    # decisions at 0, 0, 10, 20 and 30 ms; at 30 ms it is taken out while the step that ends at 40 ms runs
    result = replay("0us 6>9", timeout_ns=25 * MS, async_scheduling=True)
    assert outcomes(result) == [("timed_out", 3)]
    assert result.requests["finish_step"] == [2]
    assert len(result.steps["step"]) == 4


def test_finishing_at_the_deadline_is_finishing():
    assert outcomes(replay("0us 6>2", timeout_ns=20 * MS)) == [("finished", 2)]
    # the last token comes at 20 ms: its client left at 15 ms, and the token was work all the same
    late = replay("0us 6>2", timeout_ns=15 * MS)
    assert outcomes(late) == [("timed_out", 2)]
    assert late.requests["finish_ns"] == [15 * MS]
    assert outcomes(replay("0us 6>3", timeout_ns=20 * MS)) == [("timed_out", 2)]


def test_request_may_expire_before_it_is_handed_over():
    result = replay("0us 6>1, 1ms 6>1, 3ms 6>1", timeout_ns=8 * MS)
    # a step takes 10 ms, so nobody is served in time; the second is gone before the scheduler looks again
    assert outcomes(result) == [("timed_out", 1), ("timed_out", 0), ("timed_out", 1)]
    assert result.requests["finish_ns"] == [8 * MS, 9 * MS, 11 * MS]
    assert result.requests["first_scheduled_ns"] == [0, oracle.NONE, 10 * MS]


def test_deadline_ends_a_stall():
    # 3 usable blocks hold 12 tokens, so the first prompt never fits and holds up the second
    result = replay("0us 20>1, 20ms 4>1", num_gpu_blocks=4, timeout_ns=50 * MS)
    assert outcomes(result) == [("timed_out", 0), ("finished", 1)]
    assert result.requests["first_scheduled_ns"] == [oracle.NONE, 50 * MS]
    assert replay("0us 20>1, 1ms 4>1", num_gpu_blocks=4).stalled


def test_full_queue_turns_arrivals_away():
    # at 0 one is handed over and runs; at 10 ms two wait, and two more are turned away
    result = replay("0us 4>3, 1ms 4>1 times=4", max_num_seqs=1, queue_limit=2)
    assert [outcome for outcome, _ in outcomes(result)] == ["finished", "finished", "finished", *["queue_full"] * 2]
    assert result.requests["finish_ns"][3:] == [MS, MS]


def test_too_long_prompt_is_rejected_before_the_queue_is_looked_at():
    result = replay("0us 64>1, 0us 63>9, 0us 4>1", queue_limit=1)
    assert outcomes(result) == [("rejected", 0), ("max_model_len", 1), ("queue_full", 0)]


def test_cancelled_request_ends_at_its_last_token():
    assert outcomes(replay("0us 6>4 cancelled")) == [("cancelled", 4)]


# Rules that hold for every trace and setting; `check` asserts after each step that free plus referenced
# blocks are all blocks.


@given(strategies.scenarios())
@settings(deadline=None, max_examples=strategies.examples(60), print_blob=True)
def test_invariants(scenario):
    result = scenario.twin(check=True)
    steps = {name: np.array(column) for name, column in result.steps.items()}
    engine = scenario.engine
    usable = engine.num_gpu_blocks - 1
    assert (steps["prefill_tokens"] + steps["decode_tokens"] <= engine.max_num_batched_tokens).all()
    assert (steps["free_blocks"] >= 0).all()
    assert (steps["free_blocks"] <= usable).all()
    assert (np.diff(steps["start_ns"][steps["scheduled"] > 0]) >= 0).all()
    assert (np.diff(steps["scheduled_ns"]) >= 0).all()
    assert (steps["running"] <= engine.max_num_seqs).all()
    assert (steps["start_ns"] >= steps["scheduled_ns"]).all()
    check_requests(scenario, result)
    check_tokens_lie_where_steps_and_gaps_say(result)


def check_requests(scenario, result):
    rows = [dict(zip(result.requests, row, strict=True)) for row in zip(*result.requests.values(), strict=True)]
    asked = [row for row in scenario.trace.rows if row.replayable]
    for row, request in zip(rows, asked, strict=True):
        assert row["output_tokens"] <= request.output_tokens
        assert row["input_tokens"] + row["output_tokens"] <= max(scenario.engine.max_model_len, row["input_tokens"])
        if row["outcome"] in ("finished", "cancelled"):
            assert row["output_tokens"] == request.output_tokens
        if row["outcome"] in ("rejected", "queue_full"):
            assert row["first_scheduled_step"] == oracle.NONE
        if row["outcome"] == "timed_out":
            assert row["finish_ns"] == row["arrival_ns"] + scenario.timeout_ns
        if row["first_token_step"] != oracle.NONE:
            assert row["arrival_ns"] <= row["first_scheduled_ns"] <= row["first_token_ns"]
        if scenario.timeout_ns is None and row["outcome"] in ("finished", "cancelled", "max_model_len"):
            saved = row["cached_tokens"] + row["resumed_cached_tokens"]
            assert row["computed_tokens"] + saved >= row["input_tokens"] + row["output_tokens"] - 1


def check_tokens_lie_where_steps_and_gaps_say(result):
    """Decisions sample exactly at the steps that first, last step and gaps describe, undelivered tokens apart."""
    sampled: dict[int, list[int]] = {}
    decisions = result.decisions
    for step, request, samples in zip(decisions["step"], decisions["request"], decisions["samples"], strict=True):
        if samples:
            sampled.setdefault(request, []).append(step)
    told: dict[int, set[int]] = {}
    for request, (first, last) in enumerate(
        zip(result.requests["first_token_step"], result.requests["finish_step"], strict=True)
    ):
        told[request] = set(range(first, last + 1)) if first != oracle.NONE else set()
    for request, step, previous in zip(
        result.gaps["request"], result.gaps["step"], result.gaps["previous_step"], strict=True
    ):
        told[request] -= set(range(previous + 1, step))
    for request, delivered in enumerate(result.requests["output_tokens"]):
        assert sorted(told[request]) == sampled.get(request, [])[:delivered]
    # So a gap between tokens of one step and the next is the length of the second.
    starts_ns, lengths_ns = result.steps["start_ns"], result.steps["duration_ns"]
    for before, step in itertools.chain.from_iterable(itertools.pairwise(steps) for steps in sampled.values()):
        assert step > before + 1 or starts_ns[step] == starts_ns[before] + lengths_ns[before]


@given(strategies.scenarios(clients=False))
@settings(deadline=None, max_examples=strategies.examples(20), print_blob=True)
def test_same_input_same_decisions(scenario):
    assert scenario.twin() == scenario.twin()


@given(strategies.scenarios(most_requests=1, clients=False))
@settings(deadline=None, max_examples=strategies.examples(40), print_blob=True)
def test_a_request_alone_is_not_preempted_where_it_fits(scenario):
    (row,) = scenario.trace.rows
    tokens = min(row.input_tokens + row.output_tokens, scenario.engine.max_model_len) - 1
    fits = -(-tokens // scenario.engine.block_size) <= scenario.engine.num_gpu_blocks - 1
    result = scenario.twin()
    if fits:
        assert result.requests["preemptions"] == [0]
        assert not result.stalled
