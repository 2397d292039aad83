"""The point to choose, the stored table, and the table in the terminal, from figures made up here."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from pipeline.sweep import results, run, terminal
from pipeline.sweep.grid import Grid
from pipeline.sweep.results import DONE, UNUSABLE, Result

NO_FIGURES = (
    "run_id requests replicas gpus offered_rps completed_rps goodput_rps goodput_per_gpu_rps output_tokens_per_s "
    "ttft_p95_ms tpot_p95_ms e2e_p95_ms itl_p99_ms kv_peak_share kv_used_share kv_held_share place_share "
    "place_idle_share recomputed_share preemptions slo_share"
)


def point(number, goodput=1.0, slo_share=1.0, gpus=1, settings=None, **figures):
    row = dict.fromkeys(NO_FIGURES.split()) | {
        "run_id": f"{number:016x}", "requests": 100, "replicas": gpus, "gpus": gpus, "goodput_rps": goodput,
        "goodput_per_gpu_rps": goodput / gpus, "slo_share": slo_share, "completed_rps": 1234.5, "ttft_p95_ms": 123456.7,
        "tpot_p95_ms": 123.4, "kv_peak_share": 1.0, "preemptions": 0,
    }  # fmt: skip
    return Result(number, settings or {"load.rate_scale": number}, DONE, row["run_id"], row | figures)


def test_the_highest_goodput_per_accelerator_among_those_that_keep_the_slo():
    given = [point(1, 4.0, 0.995), point(2, 9.0, 0.9899), point(3, 5.0, 0.99), point(4, 9.9, 1.0, gpus=2)]
    choice = results.choose(given, 0.99)
    assert choice.number == 3
    assert choice.reason == (
        "Choose point 3 (rate_scale 3): of the 3 points that keep the SLO for 99 % of the requests it has the highest "
        "goodput per accelerator, 5 requests/s."
    )


def test_on_equal_goodput_fewer_accelerators_then_the_first():
    assert results.choose([point(1, 4.0, gpus=2), point(2, 2.0), point(3, 2.0)], 0.99).number == 2


def test_a_single_one_that_keeps_it():
    choice = results.choose([point(1, 4.0, 0.5), point(2, 6.0, gpus=3)], 0.99)
    assert choice.reason == (
        "Choose point 2 (rate_scale 2): it is the only one that keeps the SLO for 99 % of the requests; goodput per "
        "accelerator 2 requests/s on each of 3."
    )


def test_none_keeps_it():
    choice = results.choose([point(1, 4.0, 0.5), point(2, 6.0, 0.985), point(3, 1.0, None)], 0.99)
    assert choice.number is None
    assert choice.reason == (
        "No point keeps the SLO for 99 % of the requests; point 2 (rate_scale 2) comes nearest with 98.5 %."
    )
    assert results.choose([point(1, 4.0, None)], 0.99).number is None


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], "int64"),
        ([1, 0.5], "double"),
        ([True, False], "bool"),
        (["none", "a"], "string"),
        ([1, "auto"], "string"),
        ([None, 3], "int64"),
    ],
)
def test_settings_keep_their_type(values, kind):
    given = [point(n, settings={"x.y": value}) for n, value in enumerate(values, 1)]
    table = results.table(given, ["x.y"], results.choose(given, 0.99))
    assert str(table.schema.field("x.y").type) == kind
    expected = [value if kind != "string" or value is None else str(value) for value in values]
    assert table["x.y"].to_pylist() == expected


def test_the_stored_table_has_every_point_with_its_reason():
    given = [point(1), Result(2, {"load.rate_scale": 2}, UNUSABLE, None, None, "does not fit")]
    table = results.table(given, ["load.rate_scale"], results.choose(given, 0.99))
    columns = ("point", "status", "reason", "run_id", "goodput_rps", "chosen")
    assert table.select(columns).to_pylist() == [
        dict(zip(columns, (1, "done", None, "0000000000000001", 1.0, True), strict=True)),
        dict(zip(columns, (2, "unusable", "does not fit", None, None, False), strict=True)),
    ]
    assert all(field.metadata[b"doc"] for field in table.schema)


def shown(given, varied, width=80):
    grid = Grid(tuple(varied), ())
    choice = results.choose(given, 0.99)
    sweep = run.Sweep(Path("runs/sweeps/0"), Path("runs"), grid, tuple(given), choice, len(given), (), 0)
    out = io.StringIO()
    terminal.show(sweep, Console(file=out, width=width, color_system=None, force_terminal=False))
    return out.getvalue().splitlines()


def test_the_table_in_80_columns():
    given = [point(1, 0.5), point(2, 2.0, slo_share=0.9991), point(3, 0.0, 0.2, ttft_p95_ms=None)]
    lines = shown(given, ["load.rate_scale"])
    assert [line.split() for line in lines[:2]] == [
        ["rate_", "requests", "good", "TTFT", "TPOT", "KV", "SLO"],
        ["point", "scale", "/s", "/s", "p95", "p95", "peak", "kept", "run"],
    ]
    assert [line.split() for line in lines[2:5]] == [
        ["1", "1", "1,234", "0.5", "123", "s", "123", "ms", "100", "%", "100", "%", "0000000000000001"],
        ["*2", "2", "1,234", "2", "123", "s", "123", "ms", "100", "%", "99.9", "%", "0000000000000002"],
        ["3", "3", "1,234", "0", "–", "123", "ms", "100", "%", "20", "%", "0000000000000003"],
    ]
    assert max(map(len, lines)) <= 80


def test_settings_that_do_not_fit_stand_above_the_table():
    settings = {
        "hardware.model": "meta-llama/Llama-3.1-8B-Instruct",
        "hardware.gpu": "h100-80gb-sxm",
        "engine.max_num_seqs": 64,
    }
    lines = shown([point(n, settings=settings | {"engine.max_num_seqs": n}) for n in (1, 2)], settings)
    assert lines[0] == "*1 model meta-llama/Llama-3.1-8B-Instruct, gpu h100-80gb-sxm, max_num_seqs 1"
    assert lines[1] == "2 model meta-llama/Llama-3.1-8B-Instruct, gpu h100-80gb-sxm, max_num_seqs 2"
    assert [line.split()[0] for line in lines[5:7]] == ["*1", "2"]
    assert all("00000000000000" in line for line in lines[5:7])
    assert max(map(len, lines)) <= 80


def test_every_point_without_a_run_is_named():
    given = [point(1), Result(2, {"load.rate_scale": 2}, UNUSABLE, None, None, "a reason " * 60)]
    lines = shown(given, ["load.rate_scale"])
    (first,) = [line for line in lines if line.startswith("point 2 (rate_scale 2) cannot be used: a reason")]
    assert max(map(len, lines)) <= 80
    assert lines.index(first) > lines.index(next(line for line in lines if "0000000000000001" in line))
