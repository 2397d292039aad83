"""Azure API Management: ApiManagementGatewayLlmLog joined with ApiManagementGatewayLogs on CorrelationId (JSON).

A request is several rows of the first; the one with a DeploymentName carries the tokens. What the gateway turned away
is in the second alone. `TimeGenerated` is the start of the request.
"""

import re
from collections.abc import Iterator

import polars as pl

from pipeline.ingest import events
from pipeline.ingest.events import Event, Row
from pipeline.ingest.fields import Rejected, arrival_us, count, duration_us, get, http_status, name, small, text, truth
from pipeline.ingest.lines import fault
from pipeline.ingest.sources import Sample, Source
from pipeline.ingest.text import blocks_of_messages

NAME = "azure_apim_llm"
TITLE = "Azure API Management, JSON rows of ApiManagementGatewayLlmLog and ApiManagementGatewayLogs"
LOCATOR = "row"
RELATIVE_CLOCK = False
PRIVATE = True
OPTIONS = {"naive_timestamps_are": "UTC"}
_LLM = ("CorrelationId", "PromptTokens", "SequenceNumber")
_GATEWAY = ("CorrelationId", "ResponseCode", "OperationId")
_DEPLOYMENT = re.compile(r"/deployments/([^/?]+)")
_NO_GENERATION = {"reason": "not_generation", "detail": "OperationId or ModelName is no generation"}


def looks(sample: Sample) -> str | None:
    """Return the reason if a record has the columns of either table."""
    for keys in (_LLM, _GATEWAY):
        if events.shows(sample, *keys):
            return "JSON with " + ", ".join(keys)
    return None


def read(source: Source, options: dict[str, str]) -> Iterator[pl.DataFrame]:
    """Yield one record per row of either table; `settle` joins them."""
    return events.frames(source, lambda event: _row(event, options["naive_timestamps_are"]))


def _row(event: Event, zone: str) -> Row:
    record = event.value
    llm = get(record, "SequenceNumber") is not None or get(record, "PromptTokens") is not None
    place: Row = {"locator": f"{'llm' if llm else 'gw'} row {event.row}"}
    try:
        start, naive = arrival_us(get(record, "TimeGenerated"), "TimeGenerated", zone)
        call = text(get(record, "CorrelationId"))
        row = {"logical_id": call, "clock_us": start, "naive": naive} | place
        row["request_id"] = call or f"{NAME}:{event.number}"
        return row | (_llm(record) if llm else _gateway(record))
    except Rejected as found:
        found.place = place  # type: ignore[attr-defined]
        raise


def _llm(record: object) -> Row:
    own = text(get(record, "RequestId"))
    row: Row = {"request_id": own} if own else {}
    deployment = text(get(record, "DeploymentName"))
    if deployment is None:
        return row | {"part": "message"}
    model = text(get(record, "ModelName"))
    prompt = count(get(record, "PromptTokens"), "PromptTokens")
    answer = count(get(record, "CompletionTokens"), "CompletionTokens")
    total = small(get(record, "TotalTokens"))
    row |= {
        "part": "header",
        "input_tokens": prompt,
        "output_tokens": answer,
        "model": model,
        "deployment": deployment,
        "stream": truth(get(record, "IsStreamCompletion")),
        "flags": {"total_mismatch"} if total is not None and total != (prompt or 0) + (answer or 0) else set(),
    }
    if "embedding" in (model or "").lower():
        row["fault"] = _NO_GENERATION
    return row | blocks_of_messages(get(record, "RequestMessages"), prompt)


def _gateway(record: object) -> Row:
    code = small(get(record, "ResponseCode"), 16)
    spent = duration_us(get(record, "TotalTime"), 3)
    found = _DEPLOYMENT.search(str(get(record, "Url") or ""))
    row: Row = {
        "part": "gateway",
        "deployment": found[1] if found else None,
        "tenant": text(get(record, "ApimSubscriptionId")),
        "status": "unknown" if code is None else http_status(code),
        "http_status": code,
        "error_type": name(get(record, "LastErrorReason")),
        "obs_e2e_us": spent if spent is not None and spent >= 0 else None,
        "flags": {"negative_duration"} if spent is not None and spent < 0 else set(),
    }
    operation = str(get(record, "OperationId") or "completion").lower()
    if not any(word in operation for word in ("completion", "response", "chat", "message", "generate")):
        row["fault"] = _NO_GENERATION
    return row


def settle(read: pl.DataFrame) -> pl.DataFrame:
    """Join the rows of a request: the header stands, the gateway completes it, message rows are parts of it."""
    part, call = pl.col("part"), pl.col("logical_id")
    headers = read.filter(part == "header")["logical_id"].drop_nulls().implode()
    whole = call.is_in(headers).fill_null(False)
    orphan = pl.when((part == "message") & ~whole).then(fault("orphan_part", "message row without its header row"))
    kept = read.with_columns(pl.coalesce("fault", orphan).alias("fault")).filter(
        ~(part.is_in(["message", "gateway"]).fill_null(False) & whole)
    )
    given = ("status", "http_status", "tenant", "error_type", "obs_e2e_us")
    gateway = read.filter(part == "gateway", whole).unique("logical_id", keep="first", maintain_order=True)
    gateway = gateway.select("logical_id", pl.lit(True).alias("joined"), *[pl.col(n).alias(f"{n}_g") for n in given])
    kept = kept.join(gateway, on="logical_id", how="left", maintain_order="left")
    header = part == "header"
    alone = header & pl.col("joined").is_null()
    return kept.with_columns(
        *[pl.when(header).then(pl.coalesce(f"{n}_g", n)).otherwise(n).alias(n) for n in given if n != "status"],
        pl.when(alone).then(pl.lit("unknown")).when(header).then("status_g").otherwise("status").alias("status"),
        alone.fill_null(False).alias("flag:no_join"),
    ).drop("joined", *[f"{n}_g" for n in given])


def complete(frame: pl.DataFrame, options: dict[str, str]) -> pl.DataFrame:
    """Number attempts by arrival."""
    return events.attempts(frame)
