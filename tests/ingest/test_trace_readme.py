"""The page on the trace format agrees with the schema and the code."""

import re
from pathlib import Path

import pyarrow as pa

from pipeline import ingest, schema
from pipeline.ingest import formats
from pipeline.resources import folder

PAGE = (folder("traces") / "README.md").read_text()


def kind(arrow: pa.DataType) -> str:
    if pa.types.is_dictionary(arrow):
        return "label"
    if pa.types.is_list(arrow):
        return f"list of {arrow.value_type}"
    return "timestamp us, UTC" if pa.types.is_timestamp(arrow) else str(arrow)


def section(title: str) -> str:
    return re.split(rf"^## {title}\n", PAGE, flags=re.MULTILINE)[1].split("\n## ")[0]


def first_cells(text: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def test_columns():
    rows = [line for line in section("Columns").splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{c.name}` | {kind(c.type)} | {'yes' if c.nullable else 'no'} | {c.doc} |" for c in schema.TRACE.columns
    ]


def test_reject_reasons():
    assert first_cells(section("Rejects")) == list(schema.REJECT_REASONS)


def test_flags():
    code = "".join(path.read_text() for path in Path(ingest.__file__).parent.rglob("*.py"))
    used = set(re.findall(r'flag\(\s*"(\w+)"', code)) | set(re.findall(r'"flag:(\w+)"', code))
    used |= set(re.findall(r'flags\.add\("(\w+)"\)', code))
    assert first_cells(section("Flags")) == sorted(used)


def test_formats_and_their_options():
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]*)\|$", section("Logs that are read"), re.MULTILINE))
    stated = {name: dict(re.findall(r"`(\w+) = (\w+)`", text)) for name, text in rows.items()}
    assert stated == {name: dict(module.OPTIONS) for name, module in formats.FORMATS.items()}


def test_the_example_makes_a_trace(tmp_path, monkeypatch):
    [program] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    summary = ingest.ingest([Path("mine.parquet")], out=Path("trace.parquet"))
    assert (summary.valid, summary.replayable, summary.span_us, summary.input_tokens) == (2, 2, 750_000, 1540)
