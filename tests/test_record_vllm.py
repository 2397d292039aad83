"""The recorder of a real vLLM: its inputs and files here, its recordings where vLLM is installed."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import cases, engines, oracle, record_vllm, strategies, vllm_cases
from tests.builders import Trace, trace
from tests.cases import GENERATED
from tests.recording import draw, inputs, real, tables

RECORDED = Path(__file__).parent / "cases" / "vllm"
SETTINGS = {
    "block_size": 4,
    "num_gpu_blocks": 40,
    "max_model_len": 64,
    "max_num_batched_tokens": 32,
    "max_num_seqs": 8,
    "a_ns": 1_000_000,
    "b_ns": 100_000,
    "c_ns": 40,
}
OWN = 2 * GENERATED  # streams of prompt tokens that no hash covers


def from_trace(folder, rows, first=None):
    """Write rows of a builder as a trace file and read it back as inputs."""
    path = folder / "trace.parquet"
    pq.write_table(rows.table() if isinstance(rows, Trace) else rows, path)
    return inputs.from_trace(path, SETTINGS, first)


def with_hashes(rows, hashes, covered):
    """Return the trace table of rows with other prefix hashes, in blocks of 4 tokens."""
    table = rows.table()
    values = {
        "prefix_hashes": pa.array(hashes, pa.list_(pa.uint64())),
        "prefix_block_tokens": pa.array([4] * len(hashes), pa.int32()),
        "prefix_tokens": pa.array(covered, pa.int32()),
    }
    for name, column in values.items():
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
    return table


# What a trace becomes


def test_a_later_turn_is_made_of_what_was_asked_and_answered(tmp_path):
    # the first row: 6 + 4 tokens in blocks of 4; the second asks 10 tokens that repeat them, and 3 of its own
    got = from_trace(tmp_path, trace("5us 6>4 covered=10, 9us 13>2 follows=0 covered=10 priority=1", block_tokens=4))
    assert got.prompts == [[(0, 0, 4), (1, 0, 2)], [(0, 0, 4), (1, 0, 2), (GENERATED, 0, 4), (OWN + 1, 0, 3)]]
    assert (got.arrival_ns, got.max_tokens, got.priority) == ([5000, 9000], [4, 2], [0, 1])


def test_tokens_beyond_the_hashes_are_the_requests_own(tmp_path):
    got = from_trace(tmp_path, trace("0us 9>1 prefix=a covered=4, 0us 9>1 prefix=a covered=4, 0us 9>1 covered=0", 4))
    own = [(OWN + row, 0, 5) for row in range(2)]
    assert got.prompts == [[(0, 0, 4), own[0]], [(0, 0, 4), own[1]], [(OWN + 2, 0, 9)]]


def test_one_conversation_answered_twice_is_told(tmp_path):
    rows = trace("0us 4>4, 1us 4>4, 2us 9>1")
    got = from_trace(tmp_path, with_hashes(rows, [[7, 8], [7, 8], [7, 8]], [8, 8, 8]))
    assert got.prompts == [[(0, 0, 4)], [(0, 0, 4)], [(0, 0, 4), (GENERATED, 0, 4), (OWN + 2, 0, 1)]]
    assert got.note.endswith("generated tokens of 1 requests count as their own although the trace names their content")


def test_hashes_that_are_not_chained_are_refused(tmp_path):
    rows = trace("0us 8>1, 1us 8>1")
    with pytest.raises(inputs.InputError, match="replayable row 1 are not chained: hash 8 at place 1"):
        from_trace(tmp_path, with_hashes(rows, [[7, 8], [9, 8]], [8, 8]))


def test_only_replayable_rows_are_recorded(tmp_path):
    got = from_trace(tmp_path, trace("0us 5>1, 1us 6>1 status=error, 2us 7>2 covered=0"))
    assert got.max_tokens == [1, 2]
    assert got.note == "trace.parquet: 2 requests; 1 of 3 rows are not replayable"
    assert from_trace(tmp_path, trace("0us 5>1, 1us 6>2, 2us 7>3"), first=2).max_tokens == [1, 2]
    rows = trace("0us 5>1, 1us 6>2").table()
    place = rows.schema.get_field_index("after_request_id")
    follows = rows.set_column(place, rows.schema.field(place), pa.array([None, "trace:0"]))
    got = from_trace(tmp_path, follows)
    assert got.note == "trace.parquet: 2 requests; 1 requests follow another one and arrive when the trace says"
    with pytest.raises(inputs.InputError, match="no replayable request"):
        from_trace(tmp_path, trace("1us 6>1 status=error"))


@settings(max_examples=50)
@given(rows=strategies.traces(80, cancelled=False), block_size=st.integers(1, 40))
def test_blocks_of_the_tokens_are_equal_where_the_identities_of_the_trace_are(tmp_path_factory, rows, block_size):
    got = from_trace(tmp_path_factory.mktemp("trace"), rows)
    numbers, offsets = cases.intern_blocks(got.prompts, got.max_tokens, block_size)
    named, numbered = {}, {}
    for row, request in enumerate(rows.requests(block_size)):
        known = request.prompt_len + request.max_tokens
        for block in range(known // block_size):
            number, key = int(numbers[offsets[row] + block]), request.key(block)
            assert named.setdefault(number, key) == key
            assert numbered.setdefault(key, number) == number


# Settings, random cases, files


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "holds a list"),
        ("{", "cannot be read"),
        ('{"block_sizes": 16}', "unknown setting 'block_sizes'"),
        ('{"block_size": 16, "a_ns": 1, "b_ns": 1}', "num_gpu_blocks, max_model_len, .*, c_ns not given"),
    ],
)
def test_wrong_settings_are_named(tmp_path, text, said):
    (tmp_path / "engine.json").write_text(text)
    with pytest.raises(inputs.InputError, match=said):
        inputs.read_settings(tmp_path / "engine.json")


def test_settings_left_out_have_defaults_and_a_config_of_a_case_will_do(tmp_path):
    (tmp_path / "engine.json").write_text(json.dumps(SETTINGS))
    got = inputs.read_settings(tmp_path / "engine.json")
    assert (got["async_scheduling"], got["policy"], got["watermark"]) == (True, "fcfs", 0.0)
    config = RECORDED / "hand_livelock" / "config.json"
    assert inputs.read_settings(config) == json.loads(config.read_text())["engine"]


def test_a_seed_draws_the_same_cases_of_all_kinds():
    drawn = [[draw.case(rng) for _ in range(60)] for rng in (np.random.default_rng(3), np.random.default_rng(3))]
    assert drawn[0] == drawn[1]
    for name in ("async_scheduling", "policy", "enable_prefix_caching", "scheduler_reserve_full_isl"):
        assert len({case.settings[name] for case in drawn[0]}) == 2
    streams = {stream for case in drawn[0] for prompt in case.prompts for stream, _, _ in prompt}
    assert min(streams) == 0
    assert max(streams) > GENERATED


@pytest.mark.parametrize("name", ["hand_livelock", "hand_preempt_priority", "hand_multiturn_async"])
def test_a_written_case_equals_the_recorded_one(tmp_path, name):
    (old,) = inputs.from_case(RECORDED / name)
    config = json.loads((RECORDED / name / "config.json").read_text())
    requests, steps, schedule = (pq.read_table(RECORDED / name / f"{table}.parquet") for table in tables.TABLES)
    outcomes = {column: requests[column].to_pylist() for column in requests.column_names if column.startswith("out_")}
    by_decision = schedule.sort_by([("step", "ascending"), ("pos", "ascending")]).to_pylist()
    recording = real.Recording(
        old[1], outcomes, steps.to_pylist(), by_decision, config["summary"]["stalled"], vllm_s=0.0
    )
    tables.write_case(tmp_path, recording, "0.33.0")
    assert tables.differences(RECORDED / name, tmp_path) == []
    assert json.loads((tmp_path / "config.json").read_text()) == config


def test_a_difference_is_named(tmp_path):
    for name in cases.FILES:
        (tmp_path / name).write_bytes((RECORDED / "hand_basic" / name).read_bytes())
    steps = pq.read_table(tmp_path / "steps.parquet")
    free = steps["free_blocks"].to_pylist()
    free[3] += 1
    place = steps.schema.get_field_index("free_blocks")
    pq.write_table(
        steps.set_column(place, steps.schema.field(place), pa.array(free, pa.int32())), tmp_path / "steps.parquet"
    )
    (line,) = tables.differences(RECORDED / "hand_basic", tmp_path)
    assert line == f"steps: row 3 (step 3), free_blocks: {free[3] - 1} and {free[3]}"


def test_a_missing_vllm_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "vllm", None)
    assert record_vllm.main([str(tmp_path / "out"), "--random", "1"]) == 2
    assert "vLLM is not installed in this Python" in capsys.readouterr().err


def test_a_folder_without_a_case_is_told(tmp_path, capsys):
    assert record_vllm.main([str(tmp_path / "out"), "--case", str(tmp_path)]) == 2
    assert "no config.json in it" in capsys.readouterr().err


# With vLLM


@pytest.fixture(scope="module")
def vllm():
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed; the head of tests/record_vllm.py says how")
    return real.load()


@pytest.mark.vllm
def test_engines_decide_random_cases_as_vllm_does(vllm, tmp_path):
    rng = np.random.default_rng(33)
    recordings = [(number, real.record(draw.case(rng), vllm)) for number in range(24)]
    tables.write_bundle(tmp_path, recordings, vllm.version)
    assert sum(recording.steps[-1]["step"] for _, recording in recordings if recording.steps) > 1000
    found = {
        (case.name, name): lines
        for case in cases.read(tmp_path)
        for name, engine in engines.ENGINES.items()
        if (lines := vllm_cases.differences(case, engine(case)))
    }
    assert found == {}


@pytest.mark.vllm
def test_vllm_decides_as_it_did(vllm, tmp_path, capsys):
    names = ["hand_interval", "hand_limits_stall", "hand_preempt_async", "hand_prefix_lru"]
    for name in names:
        assert record_vllm.main([str(tmp_path / name), "--case", str(RECORDED / name)]) == 0, capsys.readouterr().out


@pytest.mark.vllm
def test_settings_that_vllm_refuses_are_told(vllm, tmp_path, capsys):
    (tmp_path / "engine.json").write_text(json.dumps(SETTINGS | {"max_num_batched_tokens": 7}))
    pq.write_table(trace("0us 5>1").table(), tmp_path / "trace.parquet")
    options = ["--trace", str(tmp_path / "trace.parquet"), "--engine", str(tmp_path / "engine.json")]
    assert record_vllm.main([str(tmp_path / "out"), *options]) == 2
    said = capsys.readouterr().err
    assert f"vLLM {vllm.version} refuses the settings" in said
    assert "max_num_batched_tokens (7) must be greater than or equal to max_num_seqs (8)" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.vllm
def test_another_interface_of_vllm_is_told(vllm, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(real.USED, "vllm.v1.request", ("Demand",))
    assert record_vllm.main([str(tmp_path / "out"), "--random", "1"]) == 2
    assert f"vLLM {vllm.version}: module 'vllm.v1.request' has no attribute 'Demand'" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.delattr(vllm.Scheduler, "_preempt_request")
    assert record_vllm.main([str(tmp_path / "out"), "--random", "1"]) == 2
    assert "has no attribute '_preempt_request'; this recorder was written for 0.33" in capsys.readouterr().err


@pytest.mark.vllm
@pytest.mark.parametrize("seed", range(6))
def test_vllm_decides_a_trace_as_the_twin_does_by_its_hashes(vllm, tmp_path, seed):
    rng = np.random.default_rng(seed)
    block_size, hashed = int(rng.integers(1, 9)), int(rng.integers(1, 12))
    rows = _conversations(rng, hashed)
    engine = oracle.Engine(block_size, 2 + 64 // block_size + seed, 64, 32, 8, async_scheduling=seed % 2 == 0)
    settings = {name: getattr(engine, name) for name in oracle.Engine.__dataclass_fields__ if name != "max_steps"}
    pq.write_table(rows.table(), tmp_path / "trace.parquet")
    (tmp_path / "engine.json").write_text(json.dumps(settings | {"a_ns": 1_000_000, "b_ns": 100_000, "c_ns": 40}))
    out = tmp_path / "out"
    options = ["--trace", str(tmp_path / "trace.parquet"), "--engine", str(tmp_path / "engine.json")]
    assert record_vllm.main([str(out), *options]) == 0
    (case,) = cases.read(out)
    twin = oracle.run(rows.requests(block_size), engine, oracle.linear_duration(1_000_000, 100_000, 40))
    assert vllm_cases.differences(case, twin) == []
    assert sum(twin.steps["hit_tokens"]) > 0


def _conversations(rng: np.random.Generator, block_tokens: int) -> Trace:
    """Draw conversations of up to 64 tokens, hashed in blocks of so many tokens."""
    text = "0us 9>4 prefix=a"
    length = [13]
    for row in range(1, 40):
        earlier = int(rng.integers(max(0, row - 6), row))
        asked, answered = int(rng.integers(1, 9)), int(rng.integers(1, 12))
        words = [f"{row * 1500}us"]
        if length[earlier] + asked + answered <= 60:
            words += [f"{length[earlier] + asked}>{answered}", f"follows={earlier}"]
            length.append(length[earlier] + asked + answered)
        else:
            words += [f"{9 + asked}>{answered}", "prefix=a:9"]
            length.append(9 + asked + answered)
        text += ", " + " ".join(words)
    return trace(text, block_tokens)
