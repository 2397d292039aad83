"""A purchase on disk: `purchases/<id>/` with `purchase.json` and a Parquet file per table; named by content."""

import hashlib
import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import __version__, schema
from pipeline.capacity import rates, words
from pipeline.capacity.purchase import Decision
from pipeline.capacity.sensitivity import Row
from pipeline.config import Prices
from pipeline.errors import RunError

Own = dict[str, Any]


def identity(trace_digest: str, where: str | None, prices: Prices, own: dict[str, Any] | None) -> str:
    """Return 16 hex digits that depend on the trace, every price setting, the published rates and the program.

    own : settings of the own deployment that is compared, None if none is
    """
    parts = {
        "version": schema.PURCHASE_VERSION,
        "program": __version__,
        "trace": trace_digest,
        "where": where,
        "prices": prices.model_dump(),
        "rates": [rates.table(name) for name in rates.TABLES],
        "own": own,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def write(
    root: Path,
    purchase_id: str,
    decision: Decision,
    sensitivities: list[Row],
    trace: dict[str, Any],
    own: Own | None,
) -> Path:
    """Write the folder of a purchase, whole or not at all, and return it; RunError if it cannot be written."""
    folder = root / purchase_id
    part = root / f".{purchase_id}.{os.getpid()}"
    try:
        part.mkdir(parents=True)
        for table, rows in _tables(decision, sensitivities, own):
            columns = [pa.array([row[c.name] for row in rows], c.type) for c in table.columns]
            whole = pa.Table.from_arrays(columns, schema=schema.arrow_schema(table))
            pq.write_table(whole, part / f"{table.name}.parquet", compression="zstd")
        text = json.dumps(_facts(purchase_id, decision, trace, own), indent=1, ensure_ascii=False, allow_nan=False)
        (part / "purchase.json").write_text(text + "\n", encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        part.rename(folder)
    except OSError as error:
        raise RunError(f"{folder}: cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _tables(decision: Decision, sensitivities: list[Row], own: Own | None) -> Any:
    market = decision.market
    minutes = market.minutes
    weighted = (minutes.actual + minutes.second_actual) / minutes.scale
    served = _served_units(decision)
    yield (
        schema.PURCHASE_MINUTES,
        [
            {
                "minute": i,
                "requests": int(minutes.requests[i]),
                "weighted_tokens": float(weighted[i]),
                "units": float(market.units[i]),
                "raw_tokens": int(minutes.raw_tokens[i]),
                "payg_usd": float(minutes.payg_usd[i]),
                "served_units": None if served is None else float(served[i]),
            }
            for i in range(len(market.units))
        ],
    )
    yield schema.PURCHASE_SIZES, [_size(decision, one) for one in decision.admitted]
    yield schema.PURCHASE_TERMS, _terms(decision)
    yield schema.PURCHASE_SENSITIVITIES, [{"place": i, **asdict(row)} for i, row in enumerate(sensitivities, 1)]
    yield (
        schema.PURCHASE_DAYS,
        [{"day": d, "payg_usd": paid, "saved_usd": saved} for d, paid, saved in decision.daily_savings_usd],
    )
    yield schema.PURCHASE_HOURS, [asdict(hour) for hour in decision.hours]
    yield schema.PURCHASE_OWN, (own or {}).get("replicas", [])


def _served_units(decision: Decision) -> Any:
    """Return what the chosen purchase served in each minute, in units; None where nothing is worth buying."""
    chosen, unit = decision.chosen, decision.market.offer.unit
    assert unit is not None
    if chosen is None:
        return None
    one = next(a for a in decision.admitted if a.units == chosen.units)
    return one.minutes / float(unit.tokens_per_minute)


def _size(decision: Decision, one: Any) -> dict[str, Any]:
    unit = decision.market.offer.unit
    assert unit is not None
    bought = one.units * float(unit.tokens_per_minute)
    used = one.minutes / bought if bought else None
    names = ("units", "accepted", "spilled", "refused", "throttled", "delay_s", "spilled_weighted_tokens",
             "spilled_raw_tokens", "spilled_usd")  # fmt: skip
    return {name: getattr(one, name) for name in names} | {
        "used_mean": None if used is None else float(used.mean()),
        "used_p95": None if used is None else float(np.quantile(used, 0.95)),
        "used_max": None if used is None else float(used.max()),
    }


def _terms(decision: Decision) -> list[dict[str, Any]]:
    base = {plan.term: plan.units for plan in decision.layers}
    return [
        {
            "term": term.name,
            "months": term.months,
            "usd_per_unit_month": term.usd_per_unit_month,
            "base_units": base.get(term.name, 0),
            "cancellation": term.cancellation,
            "source": term.source,
            "as_of": term.as_of,
            "withheld": decision.withheld.get(term.name),
        }
        for term in decision.market.offer.terms
    ]


def _facts(purchase_id: str, decision: Decision, trace: dict[str, Any], own: Own | None) -> dict[str, Any]:
    market, offer, best = decision.market, decision.market.offer, decision.best
    unit, price = offer.unit, offer.prices
    assert unit is not None
    assert price is not None
    return {
        "version": schema.PURCHASE_VERSION,
        "purchase_id": purchase_id,
        "program": f"servecast {__version__}",
        "trace": trace,
        "prices": market.prices.model_dump(),
        "offer": {
            "provider": offer.provider,
            "product": offer.product,
            "model": offer.model,
            "deployment_type": offer.deployment_type,
            "region": offer.region,
            "unit": unit.name,
            "tokens_per_minute": float(unit.tokens_per_minute),
            "output_tokens_per_minute": _number(unit.output_tokens_per_minute),
            "weights": {
                name: float(getattr(unit.weights, name)) for name in ("input", "cached", "cache_write", "output")
            },
            "minimum_units": unit.minimum,
            "increment_units": unit.increment,
            "unit_source": unit.source,
            "unit_as_of": unit.as_of,
            "notes": unit.notes,
            "usd_per_1m": {name: getattr(price, name) for name in ("input", "cached", "cache_write", "output")},
            "price_source": price.source,
            "price_as_of": price.as_of,
        },
        "figures": {
            "requests": market.seen.requests,
            "span_minutes": len(market.units),
            "minutes_per_month": offer.minutes_per_month,
            "months": market.months,
            "payg_usd_month": market.payg_usd_month,
            "value_usd_per_unit_month": market.value,
            "mean_units": float(market.units.mean()),
            "peak_units": float(market.units.max()),
            "habit_mean_units": decision.habits["mean"],
            "habit_peak_units": decision.habits["peak"],
            "best_units": best.units if best else 0,
            "best_term": best.term.name if best else None,
            "best_usd_month": best.replayed_usd_month if best else market.payg_usd_month,
            "chosen_units": decision.chosen.units if decision.chosen else None,
            "chosen_term": decision.chosen.term.name if decision.chosen else None,
            "confidence": asdict(decision.confidence) if decision.confidence else None,
        },
        "recommendation": words.recommendation(decision),
        "confidence": words.confidence(decision),
        "warnings": words.cautions(decision),
        "own": {key: value for key, value in own.items() if key != "replicas"} if own else None,
    }


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
