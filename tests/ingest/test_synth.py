"""The generator of synthetic traces and the shipped sample, checked from the written files alone."""

import math
from collections import defaultdict
from itertools import pairwise

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from pipeline.errors import ConfigError, TraceError
from pipeline.ingest import synth
from pipeline.ingest.synth import arrivals, sessions, traffic
from pipeline.resources import folder
from pipeline.schema import PREFIX_KINDS, REQUEST_STATUSES, TRACE, arrow_schema

SAMPLE = folder("traces") / "sample.parquet"
MONDAY = "2026-03-09T00:00:00"


@pytest.fixture(scope="module")
def sample() -> pl.DataFrame:
    return pl.read_parquet(SAMPLE)


@pytest.fixture(scope="module")
def busy(tmp_path_factory) -> pl.DataFrame:
    """A trace cut into many small slices: every link and every order crosses slice borders."""
    path = tmp_path_factory.mktemp("busy") / "busy.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrivals, "SLICE_ROWS", 400)
        synth.generate(path, seed=5, duration_s=300, requests=4_000)
    return pl.read_parquet(path)


# --- the sample ---------------------------------------------------------------------------------------------------


def test_the_sample_is_written_again_byte_for_byte(tmp_path):
    again = tmp_path / "sample.parquet"
    summary = synth.generate(again)
    assert summary.requests == 10_000
    shipped, made = pq.ParquetFile(SAMPLE), pq.ParquetFile(again)
    if shipped.metadata.created_by == made.metadata.created_by:
        assert again.read_bytes() == SAMPLE.read_bytes()
    assert made.schema_arrow.equals(shipped.schema_arrow, check_metadata=True)
    assert made.read().equals(shipped.read())


def test_the_sample_is_small():
    assert SAMPLE.stat().st_size < 700_000


def test_the_file_has_the_schema_and_its_sentences():
    # Field by field: Parquet renames the child of a list, which `check_metadata` would count as a difference.
    stored, wanted = pq.read_schema(SAMPLE), arrow_schema(TRACE)
    assert stored.equals(wanted)
    assert stored.metadata == wanted.metadata
    assert [field.metadata for field in stored] == [field.metadata for field in wanted]


def _quantile(column: str, share: float):
    return lambda d: d[column].quantile(share, "linear")


BANDS = {
    "input mean": (lambda d: d["input_tokens"].mean(), 4_000, 6_500),
    "input p50": (_quantile("input_tokens", 0.5), 3_000, 5_000),
    "input p90": (_quantile("input_tokens", 0.9), 8_000, 13_000),
    "input p99": (_quantile("input_tokens", 0.99), 18_000, 30_000),
    "output mean": (lambda d: d["output_tokens"].mean(), 270, 370),
    "output p50": (_quantile("output_tokens", 0.5), 200, 350),
    "output p90": (_quantile("output_tokens", 0.9), 550, 750),
    "output p99": (_quantile("output_tokens", 0.99), 900, 1_400),
    "gap CV": (lambda d: _gap_cv(d), 1.02, 1.12),
    "dispersion 10 s": (lambda d: _dispersion(d, 10), 2, 4),
    "dispersion 60 s": (lambda d: _dispersion(d, 60), 5, 17),
    "reuse": (lambda d: _reuse(d)[0], 0.37, 0.65),
    "reuse of agents": (lambda d: _reuse(d)[1]["agent"], 0.85, 0.97),
}


@pytest.mark.parametrize("name", BANDS)
def test_statistics_are_near_measured_traces(sample, name):
    statistic, low, high = BANDS[name]
    assert low <= statistic(sample.filter("replayable")) <= high


def _gap_cv(d: pl.DataFrame) -> float:
    gaps = d["arrival_us"].diff().drop_nulls()
    return gaps.std() / gaps.mean()


def _dispersion(d: pl.DataFrame, window_s: int) -> float:
    counts = np.bincount(d["arrival_us"].to_numpy() // (window_s * 1_000_000))[:-1]
    return counts.var() / counts.mean()


def _reuse(d: pl.DataFrame) -> tuple[float, dict[str, float]]:
    """Share of prompt tokens that an earlier row covered, overall and by class; a dictionary, one row at a time."""
    seen: dict[int, int] = {}  # block name -> leading tokens of it seen so far
    hits, total = defaultdict(int), defaultdict(int)
    columns = ("class", "input_tokens", "prefix_hashes", "prefix_block_tokens", "prefix_tokens")
    for kind, prompt, names, size, covered in d.select(columns).iter_rows():
        lengths = [min(size, covered - size * i) for i in range(len(names))]
        found = 0
        for block, length in zip(names, lengths, strict=True):
            found += min(length, seen.get(block, 0))
            if seen.get(block, 0) < size:
                break
        hits[kind] += min(found, prompt)
        total[kind] += prompt
        for block, length in zip(names, lengths, strict=True):
            seen[block] = max(length, seen.get(block, 0))
    return sum(hits.values()) / sum(total.values()), {kind: hits[kind] / total[kind] for kind in total}


def test_dispersion_grows_with_the_window(sample):
    assert 1 < _dispersion(sample, 1) < _dispersion(sample, 10) < _dispersion(sample, 60) < _dispersion(sample, 300)


def test_every_status_class_and_tenant_occurs(sample):
    assert set(sample["status"]) == set(REQUEST_STATUSES)
    assert set(sample["class"]) == {"chat", "retrieval", "agent", "documents", "batch"}
    assert set(sample["tenant"]) == set(traffic.TENANTS)
    assert sample["model"].unique().to_list() == ["llama-3.1-8b"]
    assert sample.filter("replayable").height > 9_700


def test_prompts_fit_the_context_and_few_are_very_long(sample):
    assert sample.select((pl.col("input_tokens") + pl.col("output_tokens")).max()).item() <= 131_072
    assert 10 <= sample.filter(pl.col("input_tokens") > 32_768).height <= 60


def test_the_sample_covers_a_tuesday_hour(sample):
    local = sample["arrival_time"].dt.convert_time_zone("Etc/GMT-1")
    assert local.min().isoformat()[:13] == local.max().isoformat()[:13] == "2026-03-10T10"
    assert local.min().weekday() == 1
    assert sample["arrival_us"][-1] > 3_590_000_000


# --- what holds in every trace ------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["sample", "busy", "reasoning"])
def trace(request, sample, busy, tmp_path_factory) -> pl.DataFrame:
    if request.param == "reasoning":
        path = tmp_path_factory.mktemp("reasoning") / "r.parquet"
        synth.generate(path, seed=2, mix="reasoning", requests=3_000)
        return pl.read_parquet(path)
    return sample if request.param == "sample" else busy


def test_rows_are_sorted_numbered_and_timed(trace):
    assert trace["arrival_us"].is_sorted()
    assert trace["arrival_us"][0] == 0
    assert trace["request_id"].to_list() == [f"synth:{n}" for n in range(1, trace.height + 1)]
    epoch = trace["arrival_time"].dt.epoch("us")
    assert (epoch - epoch[0] == trace["arrival_us"]).all()


def test_replayable_follows_its_rule(trace):
    # Failures have null output, so `> 0` is null there: unknown counts as no.
    rule = (
        pl.col("status").cast(pl.String).is_in(["ok", "unknown", "cancelled"])
        & (pl.col("served_from").cast(pl.String) == "engine")
        & (pl.col("input_tokens") > 0)
        & (pl.col("output_tokens") > 0)
    )
    assert trace.filter(rule.fill_null(False) != pl.col("replayable")).height == 0


def test_failures_have_no_answer_and_no_prefix(trace):
    failed = trace.filter(~pl.col("replayable"))
    assert failed.height > 0
    for column in ("output_tokens", "reasoning_tokens", "finish_reason", "prefix_hashes", "prefix_tokens"):
        assert failed[column].null_count() == failed.height
    codes = {"throttled": 429, "error": 500, "timeout": 408, "rejected": 400, "unknown": None}
    for status, code in failed.select("status", "http_status").unique().iter_rows():
        assert codes[status] == code


def test_answers_keep_to_their_limit(trace):
    answered = trace.filter("replayable")
    limited = answered.filter(pl.col("max_tokens").is_not_null())
    assert (limited["output_tokens"] <= limited["max_tokens"]).all()
    cut = answered.filter(pl.col("finish_reason") == "length")
    assert (cut["output_tokens"] == cut["max_tokens"]).all()


def test_block_lists_are_as_long_as_what_they_cover(trace):
    listed = trace.filter("replayable")
    assert listed["prefix_hashes"].null_count() == 0
    assert set(listed["prefix_kind"]) <= set(PREFIX_KINDS)
    for names, size, covered, prompt, answer in listed.select(
        "prefix_hashes", "prefix_block_tokens", "prefix_tokens", "input_tokens", "output_tokens"
    ).iter_rows():
        assert len(names) == math.ceil(covered / size)
        assert 0 < covered <= prompt + answer


def test_a_block_name_fixes_its_place_and_all_blocks_before(trace):
    before: dict[int, tuple[int, int]] = {}
    for names in trace["prefix_hashes"].drop_nulls().to_list():
        for place, (last, block) in enumerate(pairwise([0, *names])):
            assert before.setdefault(block, (place, last)) == (place, last)


def test_a_turn_holds_the_turn_before_it(trace):
    by_id = {row["request_id"]: row for row in trace.iter_rows(named=True)}
    pairs = 0
    for child in by_id.values():
        parent = by_id.get(child["parent_request_id"])
        if parent is None:
            continue
        assert parent["session_id"] == child["session_id"]
        assert parent["tenant"] == child["tenant"]
        assert parent["turn"] == child["turn"] - 1
        assert parent["arrival_us"] < child["arrival_us"]
        assert child["after_request_id"] == child["parent_request_id"]
        assert 0 < child["think_us"] < child["arrival_us"] - parent["arrival_us"]
        if not child["replayable"]:
            continue
        pairs += 1
        assert parent["replayable"]
        kept = parent["output_tokens"] - (parent["reasoning_tokens"] or 0)
        assert child["input_tokens"] > parent["input_tokens"] + kept
        # What the parent covers is all of it, or its prompt where reasoning is not sent back.
        whole = parent["input_tokens"] + (parent["output_tokens"] if parent["reasoning_tokens"] in (None, 0) else 0)
        assert parent["prefix_tokens"] == whole
        assert child["prefix_tokens"] >= whole
        assert child["prefix_hashes"][: len(parent["prefix_hashes"])] == parent["prefix_hashes"]
    assert pairs > 300


def test_sessions_share_only_what_their_applications_share(trace):
    users: dict[int, set] = defaultdict(set)
    place: dict[int, int] = {}
    rows = trace.filter("replayable").with_row_index("row")
    for row, session, names in rows.select("row", "session_id", "prefix_hashes").iter_rows():
        for i, block in enumerate(names):
            users[block].add(session or row)
            place[block] = i
    deepest = max(place[block] for block, who in users.items() if len(who) > 1)
    most = max(max(t.system_blocks) + sum(s.high_blocks for s in t.shared) for t in traffic.CLASSES)
    assert deepest < most
    shared_names = sum(len(who) > 1 for who in users.values())
    assert shared_names > 0


def test_tokens_that_come_only_once_are_not_named(sample):
    named = sample.filter(pl.col("class").cast(pl.String).is_in(["chat", "agent", "documents"]))["prefix_hashes"]
    uses = named.drop_nulls().explode().value_counts()["count"]
    # Sessions cut by the window's end, and a next turn that failed, leave a few.
    assert (uses == 1).mean() < 0.05


def test_a_parent_out_of_sight_is_flagged(trace):
    flagged = trace.filter(pl.col("flags").list.len() > 0)
    orphans = trace.filter((pl.col("turn") > 1) & pl.col("parent_request_id").is_null())
    assert flagged["request_id"].to_list() == orphans["request_id"].to_list()
    assert set(flagged["flags"].explode()) <= {"parent_outside_window"}
    assert orphans["after_request_id"].null_count() == orphans["think_us"].null_count() == orphans.height


def test_a_retry_names_the_call_it_repeats(trace):
    calls = trace.filter(pl.col("logical_id").is_not_null()).sort("logical_id", "attempt")
    seen = 0
    for _, attempts in calls.group_by("logical_id"):
        if attempts.height == 2:  # the other one may lie outside the window
            seen += 1
            assert attempts["attempt"].to_list() == [0, 1]
            assert attempts["replayable"].to_list() == [False, True]
            assert attempts["status"][0] in ("throttled", "error", "timeout")
            assert attempts["parent_request_id"].n_unique() == 1
            assert attempts["arrival_us"].is_sorted()
            if attempts["status"][0] != "throttled":
                assert attempts["input_tokens"].n_unique() == 1
    assert seen > 5
    alone = trace.filter(pl.col("logical_id").is_null())
    assert (alone["attempt"] == 0).all()


# --- profiles, mixes, the week ------------------------------------------------------------------------------------


def test_reasoning_answers_are_long_and_mostly_reasoning(tmp_path):
    synth.generate(tmp_path / "r.parquet", seed=1, mix="reasoning", requests=6_000)
    answered = pl.read_parquet(tmp_path / "r.parquet").filter(pl.col("status") == "ok")
    assert 4_600 < answered["output_tokens"].mean() < 5_500
    assert 0.65 < answered["reasoning_tokens"].sum() / answered["output_tokens"].sum() < 0.75
    assert answered.select((pl.col("input_tokens") + pl.col("output_tokens")).max()).item() <= 40_960
    # Generated tokens never come back in a prompt, so none is ever named.
    assert (answered["prefix_tokens"] <= answered["input_tokens"]).all()


def test_night_belongs_to_batch_and_the_weekend_is_quiet():
    profile = traffic.PROFILES["bank"]
    plan = arrivals.make(profile, seed=1, monday_s=0.0, duration_s=604_800.0, requests=1e6)
    turns = np.array([sessions.rows_per_session(traffic.CLASSES[i]) for i in plan.classes])
    hourly = (plan.expected * turns[:, None])[:, arrivals.WARM_UP_S // 5 :][:, : 168 * 720].reshape(5, 168, 720).sum(2)
    assert hourly.sum() == pytest.approx(1e6, rel=1e-3)
    batch = [traffic.CLASSES[i].name for i in plan.classes].index("batch")
    share = hourly[batch] / hourly.sum(0)
    assert share[24 + 1] > 0.3 > 0.06 > share[24 + 10] > 0.005
    days = hourly.sum(0).reshape(7, 24).sum(1)
    assert days[5:].max() < 0.75 * days[:5].min()
    for place, name in enumerate(traffic.CLASSES[i].name for i in plan.classes):
        assert hourly[place].sum() / 1e6 == pytest.approx(profile.shares[name], rel=0.1)


def test_a_longer_window_holds_the_requests_asked_for(tmp_path):
    summary = synth.generate(tmp_path / "t.parquet", seed=9, start=MONDAY, duration_s=86_400, requests_per_s=0.2)
    assert summary.requests == pytest.approx(0.2 * 86_400, rel=0.04)
    assert summary.requests == pq.read_metadata(tmp_path / "t.parquet").num_rows == sum(summary.classes.values())


def test_own_mix_and_tenants(tmp_path):
    path = tmp_path / "t.parquet"
    synth.generate(path, requests=400, mix={"chat": 3, "documents": 1, "batch": 0}, tenants=("a", "b"), model="m")
    d = pl.read_parquet(path)
    assert set(d["class"]) == {"chat", "documents"}
    assert set(d["tenant"]) == {"a", "b"}
    assert set(d["model"]) == {"m"}


def test_shares_need_not_sum_to_one(tmp_path):
    synth.generate(tmp_path / "a", requests=200, mix={"chat": 1, "agent": 3})
    synth.generate(tmp_path / "b", requests=200, mix={"agent": 0.75, "chat": 0.25})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# --- repeatable, alone and bounded --------------------------------------------------------------------------------


def test_another_seed_gives_another_trace(tmp_path):
    for seed in (1, 2):
        synth.generate(tmp_path / f"{seed}.parquet", seed=seed, requests=200)
    one, two = (pl.read_parquet(tmp_path / f"{seed}.parquet") for seed in (1, 2))
    assert one["arrival_us"].to_list() != two["arrival_us"].to_list()
    names = [set(d["prefix_hashes"].drop_nulls().explode()) for d in (one, two)]
    assert not names[0] & names[1]


@pytest.mark.parametrize("towards", [math.inf, -math.inf])
def test_the_last_bit_of_exp_does_not_matter(tmp_path, monkeypatch, towards):
    # exp differs in its last bit between processors and C libraries.
    exact = np.exp
    monkeypatch.setattr(np, "exp", lambda x: np.nextafter(exact(x), towards))
    synth.generate(tmp_path / "t.parquet")
    assert pq.read_table(tmp_path / "t.parquet").equals(pq.read_table(SAMPLE))


def test_a_slice_can_be_made_alone():
    plan = arrivals.make(traffic.PROFILES["bank"], seed=3, monday_s=0.0, duration_s=1_800.0, requests=2_000)
    alone = synth._part(plan, 13, 2, 3, 8)
    in_turn = [synth._part(plan, index, 2, 3, 8) for index in range(plan.slices)]
    assert len(alone) > 0
    assert (alone == in_turn[13]).all()
    # Every session of a slice starts in it, and numbers follow on.
    firsts = [part["session"].min() for part in in_turn if len(part)]
    assert firsts == sorted(firsts)


def test_keys_have_room_for_every_turn():
    assert max(t.most_turns for t in traffic.CLASSES) < 64


@pytest.mark.parametrize("kind", traffic.CLASSES, ids=lambda kind: kind.name)
def test_the_longest_first_turn_fits_the_context(kind):
    shared = 512 * (max(kind.system_blocks) + sum(s.high_blocks for s in kind.shared))
    assert shared + kind.first.high + kind.answer.high <= kind.context_tokens


def test_lengths_are_lognormal_with_the_stated_median():
    lengths = traffic.Lengths(((1.0, 1_000, 0.5),), 1, 100_000).draw(np.random.default_rng(0), 40_000)
    assert np.median(lengths) == pytest.approx(1_000, rel=0.02)
    assert np.log(lengths).std() == pytest.approx(0.5, rel=0.02)
    # mean of a lognormal: median * exp(sigma^2 / 2)
    assert lengths.mean() == pytest.approx(1_000 * math.exp(0.125), rel=0.02)


def test_mean_turns_is_that_of_a_cut_geometric():
    chat = traffic.CHAT
    q = chat.end_probability
    by_hand = sum(k * q * (1 - q) ** (k - 1) for k in range(1, chat.most_turns))
    by_hand += chat.most_turns * (1 - q) ** (chat.most_turns - 1)
    assert chat.turns_per_session() == pytest.approx(by_hand)


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"seed": -1}, "seed = -1"),
        ({"start": "tomorrow"}, "start = 'tomorrow'"),
        ({"duration_s": 0}, "duration_s = 0"),
        ({"duration_s": math.nan}, "duration_s = nan"),
        ({"requests": 0}, "requests = 0"),
        ({"requests_per_s": -1.0}, "requests = -3600"),
        ({"requests": 5, "requests_per_s": 5}, "not both"),
        ({"mix": "shop"}, "profiles are bank, reasoning"),
        ({"mix": {"chatt": 1}}, "did you mean 'chat'"),
        ({"mix": {"chat": -1}}, "'chat'] = -1"),
        ({"mix": {"chat": 0}}, "above 0"),
        ({"tenants": ()}, "at least one name"),
        ({"tenants": ("a", "a")}, "each once"),
    ],
)
def test_an_argument_out_of_range_is_named(tmp_path, arguments, words):
    with pytest.raises(ConfigError) as caught:
        synth.generate(tmp_path / "t.parquet", **arguments)
    assert words in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"nowhere.*does not exist"):
        synth.generate(tmp_path / "nowhere" / "t.parquet")


def test_an_interrupted_run_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "t.parquet"
    path.write_text("old")

    def interrupt(done: float, rows: int) -> None:
        if rows > 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synth.generate(path, progress=interrupt)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["t.parquet"]


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "t.parquet").mkdir()
    with pytest.raises(TraceError, match=r"t\.parquet: cannot be written"):
        synth.generate(tmp_path / "t.parquet", requests=50)
    assert [p.name for p in tmp_path.iterdir()] == ["t.parquet"]


def test_progress_ends_at_one(tmp_path):
    calls = []
    synth.generate(tmp_path / "t.parquet", requests=100, progress=lambda done, rows: calls.append((done, rows)))
    assert calls == sorted(calls)
    assert calls[-1][0] == 1.0
    assert calls[-1][1] == pq.read_metadata(tmp_path / "t.parquet").num_rows
