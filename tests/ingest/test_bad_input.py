"""Input that people really have: each fault is named, nothing is half written, no text of the log is shown."""

import gzip
import json
import os
import subprocess
import sys

import polars as pl
import pyarrow as pa
import pytest

from pipeline.errors import TraceError
from pipeline.ingest import importer, ingest
from tests.ingest import build

CANARY = "CANARY-7f3a"


def load(tmp_path, content, name="log", **options):
    return importer.load([build.write(tmp_path / name, content)], **options)


def rejected(found):
    return found.rejects.select("source_row", "reason", "detail").rows()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"log: is empty \(0 bytes\)"),
        (b" \r\n\n", r"log: is empty \(nothing but blanks\)"),
        (build.AZURE.split("\n")[0], "log: has a header and no rows"),
        (build.BURST.split("\n")[0] + "\n", "log: has a header and no rows"),
        (gzip.compress(build.AZURE.encode() * 50)[:-20], "log: cannot be read: compressed data end too early"),
        (f"{CANARY} some text, of a prompt\nand, more", r"text whose first line has 34 characters and 1 commas"),
        (f'{{"prompt": "{CANARY}", "{CANARY} key": 1}}', "JSON lines with the keys prompt. Looked for"),
        ("a,b\n1,2\n", "CSV with the columns a, b. Looked for: azure_llm_trace"),
        (b"\x00\x01\x02\x03" * 9, "binary data beginning with the bytes 00 01 02 03"),
        (b"PAR1 not really", r"is no whole Parquet file"),
    ],
)
def test_files_of_no_use(tmp_path, content, message):
    with pytest.raises(TraceError, match=message) as error:
        load(tmp_path, content)
    assert CANARY not in str(error.value)


def test_missing_file_and_folder(tmp_path):
    build.write(tmp_path / "trace.csv", build.AZURE)
    with pytest.raises(TraceError, match=r"trase\.csv: no such file; did you mean trace\.csv\?"):
        importer.load([tmp_path / "trase.csv"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceError, match="a folder without logs"):
        importer.load([tmp_path / "empty"])
    with pytest.raises(TraceError, match="no input file"):
        importer.load([])


def test_a_file_that_may_not_be_read(tmp_path):
    path = build.write(tmp_path / "log", build.AZURE)
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(TraceError, match="cannot be read"):
        importer.load([path])


def test_byte_order_mark_crlf_and_blank_lines(tmp_path):
    found = load(tmp_path, "\ufeff" + build.AZURE.replace("\n", "\r\n") + "\r\n2024-05-12 00:00:01+00:00,5,6")
    assert found.trace["input_tokens"].to_list() == [76, 5]
    assert found.rows["source_row"].to_list() == [1, 3]


@pytest.mark.parametrize("wrap", [gzip.compress, lambda b: gzip.compress(b[:50]) + gzip.compress(b[50:])])
def test_compressed_files_need_no_suffix(tmp_path, wrap):
    assert len(load(tmp_path, wrap(build.AZURE.encode())).trace) == 1


def test_zstandard(tmp_path):
    with pa.CompressedOutputStream(str(tmp_path / "log"), "zstd") as stream:
        stream.write(build.MOONCAKE.encode())
    assert importer.load([tmp_path / "log"]).format == "mooncake"


def test_csv_rows_that_cannot_be_used(tmp_path):
    bad = [
        "2024-05-12 00:00:01+00:00,5",
        "2024-05-12 00:00:01+00:00,5,6,7",
        ",5,6",
        f"{CANARY},5,6",
        "2024-05-12 00:00:01+00:00,-5,6",
        f"2024-05-12 00:00:01+00:00,{CANARY},6",
        "2024-05-12 00:00:01+00:00,NaN,6",
        "2024-05-12 00:00:01+00:00,5,12.5",
        "2024-05-12 00:00:01+00:00,3000000000,6",
        "2024-05-12 00:00:01+00:00,10000001,6",
        "2024-05-12 00:00:01+00:00,99999999999999999999,6",
    ]
    found = load(tmp_path, build.AZURE + "\n".join(bad))
    assert rejected(found) == [
        (2, "bad_row", "2 cells, the header has 3"),
        (3, "bad_row", "4 cells, the header has 3"),
        (4, "missing_arrival", "TIMESTAMP is empty"),
        (5, "bad_timestamp", "TIMESTAMP is no ISO 8601 time"),
        (6, "negative_tokens", "ContextTokens is below 0"),
        (7, "bad_row", "ContextTokens is no whole number"),
        (8, "bad_row", "ContextTokens is no whole number"),
        (9, "bad_row", "GeneratedTokens is no whole number"),
        (10, "bad_row", "ContextTokens is above 10,000,000 tokens"),
        (11, "bad_row", "ContextTokens is above 10,000,000 tokens"),
        (12, "bad_row", "ContextTokens is no whole number"),
    ]
    assert found.rejects["locator"][0] == "row 2"
    assert len(found.trace) == 1


def test_unknown_counts_are_null_and_flagged(tmp_path):
    found = load(tmp_path, build.AZURE + "2024-05-12 00:00:01+00:00,,6\n2024-05-12 00:00:02+00:00,0,0\n")
    assert found.trace.select("input_tokens", "output_tokens", "replayable", "flags").rows()[1:] == [
        (None, 6, False, ["tokens_missing"]),
        (None, None, False, ["usage_missing"]),
    ]


def test_quoted_cells_and_columns_in_another_order(tmp_path):
    text = '"GeneratedTokens","TIMESTAMP","ContextTokens","Note"\n7,"2024-05-12 00:00:01+00:00","5","a, b"\n'
    found = load(tmp_path, text)
    assert found.trace.select("input_tokens", "output_tokens").rows() == [(5, 7)]
    assert found.notes == ["log: 1 further columns are not read"]


def test_json_lines_that_cannot_be_used(tmp_path):
    line = json.loads(build.MOONCAKE)
    bad = [
        f'{{"timestamp": 0, "input_length": 600, "{CANARY}',
        "[1, 2]",
        "17",
        json.dumps({**line, "input_length": float("nan")}),
        json.dumps({**line, "input_length": CANARY}),
        json.dumps({**line, "input_length": -600}),
        json.dumps({**line, "timestamp": None}),
        json.dumps({**line, "timestamp": CANARY}),
        json.dumps({**line, "hash_ids": [0, -1]}),
        json.dumps({**line, "hash_ids": [0, CANARY]}),
        json.dumps({**line, "timestamp": 1e30}),
    ]
    found = load(tmp_path, build.MOONCAKE * 3 + "\n".join(bad))
    assert [row[:2] for row in rejected(found)] == [
        (4, "bad_json"),
        (5, "bad_json"),
        (6, "bad_json"),
        (7, "bad_row"),
        (8, "bad_row"),
        (9, "negative_tokens"),
        (10, "missing_arrival"),
        (11, "bad_timestamp"),
        (12, "bad_row"),
        (13, "bad_row"),
        (14, "bad_timestamp"),
    ]
    assert CANARY not in str(rejected(found))
    assert len(found.trace) == 3


def test_broken_lines_never_run_into_each_other(tmp_path):
    """Read as one array, the first two would make one object and the third two: three again, but others."""
    inner = '{"timestamp": 9, "input_length": 600, "output_length": 9, "hash_ids": [0, 9]}'
    broken = [
        '{"timestamp": 1, "input_length": 600, "output_length": 1, "hash_ids": [0, 1], "more": [{"x": 1}',
        '{"y": 2}]}',
        f"{inner}, {inner}",
        "{}",
    ]
    found = load(tmp_path, build.MOONCAKE + "\n".join(broken) + "\n" + build.MOONCAKE)
    reasons = [(2, "bad_json"), (3, "bad_json"), (4, "bad_json"), (5, "missing_arrival")]
    assert [row[:2] for row in rejected(found)] == reasons
    assert found.trace["request_id"].to_list() == ["mooncake:1", "mooncake:6"]


def test_text_that_is_not_utf8(tmp_path):
    mooncake = load(tmp_path, build.MOONCAKE.encode() + b'{"timestamp": "\xff"}\n' + build.MOONCAKE.encode())
    assert rejected(mooncake) == [(2, "bad_json", "not valid UTF-8")]
    azure = load(tmp_path, build.AZURE.encode() + b"2024-05-12 00:00:01+00:00,\xff,6\n")
    assert rejected(azure) == [(2, "bad_row", "not valid UTF-8")]


def test_nothing_usable_leaves_the_reasons_and_no_trace(tmp_path):
    path = build.write(tmp_path / "log", build.AZURE.split("\n")[0] + "\nx,1,2\ny,1,2\n")
    with pytest.raises(
        TraceError, match=r"none of 2 records can be used \(bad_timestamp 2\); see .*t\.rejects\.parquet"
    ):
        ingest([path], out=tmp_path / "t.parquet")
    assert not (tmp_path / "t.parquet").exists()
    assert pl.read_parquet(tmp_path / "t.rejects.parquet")["reason"].to_list() == ["bad_timestamp"] * 2


def test_repeated_ids(tmp_path):
    other = build.BAILIAN.replace('"output_length": 11', '"output_length": 12')
    found = load(tmp_path, build.BAILIAN * 2 + other)
    assert rejected(found) == [(2, "duplicate", "request id and content repeat an earlier record")]
    assert found.trace.select("request_id", "output_tokens", "flags").rows() == [
        ("1", 11, ["relative_clock"]),
        ("1", 12, ["id_repeated", "relative_clock"]),
    ]


def test_equal_rows_without_ids_are_all_load(tmp_path):
    assert len(load(tmp_path, build.MOONCAKE * 2).trace) == 2


def test_parents_in_a_circle(tmp_path):
    def turn(chat, parent):
        return build.BAILIAN.replace('"chat_id": 1', f'"chat_id": {chat}').replace("-1", str(parent))

    found = load(tmp_path, turn(1, 2) + turn(2, 1) + turn(3, 3) + turn(4, 1))
    assert found.trace["session_id"].to_list() == [None] * 4
    assert found.trace["flags"].to_list() == [["parent_circle", "relative_clock"]] * 4


def test_a_long_chain_of_parents_is_one_session(tmp_path):
    text = "".join(
        build.BAILIAN.replace('"chat_id": 1', f'"chat_id": {n}').replace('_id": -1', f'_id": {n - 1 if n > 1 else -1}')
        for n in range(1, 200)
    )
    assert load(tmp_path, text).trace["session_id"].unique().to_list() == ["1"]


def test_wrong_block_size_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"do not fit blocks of 16 tokens; their prompts have about 300 tokens per id"):
        load(tmp_path, build.MOONCAKE, read_options={"prefix_block_tokens": "16"})


def test_a_list_that_does_not_fit_is_dropped_and_flagged(tmp_path):
    odd = build.MOONCAKE.replace("[0, 1]", "[0, 1, 2, 3]")
    found = load(tmp_path, build.MOONCAKE * 2 + odd)
    assert found.trace["prefix_tokens"].to_list() == [600, 600, None]
    assert found.trace["flags"].to_list()[2] == ["bucketed_arrivals", "prefix_mismatch", "relative_clock"]


def test_lists_of_full_blocks_cover_full_blocks(tmp_path):
    assert load(tmp_path, build.MOONCAKE.replace("[0, 1]", "[0]")).trace["prefix_tokens"].to_list() == [512]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefix_block_token": "512"}, r"mooncake does not take it; did you mean prefix_block_tokens\?"),
        ({"prefix_block_tokens": "0"}, "must be a whole number above 0"),
        ({"prefix_block_tokens": "many"}, "must be a whole number above 0"),
    ],
)
def test_read_options(tmp_path, options, message):
    with pytest.raises(TraceError, match=message):
        load(tmp_path, build.MOONCAKE, read_options=options)


def test_format_can_be_named_and_is_checked(tmp_path):
    assert load(tmp_path, build.AZURE, format="azure_llm_trace").reason == "named by the caller"
    with pytest.raises(TraceError, match=r"--format moncake: no such format; did you mean mooncake\?"):
        load(tmp_path, build.AZURE, format="moncake")


def test_several_files_share_one_clock(tmp_path):
    first = build.write(tmp_path / "a", build.AZURE)
    second = build.write(tmp_path / "b", build.AZURE.replace("00:00:00.5", "00:00:00.25"))
    trace = importer.load([first, second]).trace
    assert trace.select("request_id", "arrival_us").rows() == [
        ("azure_llm_trace:2.1", 0),
        ("azure_llm_trace:1.1", 250_000),
    ]


def test_the_same_file_twice_is_read_once(tmp_path):
    first, second = (build.write(tmp_path / name, build.AZURE) for name in "ab")
    found = importer.load([first, second])
    assert len(found.trace) == 1
    assert found.notes == ["b has the same bytes as a and is read once."]


def test_several_relative_clocks_have_no_order(tmp_path):
    first, second = build.write(tmp_path / "a", build.MOONCAKE), build.write(tmp_path / "b", build.MOONCAKE * 2)
    with pytest.raises(TraceError, match="2 files of mooncake with a relative clock"):
        importer.load([first, second])


def test_two_formats_are_both_named(tmp_path):
    first, second = build.write(tmp_path / "a", build.AZURE), build.write(tmp_path / "b", build.MOONCAKE)
    with pytest.raises(TraceError, match=r"2 formats in one import: a is azure_llm_trace .*; b is mooncake"):
        importer.load([first, second])


def test_the_input_is_never_overwritten(tmp_path):
    path = build.canonical(tmp_path / "t.parquet")
    with pytest.raises(TraceError, match="is an input as well"):
        ingest([path], out=path)


def test_a_full_disk_leaves_the_old_trace(tmp_path):
    """A process that may write 2,000 bytes a file meets what a full disk gives."""
    log = build.write(tmp_path / "log", build.AZURE)
    out = tmp_path / "out" / "t.parquet"
    ingest([log], out=out)
    before = {path.name: path.read_bytes() for path in out.parent.iterdir()}
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from pipeline.errors import TraceError\n"
        "from pipeline.ingest import ingest\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "try:\n    ingest([Path(sys.argv[1])], out=Path(sys.argv[2]))\n"
        "except TraceError as error:\n    print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", program, log, out], capture_output=True, text=True, check=True)
    assert "t.parquet: cannot be written" in result.stdout
    assert "File too large" in result.stdout
    assert {path.name: path.read_bytes() for path in out.parent.iterdir()} == before


def test_a_place_that_cannot_be_written(tmp_path):
    log = build.write(tmp_path / "log", build.AZURE)
    with pytest.raises(TraceError, match=r"log/t\.rejects\.parquet: cannot be written"):
        ingest([log], out=log / "t.parquet")
