"""The sentences at the top of a report: what the traffic got, whether the SLO was met, what stood in the way."""

from pipeline.report import words
from pipeline.report.run import Row, Run

NEAR_FULL = 0.05  # share of time above 90 % of the KV blocks from which memory counts as scarce
OFTEN = 0.05  # share of time with a queue from which requests count as waiting


def sentence(run: Run) -> str:
    """Return what the traffic got, in one sentence."""
    row = run.one("headline")
    if not row["requests"]:
        return "No request was replayed."
    if row["offered_rps"] is None:
        load = f"With {words.plural(row['requests'], 'request')}"
    else:
        load = f"At {words.number(row['offered_rps'])} requests/s"
    if row["users_mean"] is not None:
        users = words.number(row["users_mean"])
        load += f", {users} user{'' if users == '1' else 's'} at once on average"
    return f"{load}: {'; '.join(_figures(row))}."


def _figures(row: Row) -> list[str]:
    if row["ttft_p95_ms"] is None:
        parts = ["no request got a token"]
    else:
        tpot = f", p95 TPOT {words.milliseconds(row['tpot_p95_ms'])}" if row["tpot_p95_ms"] is not None else ""
        parts = [f"p95 TTFT {words.milliseconds(row['ttft_p95_ms'])}{tpot}"]
    if row["kv_peak_share"] is not None:
        parts.append(f"KV memory peaks at {words.share(row['kv_peak_share'], 0)}")
    if row["slo_share"] is not None:
        parts.append(f"SLO met for {words.share(row['slo_share'])} of requests")
    return parts


def verdict(run: Run) -> str:
    """Return how many requests miss the SLO, and by which limit."""
    rows = run.answer("slo_attainment")
    requests = sum(r["requests"] or 0 for r in rows)
    if not requests:
        return "There is nothing to hold against the SLO."
    missed = requests - sum(r["within_slo"] or 0 for r in rows)
    if not missed:
        return f"Every request is within the SLO ({promise(run)})."
    reasons, counted = [], 0
    for metric, name in (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "E2E")):
        over = sum(r[f"{metric}_missed"] or 0 for r in rows)
        if over:
            reasons.append(f"{words.count(over)} over the limit of {name}")
            counted += over
    unanswered = sum(r["unanswered"] or 0 for r in rows)
    if unanswered:
        reasons.append(f"{words.count(unanswered)} without a full answer")
    miss = "misses" if missed == 1 else "miss"
    return (
        f"{words.count(missed)} of {words.plural(requests, 'request')} {miss} the SLO ({promise(run)}): "
        f"{', '.join(reasons)}" + ("; one request can miss several." if counted + unanswered > missed else ".")
    )


def promise(run: Run) -> str:
    """Return the limits of the SLO in words, as `TTFT 1 s, TPOT 50 ms`."""
    limits = [
        f"{name} {words.milliseconds(run.limit_ms(metric))}"
        for metric, name in (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "E2E"))
        if run.limit_ms(metric) is not None
    ]
    own = any(isinstance(value, dict) and value for value in run.config.get("slo", {}).values())
    text = ", ".join(limits) or "no limit set"
    return text + ("; some classes have limits of their own" if own else "")


def what_binds(run: Run) -> str:
    """Return which resource the requests wait for, or that none stands out.

    The engine says who waits, how full KV memory is and how large batches are. A queue with free memory and free
    places in the batch is put down to compute: the tokens of a step were spent on others. Nothing is inferred from how
    busy the engine is, since it is busy whenever one request runs.
    """
    row, memory = run.one("headline"), run.one("kv_memory")
    steps, queue = run.one("step_summary"), run.one("waiting_queue")
    if not steps["steps"]:
        return "The engine never ran a step."
    waiting = queue["waiting_share"] or 0.0
    scarce = (memory["above_90_share"] or 0.0) >= NEAR_FULL or bool(row["preemptions"])
    places = run.config["engine"].get("max_num_seqs")
    wait = (
        f"requests wait {words.share(waiting)} of the time (p95 queue time {words.milliseconds(row['queue_p95_ms'])})"
    )
    if scarce:
        return (
            f"KV memory binds: above 90 % for {words.share(memory['above_90_share'])} of the time, "
            f"{words.plural(row['preemptions'] or 0, 'preemption')}; {wait}."
        )
    if waiting >= OFTEN and places and (steps["batch_max"] or 0) >= places:
        return f"The batch limit binds: up to {words.count(places)} requests run at once (max_num_seqs); {wait}."
    if waiting >= OFTEN:
        return (
            f"Compute binds: {wait} although KV memory (peak {words.share(memory['peak_share'], 0)}) and places in the "
            f"batch are free; the tokens of each step go to other requests."
        )
    limit_ms = run.limit_ms("tpot")
    if limit_ms is not None and (row["tpot_p95_ms"] or 0.0) > limit_ms:
        return (
            f"Compute binds: hardly anyone waits, but steps are long (p95 {words.milliseconds(steps['step_p95_ms'])})."
        )
    return (
        f"Nothing binds: requests wait {words.share(waiting)} of the time and KV memory peaks at "
        f"{words.share(memory['peak_share'], 0)}."
    )


def certainty(run: Run) -> str:
    """Return the bands of the headlines, what flips inside them, and how far the run is from saturation.

    Nothing where a run has no bands. Saturation is where the offered rate meets the one at which the queue no longer
    empties.
    """
    bands = run.bands
    if bands is None:
        return ""
    row, error = run.one("headline"), bands["error_pct"] / 100
    shown, undecided = [], []
    for key, name, say in (
        ("ttft_p95_ms", "p95 TTFT", words.milliseconds),
        ("tpot_p95_ms", "p95 TPOT", words.milliseconds),
        ("slo_share", "SLO", words.share),
    ):
        values = [value for value in (row[key], *(replay[key] for replay in bands["replays"])) if value is not None]
        if values:
            shown.append(f"{name} {say(min(values))} to {say(max(values))}")
    for metric in ("ttft", "tpot", "e2e"):
        limit = run.limit_ms(metric)
        values = [replay[f"{metric}_p95_ms"] for replay in bands["replays"]] + [row[f"{metric}_p95_ms"]]
        known = [value for value in values if value is not None]
        if limit is not None and known and min(known) <= limit < max(known):
            undecided.append(f"whether p95 {metric.upper()} keeps {words.milliseconds(limit)}")
    saturation = bands["saturation"]
    if saturation["share"] is not None and 1 - error <= saturation["share"] < 1 + error:
        undecided.append("whether the queue empties")
    text = f"With step times {words.number(100 * error)} % shorter or longer: {', '.join(shown)}."
    text += f" Undecided: {' and '.join(undecided)}." if undecided else " No limit of the SLO flips inside that band."
    return f"{text} {_distance(run, saturation)}"


def _distance(run: Run, saturation: Row) -> str:
    load = run.config.get("load", {})
    if load.get("kind") == "closed" or load.get("sessions") == "follow":
        return "Requests wait for the end of others, so the load follows the service and cannot outrun it."
    if saturation["share"] is None:
        return "How far the load is from saturation cannot be told from so few requests."
    rate = words.number(saturation["capacity_rps"])
    share = words.share(saturation["share"], 0)
    return f"The load is {share} of the {rate} requests/s at which the queue no longer empties."


def evidence(run: Run) -> str:
    """Return how exact this configuration's prediction was where it was measured, or nothing."""
    return (run.manifest["hardware"].get("evidence") or {}).get("text") or ""


def records(run: Run) -> str:
    """Return what became of every record of the log: unreadable, not replayed, refused, unfinished."""
    trace, outcomes = run.manifest["trace"], run.manifest["counts"]["outcomes"]
    rejected = trace.get("rejected_records")
    if rejected is None:
        unread = "whether records of the log could not be read is not known"
    else:
        unread = f"{words.plural(rejected, 'record')} of the log could not be read"
    left_out = outcomes.get("not_replayed") or 0
    parts = [f"{words.plural(trace['rows'], 'request')} in the trace", unread, f"{words.count(left_out)} not replayed"]
    for outcome, text in (
        ("rejected", "too long for the context"),
        ("queue_full", "refused because the queue was full"),
        ("timed_out", "given up by their client"),
        ("cancelled", "cancelled by their client, as in the log"),
        ("max_model_len", "stopped by the context limit"),
    ):
        if outcomes.get(outcome):
            parts.append(f"{words.count(outcomes[outcome])} {text}")
    parts.append(f"{words.count(outcomes.get('never_finished') or 0)} never finished")
    where = f" Only requests with {trace['where']} were taken." if trace.get("where") else ""
    return "; ".join(parts) + "." + where


def setting(run: Run) -> str:
    """Return accelerator, model and engine in words."""
    hardware, engine = run.manifest["hardware"], run.config["engine"]
    size = hardware.get("tensor_parallel_size") or 1
    steps = hardware.get("step_time") or {}
    band = f", about +-{words.number(steps['error_pct'])} %" if steps.get("error_pct") else ""
    estimate = f"; step times are an estimate{band}" if steps.get("estimate") else ""
    gpus = f"{size} x {hardware['gpu_name']}" if size > 1 else hardware["gpu_name"]
    return (
        f"{hardware['model']} on {gpus}, {engine['policy']} policy, {words.count(hardware['num_gpu_blocks'])} KV "
        f"blocks of {hardware['block_size']} tokens{estimate}"
    )
