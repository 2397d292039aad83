"""Each production layout in the ways it is delivered, what is hidden of it, and what broken records do."""

import base64
import copy
import gzip
import json
import re

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.errors import TraceError
from pipeline.ingest import importer, ingest
from tests.ingest import build, layouts

NAMES = sorted(layouts.RECORDS)
YEAR = {"first_line_year": "2026"}
NOT_GENERATED = "azure_diagnostics"  # states no tokens


def snake(value):
    if isinstance(value, dict):
        return {re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key).lower(): snake(inner) for key, inner in value.items()}
    return [snake(inner) for inner in value] if isinstance(value, list) else value


def load(path, **more):
    return importer.load([path], **more)


def one(path, **more):
    found = load(path, **more)
    assert len(found.rejects) == 0
    assert len(found.trace) == 1
    return found, found.trace.row(0, named=True)


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def event(record):
    return {"id": "1", "timestamp": 1794956283000, "message": json.dumps(record)}


def coded(record, pack=lambda data: data):
    return {"recordId": "1", "data": base64.b64encode(pack(json.dumps(record).encode())).decode()}


def cloudwatch(record):
    return {"messageType": "DATA_MESSAGE", "owner": "1", "logGroup": "g", "logEvents": [event(record)]}


CONTROL = {"messageType": "CONTROL_MESSAGE", "logEvents": [{"id": "0", "timestamp": 1, "message": "reachable"}]}
DELIVERIES = {
    "line": lines,
    "array": lambda record: json.dumps([record]),
    "indented": lambda record: json.dumps(record, indent=2),
    "indented_array": lambda record: json.dumps([record], indent=1),
    "bom_crlf": lambda record: "\ufeff" + lines(record).replace("\n", "\r\n"),
    "records": lambda record: json.dumps({"records": [record]}),
    "log_events": lambda record: lines(CONTROL, cloudwatch(record)),
    "log_events_one_after_another": lambda record: json.dumps(CONTROL) + json.dumps(cloudwatch(record)),
    "event_lines": lambda record: lines(event(record)),
    "firehose": lambda record: lines({"requestId": "1", "timestamp": 1, "records": [coded(record)]}),
    "firehose_of_log_events": lambda record: lines({"records": [coded(cloudwatch(record), gzip.compress)]}),
    "api_page": lambda record: json.dumps({"data": [record], "meta": {"page": 1, "totalItems": 1}}),
}


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("name", NAMES)
def test_a_record_is_the_same_however_it_is_delivered(tmp_path, name, delivery):
    plain = build.write(tmp_path / "plain", lines(layouts.RECORDS[name]))
    other = build.write(tmp_path / "other", DELIVERIES[delivery](layouts.RECORDS[name]))
    (first, wanted), (second, got) = one(plain, keep_ids=True), one(other, keep_ids=True)
    assert first.format == second.format == name
    assert got == wanted
    assert got["output_tokens"] == (None if name == NOT_GENERATED else 20)
    assert got["replayable"] == (name != NOT_GENERATED)


def test_otlp_in_snake_case_and_base64_ids(tmp_path):
    wanted = one(build.write(tmp_path / "camel", lines(layouts.OTEL)), keep_ids=True)[1]
    written = snake(layouts.OTEL)
    span = written["resource_spans"][0]["scope_spans"][0]["spans"][0]
    for key in ("trace_id", "span_id"):
        span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    assert one(build.write(tmp_path / "snake", lines(written)), keep_ids=True)[1] == wanted


def test_an_older_dump_of_langfuse_with_mixed_zones(tmp_path):
    old = {
        "id": "a",
        "traceId": "t",
        "type": "GENERATION",
        "startTime": "2026-11-17T18:20:06.125Z",
        "endTime": "2026-11-17T20:20:08.125+02:00",
        "completionStartTime": "2026-11-17T13:20:06.625-0500",
        "level": "DEFAULT",
        "model": "m",
        "modelParameters": {"max_tokens": "600"},
        "usage": {"input": 100, "output": 20, "total": 120, "unit": "TOKENS"},
        "promptTokens": 100,
        "completionTokens": 20,
    }
    newer = {**old, "id": "b", "usage": None, "promptTokens": "100", "completionTokens": "20"}
    found = load(build.write(tmp_path / "dump", json.dumps({"data": [old, newer]})), keep_ids=True)
    for row in found.trace.iter_rows(named=True):
        assert f"{row['arrival_time']:%H:%M:%S.%f}" == "18:20:06.125000"
        assert (row["obs_ttft_us"], row["obs_e2e_us"], row["max_tokens"]) == (500_000, 2_000_000, 600)
        assert (row["input_tokens"], row["output_tokens"], row["model"]) == (100, 20, "m")
    assert found.time_zone == "offsets as logged"


def test_numbers_as_text(tmp_path):
    record = {**layouts.LITELLM, "startTime": "1794956283250", "prompt_tokens": "100", "completion_tokens": "20.0"}
    _, row = one(build.write(tmp_path / "log", lines(record)))
    assert (row["input_tokens"], row["output_tokens"]) == (100, 20)
    assert f"{row['arrival_time']:%H:%M:%S.%f}" == "22:58:03.250000"


def test_a_broken_line_is_one_reject(tmp_path):
    text = lines(layouts.LITELLM) + json.dumps(layouts.LITELLM)[:300] + "\n" + lines({**layouts.LITELLM, "id": "2"})
    found = load(build.write(tmp_path / "log", text))
    assert list(found.rejects.select("locator", "reason").iter_rows()) == [("line 2", "bad_json")]
    assert len(found.trace) == 2


def test_invalid_utf8_is_one_reject(tmp_path):
    broken = lines(layouts.LITELLM).encode() + b'{"id": "\xff"}\n'
    found = load(build.write(tmp_path / "log", broken))
    assert found.rejects["reason"].to_list() == ["bad_json"]


def test_a_line_above_the_limit_is_one_reject(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.ingest.events.MAX_LINE_BYTES", 5_000)
    long = {**layouts.LITELLM, "id": "2", "response": "x" * 6_000}
    found = load(build.write(tmp_path / "log", lines(layouts.LITELLM, long)))
    assert found.rejects["detail"].to_list() == ["a line above 0 MiB"]


def test_a_folder_of_small_files(tmp_path):
    folder = tmp_path / "day"
    for number in range(200):
        (folder / f"h{number % 24:02}").mkdir(parents=True, exist_ok=True)
        record = {**layouts.LITELLM, "id": f"call-{number}", "startTime": 1794956283.25 - number}
        build.write(folder / f"h{number % 24:02}" / f"{number}.json", json.dumps(record, indent=2))
    build.write(folder / "_SUCCESS", "")
    build.write(folder / "empty.json", "")
    for given_path in (folder, tmp_path / "d*" / "**" / "*[0-9].json"):
        found = importer.load([given_path], keep_ids=True)
        assert len(found.trace) == 200
        assert found.trace["request_id"][0] == "call-199"


def test_two_formats_in_one_folder_are_both_named(tmp_path):
    build.write(tmp_path / "a.json", lines(layouts.LITELLM))
    build.write(tmp_path / "b.json", lines(layouts.VERTEX))
    with pytest.raises(TraceError, match=r"a\.json is litellm_standard_logging .*b\.json is vertex_request_response"):
        importer.load([tmp_path])


def files(tmp_path, name):
    if name == "vllm_log":
        return build.write(tmp_path / "log", layouts.VLLM), YEAR
    record = layouts.RECORDS[name]
    broken = json.dumps(record)[:-9] + "\n"
    typed = lines({key: [layouts.MARK] if isinstance(value, (int, float)) else value for key, value in record.items()})
    text = lines(record) if name == "vllm_bench_serve" else lines(record) + broken + typed
    return build.write(tmp_path / "log", text), {}


@pytest.mark.parametrize("name", [*NAMES, "vllm_log"])
def test_nothing_of_a_person_comes_out(tmp_path, name, capfd):
    path, stated = files(tmp_path, name)
    out = tmp_path / "out"
    out.mkdir()
    said = ""
    try:
        said = "\n".join(ingest([path], read_options=stated, out=out / "t.parquet").lines())
    except TraceError as error:
        said = str(error)
    said += "".join(capfd.readouterr())
    said += "".join(pl.read_parquet(file).write_json() for file in out.iterdir())
    assert layouts.MARK not in said
    assert "example.org" not in said
    assert "arn:" not in said
    for file in out.iterdir():
        assert layouts.MARK.encode() not in file.read_bytes()


def test_the_same_key_gives_the_same_bytes(tmp_path):
    log = build.write(tmp_path / "log", lines(layouts.LITELLM))
    keys = [build.write(tmp_path / f"key{n}", f"{n}" * 32) for n in (1, 2)]
    written = []
    for number, key in enumerate((keys[0], keys[0], keys[1], None)):
        ingest([log], out=tmp_path / f"{number}.parquet", privacy_key=key)
        written.append((tmp_path / f"{number}.parquet").read_bytes())
    assert written[0] == written[1]
    assert len(set(written)) == 3
    frames = [pl.read_parquet(tmp_path / f"{number}.parquet") for number in (0, 2)]
    assert frames[0]["prefix_hashes"].to_list() != frames[1]["prefix_hashes"].to_list()
    assert frames[0].drop("prefix_hashes")["input_tokens"].to_list() == [100]


def test_privacy_options_that_cannot_be_used(tmp_path):
    log = build.write(tmp_path / "log", lines(layouts.LITELLM))
    short = build.write(tmp_path / "key", "short")
    with pytest.raises(TraceError, match="privacy key has 5 bytes; at least 16 are needed"):
        load(log, privacy_key=short)
    with pytest.raises(TraceError, match="exclude each other"):
        load(log, privacy_key=short, keep_ids=True)
    with pytest.raises(TraceError, match="cannot be read"):
        load(log, privacy_key=tmp_path / "none")


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(["1e999", "-1", "{", "[1", "2026-11-31", "9" * 30, "0001-01-01T00:00:00+14:00"]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def places(value, path=()):
    """Yield the paths of all values inside a record."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*path, key)
        yield from places(part, (*path, key))


@pytest.mark.parametrize("name", NAMES)
def test_any_change_to_a_record_is_read_or_rejected(tmp_path_factory, name):
    folder = tmp_path_factory.mktemp("fuzz")
    paths = list(places(layouts.RECORDS[name]))

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(st.tuples(st.sampled_from(paths), JUNK), min_size=1, max_size=4))
    def changed(changes):
        record = copy.deepcopy(layouts.RECORDS[name])
        for path, junk in changes:
            place = record
            try:
                for key in path[:-1]:
                    place = place[key]
                place[path[-1]] = junk
            except (TypeError, KeyError, IndexError):
                continue
        found = importer.load([build.write(folder / "log", lines(layouts.RECORDS[name], record))], format=name)
        assert len(found.trace) + len(found.rejects) <= found.records
        assert found.trace["output_tokens"].fill_null(0).min() >= 0

    changed()


OWN = {"ts": ["2026-11-17 10:00:00", "2026-11-17 09:59:59.5"], "in": [100, 200], "out": [20, 30], "code": [200, 429]}
MAP = {"map": "arrival=ts,input=in,output=out,status=code", "naive_timestamps_are": "Europe/Berlin"}


@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet"])
def test_a_log_of_ones_own_by_a_map_of_columns(tmp_path, kind):
    getattr(pl.DataFrame(OWN), f"write_{kind}")(tmp_path / "own")
    found = load(tmp_path / "own", read_options=MAP)
    assert found.format == "columns"
    assert found.trace["arrival_us"].to_list() == [0, 500_000]
    assert f"{found.trace['arrival_time'][0]:%H:%M:%S.%f}" == "08:59:59.500000"
    assert found.trace.select("input_tokens", "status").rows() == [(200, "throttled"), (100, "ok")]


@pytest.mark.parametrize(
    ("times", "stated", "span_us"),
    [
        ([5.5, 7], {}, 1_500_000),
        ([1794956283.25, 1794956284], {}, 750_000),
        ([1794956283250, 1794956284000], {}, 750_000),
        ([10, 20], {"time_unit": "ms"}, 10_000),
    ],
)
def test_units_of_time_are_found_or_stated(tmp_path, times, stated, span_us):
    pl.DataFrame({"ts": times, "in": [1, 2], "out": [1, 2]}).write_csv(tmp_path / "own")
    found = load(tmp_path / "own", read_options={"map": "arrival=ts,input=in,output=out", **stated})
    assert found.trace["arrival_us"][-1] == span_us
    assert (found.trace["arrival_time"][0] is None) == (times[0] < 1e8)


@pytest.mark.parametrize(
    ("given_map", "message"),
    [
        ("arrival=ts,input=in", "--map lacks output"),
        ("arival=ts,input=in,output=out", "did you mean arrival"),
        ("arrival=when,input=in,output=out", "has no column when"),
    ],
)
def test_maps_that_cannot_be_used(tmp_path, given_map, message):
    pl.DataFrame(OWN).write_csv(tmp_path / "own")
    with pytest.raises(TraceError, match=message):
        load(tmp_path / "own", read_options={"map": given_map})
