"""Pasted engine lines: what becomes a setting, what is named, what is never repeated."""

import pytest

from pipeline import config, engine_args, engine_lines
from pipeline.errors import ConfigError


def test_common_line():
    line = engine_args.parse(
        "$ VLLM_LOGGING_LEVEL=DEBUG CUDA_VISIBLE_DEVICES=0,1 vllm serve 'Qwen/Qwen3-32B' -tp 2 \\\n"
        "  --max-model-len 16k --max_num_batched_tokens=8K --max-num-seqs=64 --no-enable-prefix-caching \\\n"
        "  --gpu-memory-utilization .95 --kv-cache-dtype fp8 --scheduling-policy priority > server.log 2>&1 &"
    )
    assert line.settings == {
        "hardware": {"model": "Qwen/Qwen3-32B", "kv_cache_dtype": "fp8"},
        "engine": {
            "tensor_parallel_size": 2,
            "max_model_len": 16000,
            "max_num_batched_tokens": 8192,
            "max_num_seqs": 64,
            "enable_prefix_caching": False,
            "gpu_memory_utilization": 0.95,
            "scheduling_policy": "priority",
        },
    }
    assert line.unmodelled == ()


@pytest.mark.parametrize(
    "text",
    [
        "python3 -m vllm.entrypoints.openai.api_server --model m --max-num-seqs 7",
        "docker run --gpus all -v a:/b -p 80:80 vllm/vllm-openai:v0.33.0 --model m --max-num-seqs 7",
        "uv run vllm serve m --max-num-seqs 7 | tee log",
        "--model m --max-num-seqs 7",
        "vllm serve --max-num-seqs 7 m",
    ],
)
def test_other_ways_to_start(text):
    assert engine_args.parse(text).settings == {"hardware": {"model": "m"}, "engine": {"max_num_seqs": 7}}


@pytest.mark.parametrize(
    ("text", "value"),
    [("8192", 8192), ("8k", 8000), ("8K", 8192), ("1.5k", 1500), ("25.6k", 25600), ("1m", 10**6), ("2M", 2**21)],
)
def test_human_integers_as_vllm_reads_them(text, value):
    assert engine_args.human_int(text) == value


def test_binary_scale_takes_no_fraction():
    with pytest.raises(ConfigError, match=r"--max-num-seqs 1.5K: must be a whole number"):
        engine_args.parse("--max-num-seqs 1.5K")


@pytest.mark.parametrize("value", ["auto", "-1"])
def test_longest_that_fits(value):
    assert engine_args.parse(f"vllm serve m --max-model-len {value}").settings["engine"] == {"max_model_len": -1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("--enable-chunked-prefill", True),
        ("--no-enable-chunked-prefill", False),
        ("--enable-chunked-prefill=false", False),
        ("--enable-chunked-prefill False", False),
        ("--enable_chunked_prefill", True),
    ],
)
def test_switches(text, value):
    assert engine_args.parse(f"{text} --port 1").settings == {"engine": {"enable_chunked_prefill": value}}


def test_secrets_and_irrelevant_arguments_leave_no_trace():
    line = engine_args.parse(
        "vllm serve m --host 0.0.0.0 --port 8000 --api-key sk-one sk-two --served-model-name a b --hf-token hf_three "
        "--disable-log-requests --tool-call-parser hermes --enable-auto-tool-choice --chat-template ./x.jinja "
        "--trust-remote-code --dtype bfloat16 --seed 1 --pipeline-parallel-size 1 --swap-spac 4 --mystery sk-four"
    )
    assert line.settings == {"hardware": {"model": "m"}}
    assert len(line.unmodelled) == 2
    assert "--swap-spac is not known and left out. Did you mean --swap-space?" in line.unmodelled
    assert not any(secret in " ".join(line.unmodelled) for secret in ("sk-", "hf_", "two"))


def test_arguments_that_matter_are_named():
    line = engine_args.parse(
        "VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve m --enable-lora -dp 2 --enforce-eager -O3 "
        '--speculative-config \'{"method": "ngram"}\' --compilation-config.mode 3 --quantization bitsandbytes '
        "--kv-cache-dtype nvfp4 --dtype float32 --cpu-offload-gb 8 --no-enable-eplb"
    )
    named = [text.split(" ")[0] for text in line.unmodelled]
    assert named == [
        "VLLM_ATTENTION_BACKEND",
        "--enable-lora",
        "--data-parallel-size",
        "--enforce-eager",
        "--optimization-level",
        "--speculative-config",
        "--compilation-config",
        "--quantization",
        "--kv-cache-dtype",
        "--dtype",
        "--cpu-offload-gb",
    ]
    assert all(text.endswith(".") for text in line.unmodelled)
    assert line.settings == {"hardware": {"model": "m"}}
    assert config.load(engine_args="vllm serve m --enable-lora").unmodelled == (
        "--enable-lora is not modelled: adapters take neither time nor memory.",
    )


@pytest.mark.parametrize(("word", "dtype"), [("fp8", "fp8"), ("awq_marlin", "w4a16"), ("gptq", "w4a16")])
def test_quantization_is_the_weights_type(word, dtype):
    assert engine_args.parse(f"-q {word}").settings == {"hardware": {"weight_dtype": dtype}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "must be a line such as"),
        ("hello world", "must be a line such as"),
        ("vllm serve 'x", "not a command line"),
        ("vllm serve m --max-num-seqs", "--max-num-seqs: its value is missing"),
        ("vllm serve m --max-num-seqs --port 3", "--max-num-seqs: its value is missing"),
        ("vllm serve m --max-num-seqs many", "--max-num-seqs many: must be a whole number"),
        ("vllm serve m --watermark x", "--watermark x: must be a number"),
        ("vllm serve m --async-scheduling=maybe", "takes no value, or true or false"),
    ],
)
def test_messages(text, expected):
    with pytest.raises(ConfigError, match="--engine-args") as caught:
        engine_args.parse(text)
    assert expected in str(caught.value)


def test_range_is_checked_like_any_source():
    with pytest.raises(ConfigError, match=r"^--engine-args: engine.max_num_seqs = 0: must be at least 1$"):
        config.load(engine_args="vllm serve m --max-num-seqs 0")


def test_every_argument_is_in_one_group():
    groups = [set(engine_args.MODELLED), set(engine_args.UNMODELLED), set(engine_args.IRRELEVANT)]
    assert not groups[0] & groups[1]
    assert not groups[0] & groups[2]
    assert not groups[1] & groups[2]
    known = set().union(*groups)
    assert known >= engine_args.SWITCHES
    assert known >= engine_args.LISTS
    assert known >= set(engine_args.SHORT.values())
    assert known >= set(engine_args.NEUTRAL)


def test_modelled_arguments_lead_to_settings():
    keys = {key for key, _, _ in config.describe_fields()}
    assert keys >= {f"{section}.{key}" for section, key, _ in engine_args.MODELLED.values()}


def test_a_line_of_sglang_chooses_its_policy_and_names():
    line = engine_args.parse(
        "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --tp 2 --port 30000 "
        "--mem-fraction-static 0.85 --schedule-policy lpm --chunked-prefill-size -1 --disable-overlap-schedule "
        "--attention-backend fa3 --enable-torch-compile --speculative-algorithm EAGLE --api-key secret-1"
    )
    assert line.settings == {
        "engine": {
            "policy": "sglang",
            "tp_size": 2,
            "mem_fraction_static": 0.85,
            "schedule_policy": "lpm",
            "chunked_prefill_size": -1,
            "disable_overlap_schedule": True,
        },
        "hardware": {"model": "meta-llama/Llama-3.1-8B-Instruct"},
    }
    assert line.unmodelled == ("--enable-torch-compile is not modelled.", "--speculative-algorithm is not modelled.")


def test_a_line_of_tensorrt_llm_chooses_its_policy_and_names():
    line = engine_args.parse(
        "trtllm-serve serve Qwen/Qwen3-32B --max_batch_size 64 --tp_size 2 --host 0.0.0.0 --pp_size 2"
    )
    assert line.settings == {
        "engine": {"policy": "tensorrt_llm", "max_batch_size": 64, "tp_size": 2},
        "hardware": {"model": "Qwen/Qwen3-32B"},
    }
    assert line.unmodelled == ("--pp-size is not modelled.",)


@pytest.mark.parametrize("dialect", engine_lines.DIALECTS, ids=lambda dialect: dialect.command)
def test_arguments_of_other_engines_lead_to_settings(dialect):
    known = {name for name, _, _ in config.describe_fields(dialect.policy)}
    for section, key, _ in dialect.modelled.values():
        assert f"{section}.{key}" in known
    assert not set(dialect.modelled) & dialect.irrelevant
