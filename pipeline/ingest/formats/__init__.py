"""Log formats: one module each, found by `detect`.

A format module has:

    NAME            the name `--format` takes, also the source in request ids
    TITLE           what it is, for people
    LOCATOR         what a record is called in rejects: row, line
    RELATIVE_CLOCK  True if its times are offsets from an unknown instant
    PRIVATE         True if its ids and texts are of real people: they are pseudonymised
    OPTIONS         read options with their defaults
    looks(sample)            why the sample is of this format, or None
    read(source, options)    frames of records, as pipeline.ingest.records describes them
    settle(read)             where a record has parts or copies: puts them together; optional
    complete(frame, options) what needs all rows in order: sessions, turns, prefix checks

A new format is a new module with a line in FORMATS; nothing else knows the formats.
"""

import difflib
from types import ModuleType

from pipeline.errors import TraceError
from pipeline.ingest.formats import (
    azure_apim,
    azure_diag,
    azure_llm,
    bedrock,
    burstgpt,
    canonical,
    columns,
    langfuse,
    litellm_s3,
    litellm_spendlogs,
    mooncake,
    otel_genai,
    qwen_bailian,
    sglang_metrics,
    vertex,
    vllm_bench,
    vllm_log,
)
from pipeline.ingest.sources import Sample, describe

FORMATS: dict[str, ModuleType] = {
    module.NAME: module
    for module in (
        azure_llm,
        burstgpt,
        qwen_bailian,
        mooncake,
        litellm_spendlogs,
        litellm_s3,
        azure_apim,
        azure_diag,
        bedrock,
        vertex,
        otel_genai,
        sglang_metrics,
        langfuse,
        vllm_bench,
        vllm_log,
        canonical,
        columns,
    )
}


def detect(sample: Sample) -> tuple[str, str]:
    """Return the name of the format a sample shows and the reason; TraceError if it shows none."""
    for name, module in FORMATS.items():
        reason = module.looks(sample)
        if reason:
            return name, reason
    known = "; ".join(f"{module.NAME} ({module.TITLE})" for module in FORMATS.values())
    raise TraceError(
        f"{sample.source.path}: format not recognised. It is {describe(sample)}. Looked for: {known}. "
        "If it is one of these, name it with --format"
    )


def by_name(name: str) -> ModuleType:
    """Return the format module of that name; TraceError naming the nearest if there is none."""
    if name in FORMATS:
        return FORMATS[name]
    near = difflib.get_close_matches(name, FORMATS, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise TraceError(f"--format {name}: no such format{hint} (known: {', '.join(FORMATS)})")
