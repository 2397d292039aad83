import copy
import io

from rich.console import Console

from pipeline.report import summary
from tests.report import samples


def test_summary_as_it_is_printed():
    assert summary.plain(samples.run()) == (
        "At 5.5 requests/s, 24 users at once on average: p95 TTFT 380 ms, p95 TPOT 32 ms;\n"
        "KV memory peaks at 71 %; SLO met for 98.7 % of requests.\n"
        "130 of 9,870 requests miss the SLO (TTFT 1 s, TPOT 50 ms): 110 over the limit of\n"
        "TTFT, 20 without a full answer. Nothing binds: requests wait 3 % of the time and\n"
        "KV memory peaks at 71 %.\n"
        "                    p50         p90         p95         p99\n"
        "TTFT             120 ms      288 ms      384 ms      720 ms\n"
        "TPOT              18 ms     43.2 ms     57.6 ms      108 ms\n"
        "ITL               15 ms       36 ms       48 ms       90 ms\n"
        "E2E               3.9 s      9.36 s      12.5 s      23.4 s\n"
        "queue time         4 ms      9.6 ms     12.8 ms       24 ms\n"
        "throughput 5.41 requests/s, 1,160 tokens/s out; goodput 5.35 requests/s\n"
        "KV memory  mean 38 %, p95 66 %, peak 71 %; above 90 % for 0 % of time\n"
        "cache      42 % of prompt tokens found; 0 preemptions\n"
        "observed   mean TTFT +4 % (p95 +4 %), E2E +4 % (p95 +4 %) against the log\n"
        "requests   9,850 finished, 20 rejected\n"
        "records    12 unreadable, 130 not replayed\n"
        "run        runs/0123456789abcdef\n"
    )


def test_what_is_not_known_is_not_said():
    manifest = copy.deepcopy(samples.MANIFEST)
    manifest["trace"]["rejected_records"] = None
    assert "\nrecords    130 not replayed\n" in summary.plain(samples.run(manifest=manifest))


def test_a_number_stays_with_its_unit_and_a_warning_has_two_lines():
    manifest = copy.deepcopy(samples.MANIFEST)
    manifest["warnings"] = ["x" * 69 + " 5 ms", "word " * 100]
    lines = summary.plain(samples.run(manifest=manifest)).splitlines()
    first = lines.index("warning: " + "x" * 69)
    assert lines[first + 1 : first + 4] == [
        " " * 9 + "5 ms",
        "warning: " + "word " * 13 + "word",
        " " * 9 + "word " * 12 + "word ...",
    ]


def test_many_warnings_and_outcomes_stay_within_25_lines_of_80_columns():
    manifest = copy.deepcopy(samples.MANIFEST)
    manifest["warnings"] = [f"number {n}: " + "long words " * 30 for n in range(9)]
    manifest["counts"]["outcomes"] = dict.fromkeys(
        (
            "finished",
            "max_model_len",
            "rejected",
            "timed_out",
            "cancelled",
            "queue_full",
            "never_finished",
            "not_replayed",
        ),
        1_234_567,
    )
    manifest["config"]["slo"]["batch"] = {"ttft_ms": None}
    lines = summary.plain(samples.run(manifest=manifest)).splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    assert "6 more warnings: see run.json" in lines


def test_emphasis_only_on_a_terminal_and_no_markup_of_others():
    manifest = copy.deepcopy(samples.MANIFEST)
    manifest["warnings"] = ["[bold]tenant[/bold] \x1b[31mred"]
    out = io.StringIO()
    summary.show(
        samples.run(manifest=manifest), Console(file=out, force_terminal=True, width=80, color_system="standard")
    )
    assert "\x1b[1m" in out.getvalue()
    assert "[bold]tenant[/bold]" in out.getvalue()
    assert "\x1b[31m" not in out.getvalue()
    assert "\x1b" not in summary.plain(samples.run(manifest=manifest))
