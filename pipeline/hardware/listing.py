"""`servecast hardware` in a terminal: the catalogue, and one configuration explained, at most 80 columns wide."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pipeline.hardware import catalogue
from pipeline.hardware.explain import BATCH

WIDTH = 80
Row = dict[str, Any]


def catalogue_rows() -> dict[str, list[Row]]:
    """Return accelerators and models of the catalogue, with the configurations whose step times are measured."""
    measured = [row for row in catalogue.rows("coefficients.csv") if row["backend"] == "vllm"]
    gpus = [
        {
            "gpu": gpu.id,
            "memory_gib": gpu.memory_gib,
            "bandwidth_gb_per_s": gpu.bandwidth_gb_per_s,
            "bf16_tflops": gpu.bf16_tflops,
            "fp8_tflops": gpu.fp8_tflops,
            "measured": sorted({row["model"] for row in measured if row["gpu"] == gpu.id}),
            "source": gpu.source,
        }
        for gpu in catalogue.gpus().values()
    ]
    models = [
        {
            "model": model.id,
            "attention": model.attention,
            "weights_gib": {dtype: size / 2**30 for dtype, size in model.weight_bytes.items() if dtype != "fp16"},
            "published_dtype": model.published_dtype,
            "kv_bytes_per_token": {"bf16": 2 * model.kv_elements_per_gpu(1), "fp8": model.kv_elements_per_gpu(1)},
            "active_params_per_token": model.matmul_params_per_token,
            "max_context": model.max_context,
            "measured": sorted({row["gpu"] for row in measured if row["model"] == model.id}),
            "source": model.source,
        }
        for model in catalogue.models().values()
    ]
    return {"gpus": gpus, "models": models}


def catalogue_lines() -> Iterator[str]:
    """Yield the catalogue as lines."""
    known = catalogue_rows()
    yield from _table(
        ("accelerator", "GiB", "GB/s", "TFLOP/s 16 bit", "FP8", "measured models"),
        [
            (
                gpu["gpu"],
                f"{gpu['memory_gib']:.1f}",
                f"{gpu['bandwidth_gb_per_s']:,.0f}",
                f"{gpu['bf16_tflops']:,.0f}",
                f"{gpu['fp8_tflops']:,.0f}" if gpu["fp8_tflops"] else "-",
                str(len(gpu["measured"]) or "-"),
            )
            for gpu in known["gpus"]
        ],
    )
    yield ""
    yield from _table(
        ("model", "KV", "GiB", "as", "KV B/token", "active", "context", "GPUs"),
        [
            (
                model["model"],
                model["attention"],
                f"{model['weights_gib'][_same(model['published_dtype'])]:,.1f}",
                model["published_dtype"],
                f"{model['kv_bytes_per_token']['bf16']:,}",
                f"{model['active_params_per_token'] / 1e9:.1f} B",
                f"{model['max_context']:,}",
                str(len(model["measured"]) or "-"),
            )
            for model in known["models"]
        ],
    )
    yield ""
    yield from _wrap(
        "GiB: memory that software sees; weights as published. KV: attention kind, bytes in 16 bit on one GPU. active: "
        "parameters a token passes through. measured models, GPUs: pairs with measured step times; those of the others "
        "are estimates. "
        "servecast hardware --model M --gpu G explains one configuration; --json has all columns and sources."
    )


def lines(told: Row) -> Iterator[str]:
    """Yield an explanation (explain.explain) as lines."""
    hardware, naive = told["hardware"], told["naive"]
    size = hardware["tensor_parallel_size"]
    yield f"{hardware['model']} on {size} x {hardware['gpu_name']}"
    yield ""
    yield from _memory(told)
    yield ""
    yield from _kv(told)
    yield ""
    yield "Requests that run at once, by their length (prompt and answer)"
    for row in told["concurrency"]:
        yield f"  {row['length']:>9,} tokens {row['at_once']:>8,}   limited by {row['limit']}".replace(
            "limited by refused", "refused"
        )
    yield f"  {'reserving engine':>16} {told['reserving']:>8,}   whatever the length"
    yield f"  {'naive sum':>16} {naive['at_once']:>8,}   budget / max_model_len, whatever the length"
    yield from _traps(told)
    yield ""
    yield from _types(told)
    yield ""
    yield from _sizes(told)
    yield ""
    yield from _steps(hardware["step_time"])
    yield from _wrap(hardware["evidence"]["text"])
    for text in told["warnings"]:
        yield from _wrap(f"warning: {text}", indent=9)


def _memory(told: Row) -> Iterator[str]:
    hardware, parts = told["hardware"], told["hardware"]["overhead_parts_gib"]
    share = told["gpu_memory_utilization"]
    left = hardware["usable_gib"] - hardware["weights_gib"] - hardware["overhead_gib"]
    yield "Memory of each GPU, GiB"
    for name, value, note in (
        ("total", hardware["gpu_memory_gib"], "as software sees it"),
        ("usable", hardware["usable_gib"], f"gpu_memory_utilization = {share:g} of it all, weights too"),
        ("- weights", hardware["weights_gib"], hardware["weight_dtype"]),
        ("- activation", parts["activation"], _peak(told)),
        ("- outside torch", parts["non_torch"], "CUDA context, communication"),
        ("- CUDA graphs", parts["cuda_graphs"], "since vLLM 0.21 taken out of the share"),
        ("= for KV", left, ""),
    ):
        yield f"  {name:16}{value:>9.2f}  {note}".rstrip()


def _peak(told: Row) -> str:
    return f"peak of {told['max_num_batched_tokens']:,} tokens, {told['max_num_seqs']:,} sequences a step"


def _kv(told: Row) -> Iterator[str]:
    hardware, attention = told["hardware"], told["attention"]
    yield "KV cache"
    kinds = ", ".join(
        f"{size:,} in {'16 bit' if dtype == 'bf16' else 'FP8'}"
        for dtype, size in attention["kv_bytes_per_token"].items()
    )
    yield f"  {attention['kind'].upper()}, {attention['meaning']}"
    yield f"  bytes per token: {kinds}"
    copies = attention["kv_copies"]
    held = f"{hardware['kv_bytes_per_token_per_gpu']:,} on each GPU as {hardware['kv_cache_dtype']}"
    yield f"  {held}" + (f", {copies} copies of each head" if copies > 1 else "")
    yield (
        f"  {hardware['num_gpu_blocks']:,} blocks of {told['block_size']} tokens = {hardware['kv_tokens']:,} tokens, "
        f"{hardware['kv_gib']:.2f} GiB"
    )


def _traps(told: Row) -> Iterator[str]:
    naive, longest = told["naive"], told["max_model_len"]
    share = told["gpu_memory_utilization"]
    yield from _points(
        f"The naive sum divides {naive['tokens']:,} tokens by max_model_len. It takes {share:g} of what the weights "
        f"leave instead of {share:g} of the whole ({naive['weights_outside_share_gib']:.2f} GiB) and forgets the "
        f"overhead ({naive['overhead_left_out_gib']:.2f} GiB), so its KV memory is {naive['over_pct']:+.0f} %; and "
        "then it counts every request at the greatest length.",
        f"max_model_len = {longest:,} refuses longer prompts, and one sequence of it must fit at start (up to "
        f"{told['longest_sequence_tokens']:,} tokens do). vLLM hands out blocks as tokens come, so it does not cap "
        "how many run; an engine that reserves it for each request does.",
    )


def _types(told: Row) -> Iterator[str]:
    rows = told["types"]
    length = rows[0]["at_length"]
    yield f"Types of weights and KV, at {length:,} tokens a request (step: {BATCH} sequences decode)"
    yield from _table(
        ("weights", "KV", "weights GiB", "KV B/token", "KV tokens", "fit at once", "step ms"),
        [
            (
                row["weight_dtype"],
                row["kv_cache_dtype"],
                f"{row['weights_gib']:.2f}",
                f"{row['kv_bytes_per_token']:,}",
                f"{row['kv_tokens']:,}",
                f"{row['at_once']:,}",
                f"{row['step_ms']:.1f}" + ("~" if row["step_estimate"] else ""),
            )
            for row in rows
        ],
        indent=2,
    )
    yield from _points(
        "Smaller weights leave more memory and speed up decode, but KV bytes per token stay; a smaller KV type is what "
        "multiplies the requests that fit." + (" ~: an estimate." if any(r["step_estimate"] for r in rows) else ""),
    )


def _sizes(told: Row) -> Iterator[str]:
    attention, rows = told["attention"], told["tensor_parallel"]
    yield f"Tensor parallelism, at {rows[0].get('at_length') or told['types'][0]['at_length']:,} tokens a request"
    yield from _table(
        ("GPUs", "weights GiB", "KV B/token", "copies of KV", "KV tokens", "fit at once"),
        [
            (
                str(row["tensor_parallel_size"]),
                f"{row['weights_gib']:.2f}",
                f"{row['kv_bytes_per_token']:,}",
                str(row["kv_copies"]),
                f"{row['kv_tokens']:,}" if row["kv_tokens"] else "does not fit",
                f"{row['at_once']:,}",
            )
            for row in rows
            if row["possible"]
        ],
        indent=2,
    )
    out = [str(row["tensor_parallel_size"]) for row in rows if not row["possible"]]
    heads = f"The size must divide the {attention['heads']} attention heads" + (
        f" ({', '.join(out)} do not fit)" if out else ""
    )
    if attention["kv_heads"] is None:
        yield from _points(f"{heads}. Latent attention keeps its one entry on every GPU: KV is copied, never divided.")
    else:
        yield from _points(
            f"{heads}. KV is divided up to its {attention['kv_heads']} heads and copied beyond. Figures are per GPU."
        )


def _steps(steps: Row) -> Iterator[str]:
    about = (
        f"about +-{steps['error_pct']:.0f} % a step"
        if steps["estimate"]
        else (f"{steps['error_pct']:.1f} % mean error a step against the kernel tables")
    )
    kind = {"measured": "measured", "combined": "two measured tables", "fitted": "fitted by the user"}
    yield from _wrap(
        f"Step time: {kind.get(steps['basis'], 'ESTIMATE, ' + steps['basis'])}, {about}; "
        f"{steps['config'] or steps['source']}"
    )


def _points(*texts: str) -> Iterator[str]:
    for text in texts:
        yield from _wrap(f"- {text}", indent=2)


def _wrap(text: str, indent: int = 0) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)


def _same(dtype: str) -> str:
    return "bf16" if dtype == "fp16" else dtype


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], indent: int = 0) -> Iterator[str]:
    """Yield a table: the first column to the left, the others to the right."""
    cells = [tuple(head), *map(tuple, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for row in cells:
        rest = "  ".join(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))
        yield " " * indent + f"{row[0]:{widths[0]}}  {rest}".rstrip()
