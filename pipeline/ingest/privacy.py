"""Pseudonyms: ids and tenants by HMAC-SHA256, prefix hashes keyed, names that hold an address replaced.

The same key gives the same bytes, so that imports of different nights can be joined; without a key nobody can.
"""

import hashlib
import hmac
import os
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from pipeline.errors import TraceError

MIN_KEY_BYTES = 16
_SLICE_ROWS = 20_000
_IDS = ("request_id", "logical_id", "session_id", "parent_request_id", "after_request_id")
_NAMES = ("model", "deployment", "service_tier", "error_type", "finish_reason", "class")
# An ARN, an e-mail address, an IP address, a key, or a sentence: none is the name of a model.
_TELLING = r"arn:|[^\s@]+@[^\s@]+\.[A-Za-z]{2,}|\b\d{1,3}(?:\.\d{1,3}){3}\b|\bsk-|\s\S+\s|://"


@dataclass(frozen=True, slots=True)
class Privacy:
    """What is done to ids.

    key  : secret of the pseudonyms; None keeps ids as they are
    note : what a person should know, one sentence
    """

    key: bytes | None
    note: str

    @property
    def fingerprint(self) -> str:
        """What tells imports apart that differ in their ids alone; nothing of the key can be told from it."""
        return "kept" if self.key is None else hmac.new(self.key, b"fingerprint", "sha256").hexdigest()


def choose(key_file: Path | None, keep_ids: bool) -> Privacy:
    """Return what a caller asks for; TraceError if the key cannot be read, is too short, or both are asked for."""
    if key_file is not None and keep_ids:
        raise TraceError("--privacy-key and --keep-ids exclude each other")
    if keep_ids:
        return Privacy(None, "Ids and tenants were kept as logged (--keep-ids).")
    if key_file is None:
        return Privacy(
            os.urandom(32),
            "Ids and tenants are pseudonyms by a key that was thrown away: another import gives others. "
            "--privacy-key FILE keeps them the same.",
        )
    try:
        key = Path(key_file).read_bytes().strip()
    except OSError as error:
        raise TraceError(f"{key_file}: privacy key cannot be read: {error.strerror or error}") from error
    if len(key) < MIN_KEY_BYTES:
        raise TraceError(f"{key_file}: privacy key has {len(key)} bytes; at least {MIN_KEY_BYTES} are needed")
    return Privacy(key, "Ids and tenants are pseudonyms by the privacy key.")


def applied(rows: pl.DataFrame, privacy: Privacy) -> pl.DataFrame:
    """Return the rows with pseudonyms for ids, tenants and prefix hashes."""
    if privacy.key is None:
        return rows
    key = privacy.key
    for name in _IDS:
        if name in rows.columns:
            rows = rows.with_columns(_mapped(rows[name].cast(pl.String), lambda value: _pseudonym(key, "id", value)))
    if "tenant" in rows.columns:
        tenants = rows["tenant"].cast(pl.String)
        rows = rows.with_columns(_mapped(tenants, lambda v: f"tenant-{_pseudonym(key, 'tenant', v)[:16]}"))
    for name in _NAMES:
        if name in rows.columns:
            labels = rows[name].cast(pl.String)
            telling = labels.str.contains(_TELLING).fill_null(False)
            hidden = _mapped(labels.filter(telling), lambda v: f"name-{_pseudonym(key, 'name', v)[:16]}")
            known = dict(zip(labels.filter(telling).to_list(), hidden.to_list(), strict=True))
            rows = rows.with_columns(labels.replace(known)) if known else rows
    return rows.with_columns(_keyed(rows["prefix_hashes"], key)) if "prefix_hashes" in rows.columns else rows


def _pseudonym(key: bytes, kind: str, value: str) -> str:
    return hmac.new(key, f"{kind}\0{value}".encode("utf-8", "surrogatepass"), "sha256").hexdigest()[:32]


def _mapped(values: pl.Series, change) -> pl.Series:  # type: ignore[no-untyped-def]
    distinct = values.drop_nulls().unique()
    if distinct.is_empty():
        return values
    changed = pl.Series([change(value) for value in distinct.to_list()], dtype=pl.String)
    return values.replace_strict(distinct, changed, default=None, return_dtype=pl.String).alias(values.name)


def _keyed(hashes: pl.Series, key: bytes) -> pl.Series:
    """Return the hashes under a key of their own; equal hashes stay equal."""
    if hashes.dtype == pl.Null or not hashes.list.len().sum():
        return hashes
    own = hmac.new(key, b"prefix", "sha256").digest()
    distinct = hashes.explode().drop_nulls().unique()
    keyed = [
        int.from_bytes(hashlib.blake2b(value.to_bytes(8, "little"), digest_size=8, key=own).digest(), "little")
        for value in distinct.to_list()
    ]
    table = pl.DataFrame({"h": distinct, "k": pl.Series(keyed, dtype=pl.UInt64)})
    parts = [_looked_up(hashes[at : at + _SLICE_ROWS], table) for at in range(0, len(hashes), _SLICE_ROWS)]
    return pl.concat(parts)


def _looked_up(hashes: pl.Series, table: pl.DataFrame) -> pl.Series:
    rows = pl.DataFrame({"row": pl.int_range(len(hashes), eager=True), "h": hashes})
    listed = rows.filter(pl.col("h").list.len() > 0).explode("h").join(table, on="h", how="left", maintain_order="left")
    back = listed.group_by("row", maintain_order=True).agg("k")
    joined = rows.join(back, on="row", how="left", maintain_order="left")
    return joined.select(pl.coalesce("k", "h").alias(hashes.name))[hashes.name]
