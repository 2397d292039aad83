"""Settings: defaults, sources and their order, limits, messages, digest."""

import pytest

from pipeline import config
from pipeline.errors import ConfigError


def message(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config.load(overrides=overrides)
    return str(caught.value)


def test_defaults_are_vllms_server_defaults():
    engine = config.load().engine
    assert (engine.block_size, engine.gpu_memory_utilization, engine.scheduling_policy) == (16, 0.9, "fcfs")
    assert engine.enable_chunked_prefill
    assert engine.enable_prefix_caching
    assert engine.async_scheduling
    assert engine.scheduler_reserve_full_isl
    assert (engine.watermark, engine.long_prefill_token_threshold, engine.prefill_schedule_interval) == (0.0, 0, 1)
    assert engine.max_num_batched_tokens is None
    assert config.load().slo.ttft_ms == 1000
    assert config.load().slo.tpot_ms == 50


def test_later_source_wins(tmp_path):
    file = tmp_path / "replay.toml"
    file.write_text("[engine]\nmax_num_seqs = 1\nblock_size = 32\n[slo]\nttft_ms = 300\n[slo.chat]\ntpot_ms = 25\n")
    loaded = config.load(file, ["engine.max_num_seqs=3"], "vllm serve m --max-num-seqs 2 --max-model-len 4k")
    assert loaded.engine.max_num_seqs == 3
    assert loaded.engine.block_size == 32
    assert loaded.engine.max_model_len == 4000
    assert loaded.hardware.model == "m"
    assert loaded.slo.targets("chat").tpot_ms == 25
    assert config.load(file, (), "--max-num-seqs 2").engine.max_num_seqs == 2
    assert config.load(file).engine.max_num_seqs == 1


def test_none_sets_a_value_back(tmp_path):
    file = tmp_path / "replay.toml"
    file.write_text("[engine]\nmax_num_seqs = 8\n")
    assert config.load(file, ["engine.max_num_seqs=none"]).engine.max_num_seqs is None


def test_file_and_key_and_value_are_named(tmp_path):
    file = tmp_path / "replay.toml"
    file.write_text("[engine]\nmax_num_batched_tokens = 0\n")
    with pytest.raises(ConfigError) as caught:
        config.load(file)
    assert str(caught.value) == "replay.toml: engine.max_num_batched_tokens = 0: must be at least 1"


def test_all_problems_are_told_at_once():
    text = message("engine.max_num_seqs=0", "load.rate_scale=-1")
    assert text.splitlines() == [
        "--set: engine.max_num_seqs = 0: must be at least 1",
        "--set: load.rate_scale = -1: must be more than 0.0",
    ]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("engine.max_num_sqs=1", "did you mean engine.max_num_seqs"),
        ("max_num_seqs=1", "max_num_seqs: unknown section; did you mean engine.max_num_seqs?"),
        ("hardware.block_size=16", "did you mean engine.block_size?"),
        ("cluster.replicas=2", "known are engine, hardware, load, fleet, slo, report"),
        ("engine=3", "engine: must be a table of settings, not 3"),
        ("engine.block_size.x=3", "engine.block_size: must be a value, not a table"),
        ("unmodelled=x", "unknown section"),
        ("engine.policy=vlm", 'engine.policy = "vlm": no such policy; did you mean vllm or vllm_v0?'),
        ("engine.scheduling_policy=lifo", "must be one of fcfs or priority"),
        ("engine.watermark=1.0", "must be less than 1"),
        ("engine.watermark=-0.1", "must be at least 0"),
        ("engine.gpu_memory_utilization=1.5", "must be at most 1"),
        ("engine.max_num_seqs=6.5", "must be a whole number"),
        ("engine.max_num_seqs=true", "must be a whole number"),
        ('engine.max_num_seqs="64"', "must be a whole number"),
        ("engine.enable_prefix_caching=1", "must be true or false"),
        ("engine.max_model_len=1", "must be at least 2, or -1 for as much as fits"),
        ("engine.num_gpu_blocks=1", "must be at least 2"),
        ("hardware.weight_dtype=int3", "must be one of auto, bf16, fp16, fp8 or w4a16"),
        ("load.rate_scale=nan", "must be a finite number"),
        ("load.rate_scale=inf", "must be a finite number"),
        ("load.timeout_s=0", "must be more than 0"),
        ("load.queue_limit=0", "must be at least 1"),
        ("report.time_zone=Europe/Berln", "did you mean Europe/Berlin"),
        ("slo.ttft=4", "slo.ttft: unknown setting; did you mean slo.ttft_ms?"),
        ("slo.chat.ttft=4", "slo.chat.ttft: unknown setting; did you mean slo.chat.ttft_ms?"),
        ("slo.ttft_ms.x=4", "slo.ttft_ms: must be a value, not a table"),
        ("slo.a.b.c=2", "slo.a.b.c: unknown setting"),
        ("slo.chat.ttft_ms=0", "slo.chat.ttft_ms = 0: must be more than 0"),
        ("engine.max_num_seqs", "must be key=value"),
        ("=3", "must be key=value"),
        ("engine.max_num_seqs=1\nengine.block_size=2", "whole number"),
    ],
)
def test_messages_say_what_would_be_right(override, expected):
    assert expected in message(override)


def test_vllm_rules_between_settings():
    text = message("engine.max_num_batched_tokens=100", "engine.max_num_seqs=200")
    assert text == "--set: engine.max_num_batched_tokens = 100: must be at least engine.max_num_seqs = 200"
    off = "engine.enable_chunked_prefill=false"
    text = message("engine.max_num_batched_tokens=100", "engine.max_model_len=200", off)
    assert "must be at least engine.max_model_len = 200 while engine.enable_chunked_prefill is off" in text
    equal = config.load(overrides=["engine.max_num_batched_tokens=200", "engine.max_model_len=200", off])
    assert equal.engine.max_num_batched_tokens == 200


@pytest.mark.parametrize("content", ["[engine", "\xff\xfe", "engine = 1\nengine = 2\n"])
def test_unreadable_file_is_named(tmp_path, content):
    file = tmp_path / "bad.toml"
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"bad\.toml"):
        config.load(file)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.toml: no such file"):
        config.load(tmp_path / "absent.toml")


def test_class_targets_inherit_and_can_be_switched_off():
    slo = config.load(overrides=["slo.ttft_ms=800", "slo.batch.tpot_ms=none", "slo.classes.ttft_ms=5"]).slo
    assert slo.targets("batch").tpot_ms is None
    assert slo.targets("batch").ttft_ms == 800
    assert slo.targets("other").tpot_ms == 50
    assert slo.targets(None).ttft_ms == 800
    assert slo.targets("classes").ttft_ms == 5  # a class may have any name


def test_dict_spells_everything_out_and_comes_back():
    loaded = config.load(overrides=["slo.chat.ttft_ms=500", "slo.batch.tpot_ms=none", "load.timeout_s=30"])
    sections = config.to_dict(loaded)
    assert list(sections) == ["engine", "hardware", "load", "fleet", "slo", "report"]
    assert sections["slo"]["chat"] == {"ttft_ms": 500.0, "tpot_ms": 50.0, "e2e_ms": None}
    assert sections["engine"]["max_num_active_seqs"] is None
    assert config.to_dict(config.from_dict(sections)) == sections
    assert config.digest(config.from_dict(sections)) == config.digest(loaded)


def test_digest_depends_on_every_setting_and_not_on_spelling(tmp_path):
    base = config.digest(config.load())
    changes = {
        "engine.block_size": 32,
        "engine.watermark": 0.1,
        "hardware.gpu": "l40s",
        "load.queue_limit": 5,
        "slo.e2e_ms": 9,
        "slo.x.ttft_ms": 1,
        "report.time_zone": "Asia/Tokyo",
    }
    digests = {config.digest(config.load(overrides=[f"{key}={value}"])) for key, value in changes.items()}
    assert len(digests | {base}) == len(changes) + 1
    file = tmp_path / "any.toml"
    file.write_text("[load]\nrate_scale = 1\n[engine]\nblock_size = 16\n[hardware]\nweight_dtype = 'AUTO'\n")
    assert config.digest(config.load(file)) == base
    assert config.digest(config.load(engine_args="--enforce-eager")) != base


def test_dtype_words_of_vllm_are_understood():
    hardware = config.load(overrides=["hardware.weight_dtype=bfloat16", "hardware.kv_cache_dtype=fp8_e4m3"]).hardware
    assert (hardware.weight_dtype, hardware.kv_cache_dtype) == ("bf16", "fp8")


def test_every_field_is_described():
    described = {key: (default, text) for key, default, text in config.describe_fields()}
    assert described["engine.block_size"] == ("16", "KV block, tokens")
    assert described["load.timeout_s"][0] == "none"
    assert all(text for _, text in described.values())
    assert "slo.classes" not in described
    leaves = {f"{section}.{key}" for section, table in config.to_dict(config.load()).items() for key in table}
    assert set(described) == leaves | {f"prices.{key}" for key in config.Prices.model_fields}
