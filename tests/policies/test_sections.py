"""The settings of the policies, and a replay of a trace under each from the command line."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import config, hardware
from pipeline.errors import ConfigError
from pipeline.replay import driver
from pipeline.replay.policies.vllm_v0 import Settings as VllmV0Settings
from tests.replay import servecast

MEMORY = {"engine.num_gpu_blocks": 65, "engine.max_model_len": 512, "engine.max_num_seqs": 8}
SGLANG = {"engine.max_total_tokens": 1040, "engine.context_length": 512, "engine.max_running_requests": 8}
POLICIES = {
    "sarathi": {"engine.chunk_size": 64},
    "orca": {},
    "static": {},
    "vllm_v0": {},
    "sglang": {},
    "reserve": {"engine.max_num_batched_tokens": 600},
}
TRACE = ", ".join(f"{20 * i}ms {30 + 7 * i}>{5 + 3 * (i % 9)}" for i in range(40))


def resolved(policy: str, **changed) -> hardware.Deployment:
    values = {"engine.policy": policy, **MEMORY, **{name.replace("__", "."): value for name, value in changed.items()}}
    return hardware.resolve(config.load(overrides=[f"{name}={value}" for name, value in values.items()]))


def settings(policy: str, **changed):
    return driver.settings(resolved(policy, **changed), False)


MORE = {
    "one replica": {},
    "two, and clients that leave": {"fleet.replicas": 2, "load.timeout_s": 0.1},
    "closed loop": {"load.kind": "closed", "load.concurrency": 6},
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("more", MORE.values(), ids=MORE)
def test_a_trace_is_replayed_to_its_end(policy, more, tmp_path):
    trace = servecast.trace(tmp_path / "trace.parquet", TRACE)
    memory = SGLANG if policy == "sglang" else MEMORY
    values = memory | POLICIES[policy] | {"engine.policy": policy} | more
    sets = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    done = servecast.run("replay", trace, "-o", tmp_path / "runs", "--no-bands", *sets)
    assert done.exit_code == 0, done.output
    (run,) = (path.parent for path in (tmp_path / "runs").glob("*/run.json"))
    requests = pq.read_table(run / "requests.parquet")
    outcomes = set(requests["outcome"].to_pylist())
    assert outcomes == ({"finished", "timed_out"} if "load.timeout_s" in more else {"finished"})
    engine = json.loads((run / "run.json").read_text())["config"]["engine"]
    assert engine["policy"] == policy


def test_orca_gives_slots_of_the_longest_sequence():
    # 65 blocks, 512 tokens of 16: 32 blocks a slot
    parts = settings("orca").parts(_engines(), 4)
    assert parts.settings.slot_blocks[0] == 32


def test_chunks_must_hold_a_token_of_every_request():
    with pytest.raises(ConfigError, match=r"engine\.chunk_size = 4: must be at least engine\.max_num_seqs = 8"):
        resolved("sarathi", engine__chunk_size=4)
    assert settings("sarathi").chunk_size == 512
    assert settings("sarathi", engine__max_num_seqs=600, engine__num_gpu_blocks=65).chunk_size == 600


def test_a_schedule_of_chunks_is_stated_whole():
    with pytest.raises(ConfigError, match=r"low_chunk_size must be stated"):
        resolved("sarathi", engine__enable_dynamic_chunking_schedule="true")


def test_answers_may_outgrow_the_limit_only_released_defects():
    assert settings("sarathi").max_model_len == 512
    loose = settings("sarathi", engine__enforce_max_model_len="false")
    assert (loose.max_model_len > 10**9, loose.longest) == (True, 512)


def test_swapping_costs_what_it_moves():
    deployment = resolved("vllm_v0", engine__swap_space=1, engine__host_link_gb_per_s=64)
    block_bytes = 16 * deployment.kv_bytes_per_token_per_gpu
    chosen = driver.settings(deployment, False)
    assert isinstance(chosen, VllmV0Settings)
    assert chosen.num_cpu_blocks == 2**30 // block_bytes
    assert chosen.swap_block_ns == round(block_bytes / 64)  # bytes / (GB/s) are nanoseconds
    assert chosen.copy_block_ns == round(2 * block_bytes / deployment.gpu.bandwidth_gb_per_s)


def test_chunked_prefill_is_chosen_by_context():
    assert settings("vllm_v0").enable_chunked_prefill is False
    assert settings("vllm_v0").max_num_batched_tokens == 2048
    long = {"engine__max_model_len": 40_000, "engine__num_gpu_blocks": 2600}
    assert settings("vllm_v0", **long).enable_chunked_prefill is True
    assert settings("vllm_v0", **long).max_num_batched_tokens == 512
    assert settings("vllm_v0", engine__version="0.2.7", **long).enable_chunked_prefill is False


def test_what_a_release_lacks_is_refused():
    with pytest.raises(ConfigError, match=r"preemption_mode = swap: vLLM 0\.2\.7 has no such setting"):
        resolved("vllm_v0", engine__version="0.2.7", engine__preemption_mode="swap")


def _engines():
    from pipeline.kernel import layout

    return layout.records(layout.ENGINE, 1)


def test_samples_of_a_prompt_share_its_blocks_and_copy_the_last(tmp_path):
    # 33 tokens fill two blocks of 16 and one of a third, which two of three samples copy when they first decode.
    trace = servecast.trace(tmp_path / "trace.parquet", "0ms 33>9")
    table = pq.read_table(trace)
    place = table.schema.get_field_index("n")
    pq.write_table(table.set_column(place, table.schema.field(place), pa.array([3], pa.int16())), trace)
    values = MEMORY | {"engine.policy": "vllm_v0"}
    sets = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    done = servecast.run("replay", trace, "-o", tmp_path / "runs", "--no-bands", *sets)
    assert done.exit_code == 0, done.output
    (run,) = (path.parent for path in (tmp_path / "runs").glob("*/run.json"))
    steps = pq.read_table(run / "steps")
    assert steps["prefill_tokens"].to_pylist() == [33, 0, 0]
    assert steps["decode_tokens"].to_pylist() == [0, 3, 3]  # three samples of three tokens, the first from the prompt
    assert steps["free_blocks"].to_pylist() == [62, 60, 60]
    requests = pq.read_table(run / "requests.parquet")
    assert requests["output_tokens"].to_pylist() == [9]
