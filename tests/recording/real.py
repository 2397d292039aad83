"""Drives the scheduler of the installed vLLM with a fake model and a virtual clock, and notes what it decides.

`Scheduler` or `AsyncScheduler`, its KV cache manager and its block pool are vLLM's own, built from vLLM's own
config classes; only the model behind them is invented: it has one group of full attention layers, and the
tokens it samples are those that `inputs.py` names. Three methods of these objects are wrapped to listen:
handing out blocks, evicting one, preempting a request.

The clock: a step takes a_ns + b_ns * tokens + c_ns * context tokens. Synchronous scheduling decides a step,
waits for it, and collects it. With asynchronous scheduling up to two steps are in flight, and the next one is
decided when the older of them ends. Steps in which nothing is scheduled and nobody preempted have no number.
"""

import importlib
import logging
import os
import struct
import time
import zlib
from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tests.cases import GENERATED
from tests.recording.inputs import STEP_TIME, InputError, Inputs

RUNNING, ADMITTED, RESUMED, PREEMPTED = 0, 1, 2, 3
WRITTEN_FOR = "0.33"
USED = {  # what is imported of vLLM, and its tensor library's type of a cached number
    "torch": ("float32",),
    "vllm.config": ("CacheConfig", "DeviceConfig", "SchedulerConfig", "VllmConfig"),
    "vllm.sampling_params": ("SamplingParams",),
    "vllm.utils.hashing": ("get_hash_fn_by_name",),
    "vllm.v1.core.kv_cache_utils": ("get_request_block_hasher", "init_none_hash"),
    "vllm.v1.core.sched.async_scheduler": ("AsyncScheduler",),
    "vllm.v1.core.sched.scheduler": ("Scheduler",),
    "vllm.v1.kv_cache_interface": ("FullAttentionSpec", "KVCacheConfig", "KVCacheGroupSpec"),
    "vllm.v1.outputs": ("ModelRunnerOutput",),
    "vllm.v1.request": ("Request",),
    "vllm.v1.structured_output": ("StructuredOutputManager",),
}
CHANGED = (AttributeError, TypeError, KeyError, AssertionError, RuntimeError)  # what a changed vLLM raises


class VllmError(Exception):
    """vLLM is not installed, or is not as this recorder expects it."""


@dataclass(slots=True)
class Recording:
    """What the scheduler made of the inputs: rows under the column names of a case, None for no value."""

    inputs: Inputs
    requests: dict[str, list]
    steps: list[dict[str, int]]
    schedule: list[dict[str, Any]]
    stalled: bool
    vllm_s: float  # processor time inside vLLM: requests made and hashed, steps decided, outputs taken


@dataclass(slots=True)
class _Tracked:
    """A request of the trace and what became of it."""

    row: int
    real: Any = None  # vLLM's own request, while it is unfinished
    running: bool = False
    outcomes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Flying:
    """A step that was decided and not collected yet."""

    number: int
    end_ns: int
    output: Any  # vLLM's SchedulerOutput
    samples: dict[str, bool]  # request id -> samples a token


def load() -> SimpleNamespace:
    """Import what is needed of vLLM; VllmError if it is not installed or something is not where it was in 0.33."""
    os.environ.setdefault("VLLM_CONFIGURE_LOGGING", "0")
    logging.getLogger("vllm").setLevel(logging.ERROR)  # no warnings about kernels that are never run
    try:
        import vllm
    except ImportError as error:
        if error.name == "vllm":
            raise VllmError("vLLM is not installed in this Python; see the head of tests/record_vllm.py") from error
        raise VllmError(f"vLLM cannot be imported: {error}; see the head of tests/record_vllm.py") from error
    found: dict[str, Any] = {}
    for module, names in USED.items():
        try:
            found |= {name: getattr(importlib.import_module(module), name) for name in names}
        except (ImportError, AttributeError) as error:
            raise VllmError(f"vLLM {vllm.__version__}: {error}; this recorder was written for {WRITTEN_FOR}") from error
    return SimpleNamespace(version=vllm.__version__, **found)


def record(inputs: Inputs, vllm: SimpleNamespace) -> Recording:
    """Replay the inputs; VllmError if vLLM's interface has changed, InputError if it refuses the settings."""
    try:
        return _Run(inputs, vllm).loop()
    except CHANGED as error:
        raise VllmError(
            f"vLLM {vllm.version}: {type(error).__name__}: {error}; this recorder was written for {WRITTEN_FOR}"
        ) from error


def token(streams: dict[int, int], stream: int, offset: int) -> int:
    """Return the token id of (stream, offset): streams are numbered as they come, 2**32 ids to each."""
    return (streams.setdefault(stream, len(streams)) << 32) + offset


class _Run:
    """One replay."""

    def __init__(self, inputs: Inputs, vllm: SimpleNamespace) -> None:
        self.inputs = inputs
        self.settings = inputs.settings
        self.vllm = vllm
        self.a_ns, self.b_ns, self.c_ns = (self.settings[name] for name in STEP_TIME)
        self.concurrent = 2 if self.settings["async_scheduling"] else 1
        self.streams: dict[int, int] = {}
        self.tracked = [_Tracked(row) for row in range(len(inputs.arrival_ns))]
        self.by_id: dict[str, _Tracked] = {}  # unfinished, by vLLM's request id
        rows = range(len(inputs.arrival_ns))
        self.coming = deque(sorted(rows, key=lambda row: (inputs.arrival_ns[row], row)))
        self.clock = 0
        self.gpu_free = 0
        self.flying: deque[_Flying] = deque()
        self.steps: list[dict[str, int]] = []
        self.schedule: list[dict[str, Any]] = []
        self.stalled = False
        self.vllm_s = 0.0
        self.handed_out: list[int] = []  # ids of blocks, since the decision began
        self.evicted = 0
        self.victims: list[tuple[_Tracked, int]] = []  # with the computed tokens they lost
        self.scheduler = build(self.settings, vllm)
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.hasher = self.make_hasher()
        self.listen()

    def make_hasher(self) -> Any:
        """Return what computes the block hashes of a request as vLLM's engine does, None without prefix caching."""
        if not self.settings["enable_prefix_caching"]:
            return None
        hash_fn = self.vllm.get_hash_fn_by_name(self.scheduler.cache_config.prefix_caching_hash_algo)
        self.vllm.init_none_hash(hash_fn)
        return self.vllm.get_request_block_hasher(self.settings["block_size"], hash_fn)

    def listen(self) -> None:
        """Wrap the three methods whose calls a case records."""
        get_new_blocks = self.pool.get_new_blocks
        evict = self.pool._maybe_evict_cached_block
        preempt = self.scheduler._preempt_request

        def get_new_blocks_heard(*args: Any, **more: Any) -> Any:
            blocks = get_new_blocks(*args, **more)
            self.handed_out += [block.block_id for block in blocks]
            return blocks

        def evict_heard(*args: Any, **more: Any) -> Any:
            evicted = evict(*args, **more)
            self.evicted += bool(evicted)
            return evicted

        def preempt_heard(request: Any, *args: Any, **more: Any) -> Any:
            self.victims.append((self.by_id[request.request_id], request.num_computed_tokens))
            return preempt(request, *args, **more)

        self.pool.get_new_blocks = get_new_blocks_heard
        self.pool._maybe_evict_cached_block = evict_heard
        self.scheduler._preempt_request = preempt_heard

    # The loop and the clock

    def loop(self) -> Recording:
        most = self.settings.get("max_steps")
        while True:
            self.hand_over()
            if not self.by_id:
                if self.flying:
                    self.collect()
                elif not self.jump():
                    break
                continue
            step = self.decide()
            if step is None:
                if self.flying:
                    self.collect()
                elif not self.jump():
                    self.stalled = True
                    break
                continue
            self.flying.append(step)
            if most is not None and len(self.steps) >= most:
                break
            if len(self.flying) >= self.concurrent:
                self.collect()
        self.scheduler.shutdown()
        return Recording(self.inputs, self.outcomes(), self.steps, self.schedule, self.stalled, self.vllm_s)

    def jump(self) -> bool:
        """Move the clock to the next arrival; false where there is none."""
        if self.coming:
            self.clock = self.inputs.arrival_ns[self.coming[0]]
        return bool(self.coming)

    def hand_over(self) -> None:
        """Give vLLM every request that has arrived, save those that its front end refuses."""
        while self.coming and self.inputs.arrival_ns[self.coming[0]] <= self.clock:
            row = self.coming.popleft()
            seen = self.tracked[row]
            if self.inputs.prompt_len(row) >= self.settings["max_model_len"]:
                seen.outcomes["out_status"] = "rejected"
                continue
            prompt = self.prompt(row)
            began = time.thread_time()
            seen.real = self.vllm.Request(
                request_id=f"{row:09d}",  # of one length: vLLM compares ids as text
                prompt_token_ids=prompt,
                sampling_params=self.vllm.SamplingParams(max_tokens=self.inputs.max_tokens[row], ignore_eos=True),
                pooling_params=None,
                arrival_time=self.inputs.arrival_ns[row],
                priority=self.inputs.priority[row],
                block_hasher=self.hasher,
            )
            self.scheduler.add_request(seen.real)
            self.vllm_s += time.thread_time() - began
            self.by_id[seen.real.request_id] = seen

    def prompt(self, row: int) -> list[int]:
        tokens: list[int] = []
        for stream, start, length in self.inputs.prompts[row]:
            first = token(self.streams, stream, start)
            tokens += range(first, first + length)
        return tokens

    # One decision

    def decide(self) -> _Flying | None:
        """Let vLLM decide a step and log it; None where it did nothing at all."""
        self.handed_out, self.evicted, self.victims = [], 0, []
        began = time.thread_time()
        output = self.scheduler.schedule()
        self.vllm_s += time.thread_time() - began
        if not output.num_scheduled_tokens and not self.victims:
            return None
        number = len(self.steps)
        rows = [self.served(number, *item) for item in enumerate(output.num_scheduled_tokens.items())]
        context = sum(row["n_computed"] + row["n_sched"] for row in rows)
        tokens = sum(row["n_sched"] for row in rows)
        start_ns, duration_ns = self.clock, 0  # a step without tokens never reaches the GPU
        if tokens:
            start_ns = max(self.clock, self.gpu_free)
            duration_ns = self.a_ns + self.b_ns * tokens + self.c_ns * context
            self.gpu_free = start_ns + duration_ns
        self.log(number, start_ns, duration_ns, rows, context)
        samples = {name: row["samples"] for name, row in zip(output.num_scheduled_tokens, rows, strict=True)}
        return _Flying(number, start_ns + duration_ns, output, samples)

    def served(self, number: int, position: int, given: tuple[str, int]) -> dict[str, Any]:
        """Return the schedule row of a request that got tokens."""
        name, tokens = given
        seen = self.by_id[name]
        real = seen.real
        samples = not real.is_prefill_chunk
        computed = real.num_computed_tokens - tokens
        known = real.num_tokens + real.num_output_placeholders
        if self.concurrent > 1 and samples:
            known -= 1  # the placeholder of the token that this step samples
        event = RUNNING
        if not seen.running:
            event = RESUMED if real.num_preemptions else ADMITTED
            seen.running = True
        return {
            "step": number,
            "pos": position,
            "req": seen.row,
            "n_sched": tokens,
            "n_computed": computed,
            "event": event,
            "is_prefill": computed < max(real.num_prompt_tokens, known - 1),
            "samples": samples,
            "hit_tokens": 0 if event == RUNNING else computed,
        }

    def log(self, number: int, start_ns: int, duration_ns: int, rows: list[dict[str, Any]], context: int) -> None:
        running, waiting = self.scheduler.get_request_counts()
        events = [row["event"] for row in rows]
        prefill = sum(row["n_sched"] for row in rows if row["is_prefill"])
        tokens = sum(row["n_sched"] for row in rows)
        self.steps.append(
            {
                "step": number,
                "t_sched_ns": self.clock,
                "t_start_ns": start_ns,
                "dur_ns": duration_ns,
                "n_running": running,
                "n_waiting": waiting,
                "n_sched": len(rows),
                "n_tokens": tokens,
                "prefill_tokens": prefill,
                "decode_tokens": tokens - prefill,
                "ctx_tokens": context,
                "n_admitted": events.count(ADMITTED),
                "n_resumed": events.count(RESUMED),
                "n_preempted": len(self.victims),
                "hit_tokens": sum(row["hit_tokens"] for row in rows),
                "free_blocks": self.pool.get_num_free_blocks(),
                "cached_blocks": len(self.pool.cached_block_hash_to_block),
                "evicted_blocks": self.evicted,
                "new_blocks": len(self.handed_out),
                "new_blocks_crc": zlib.crc32(struct.pack(f"<{len(self.handed_out)}i", *self.handed_out)),
            }
        )
        for row in rows:
            self.note_served(row, start_ns)
        self.schedule += rows
        for position, (seen, lost) in enumerate(self.victims):
            self.schedule.append(_lost(number, position, seen.row, lost))
            seen.running = False
            seen.outcomes["out_n_preempt"] = seen.outcomes.get("out_n_preempt", 0) + 1

    def note_served(self, row: dict[str, Any], start_ns: int) -> None:
        out = self.tracked[row["req"]].outcomes
        out["out_computed_tokens"] = out.get("out_computed_tokens", 0) + row["n_sched"]
        if row["event"] == ADMITTED:
            out["out_first_sched_step"], out["out_first_sched_ns"] = row["step"], start_ns
            out["out_cached_tokens"] = row["hit_tokens"]
        if row["event"] == RESUMED:
            out["out_cached_tokens_resume"] = out.get("out_cached_tokens_resume", 0) + row["hit_tokens"]

    # A step ends

    def collect(self) -> None:
        """Wait for the oldest step and give vLLM the tokens it sampled."""
        step = self.flying.popleft()
        self.clock = max(self.clock, step.end_ns)
        sampling = [self.by_id[name] for name, samples in step.samples.items() if samples]
        sampled = {seen.real.request_id: [self.next_token(seen)] for seen in sampling}
        model_output = self.vllm.ModelRunnerOutput(
            req_ids=list(step.samples),
            req_id_to_index={name: place for place, name in enumerate(step.samples)},
            sampled_token_ids=[sampled.get(name, []) for name in step.samples],
        )
        began = time.thread_time()
        self.scheduler.update_from_output(step.output, model_output)
        self.vllm_s += time.thread_time() - began
        for seen in sampling:
            self.note_token(seen, step)

    def next_token(self, seen: _Tracked) -> int:
        return token(self.streams, GENERATED + seen.row, seen.real.num_output_tokens)

    def note_token(self, seen: _Tracked, step: _Flying) -> None:
        real, out = seen.real, seen.outcomes
        out["out_n_output"] = real.num_output_tokens
        out.setdefault("out_first_token_ns", step.end_ns)
        if real.is_finished():
            capped = real.num_output_tokens < real.max_tokens
            out["out_status"] = "max_model_len" if capped else "length"
            out["out_finish_step"], out["out_finish_ns"] = step.number, step.end_ns
            del self.by_id[real.request_id]
            seen.real = None

    def outcomes(self) -> dict[str, list]:
        """Return the outcome columns, one entry per request."""
        none = ("first_sched_step", "first_sched_ns", "first_token_ns", "finish_step", "finish_ns", "cached_tokens")
        zero = ("n_output", "n_preempt", "cached_tokens_resume", "computed_tokens")
        defaults: dict[str, Any] = {"out_status": "never_finished"}
        defaults |= {f"out_{name}": None for name in none} | {f"out_{name}": 0 for name in zero}
        return {name: [seen.outcomes.get(name, value) for seen in self.tracked] for name, value in defaults.items()}


def _lost(number: int, position: int, request: int, computed: int) -> dict[str, Any]:
    """Return the schedule row of a preempted request."""
    return {
        "step": number,
        "pos": position,
        "req": request,
        "n_sched": 0,
        "n_computed": computed,
        "event": PREEMPTED,
        "is_prefill": False,
        "samples": False,
        "hit_tokens": 0,
    }


def build(settings: dict[str, Any], vllm: SimpleNamespace) -> Any:
    """Return vLLM's scheduler with these settings; InputError if vLLM refuses them."""
    config = _vllm_config(settings, vllm)
    layers = vllm.FullAttentionSpec(block_size=settings["block_size"], num_kv_heads=1, head_size=1, dtype=vllm.float32)
    kv_cache = vllm.KVCacheConfig(
        num_blocks=settings["num_gpu_blocks"],
        kv_cache_tensors=[],
        kv_cache_groups=[vllm.KVCacheGroupSpec(layer_names=["layer"], kv_cache_spec=layers)],
    )
    kind = vllm.AsyncScheduler if settings["async_scheduling"] else vllm.Scheduler
    return kind(
        vllm_config=config,
        kv_cache_config=kv_cache,
        structured_output_manager=vllm.StructuredOutputManager(config),
        block_size=settings["block_size"],
        log_stats=False,
    )


def _vllm_config(settings: dict[str, Any], vllm: SimpleNamespace) -> Any:
    names = (
        "max_num_batched_tokens",
        "max_num_seqs",
        "max_num_active_seqs",
        "enable_chunked_prefill",
        "policy",
        "long_prefill_token_threshold",
        "long_prefill_token_threshold_adaptive",
        "scheduler_reserve_full_isl",
        "watermark",
        "prefill_schedule_interval",
        "async_scheduling",
    )
    wanted = {name: settings[name] for name in names}
    try:
        scheduler = vllm.SchedulerConfig(max_model_len=settings["max_model_len"], is_encoder_decoder=False, **wanted)
        cache = vllm.CacheConfig(
            block_size=settings["block_size"], enable_prefix_caching=settings["enable_prefix_caching"]
        )
        config = vllm.VllmConfig(scheduler_config=scheduler, cache_config=cache, device_config=vllm.DeviceConfig("cpu"))
    except ValueError as error:  # pydantic's errors are ValueErrors; vLLM raises them too
        raise InputError(f"vLLM {vllm.version} refuses the settings: {error}") from error
    cache.num_gpu_blocks = settings["num_gpu_blocks"]
    config.model_config = _fake_model(settings["max_model_len"])
    for place, name in [(config.scheduler_config, name) for name in names] + [
        (config.cache_config, name) for name in ("block_size", "num_gpu_blocks", "enable_prefix_caching")
    ]:
        if getattr(place, name) != settings[name]:
            raise VllmError(f"vLLM {vllm.version} changed {name} from {settings[name]} to {getattr(place, name)}")
    return config


def _fake_model(max_model_len: int) -> SimpleNamespace:
    """Return what the scheduler asks of a model's config: a text model that generates."""
    return SimpleNamespace(
        max_model_len=max_model_len,
        runner_type="generate",
        is_diffusion=False,
        is_encoder_decoder=False,
        multimodal_config=None,
        return_sampling_mask=False,
        skip_tokenizer_init=True,
        supports_multimodal_inputs=False,
        uses_mrope=False,
    )
