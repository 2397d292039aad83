"""Figures as lines of 80 columns: medians, and the spread from lowest to highest."""

from statistics import median
from typing import Any

Row = dict[str, Any]

KERNEL_TITLE = "Kernel: arrays in memory to arrays (CPU time, M = million)"
KERNEL_HEAD = f"{'':15}{'requests':>9}{'steps':>9}{'k req/s':>16}{'M steps/s':>10}{'M tok/s':>9}{'ns/event':>12}"
COMMAND_TITLE = "Command: servecast replay after imports (CPU seconds; all: wall)"
COMMAND_HEAD = f"{'':15}{'read':>8}{'replay':>8}{'write':>8}{'queries':>8}{'all':>8}{'lowest-highest':>17}{'MiB':>8}"


def kernel(name: str, row: Row) -> str:
    """Return the line of one workload under KERNEL_HEAD."""
    thousands = [rate / 1e3 for rate in row["requests_per_s"]]
    rate = f"{median(thousands):,.0f} {span(thousands, ',.0f')}"
    steps, tokens = median(row["steps_per_s"]) / 1e6, median(row["tokens_per_s"]) / 1e6
    event = f"{median(row['event_ns']):.1f}"
    counts = f"{_short(row['requests']):>9}{_short(row['steps']):>9}"
    return f"{name:15}{counts}{rate:>16}{steps:>10.2f}{tokens:>9,.0f}{event:>12}"


def command(name: str, row: Row) -> str:
    """Return the line of one workload under COMMAND_HEAD."""
    phases = "".join(f"{median(row[f'{phase}_s']):8.2f}" for phase in ("read", "replay", "write", "queries"))
    memory = max(row["memory_mib"])
    return f"{name:15}{phases}{median(row['all_s']):8.2f}{span(row['all_s'], '.2f'):>17}{memory:8,.0f}"


def ratio(row: Row) -> list[str]:
    """Return lines on the time of a replay against that of writing its tables."""
    rows = row["requests"] + row["steps"]
    lines = [f"Replay against pyarrow writing the same tables ({_short(rows)} rows; target: at most 2)"]
    for kind in ("wall", "cpu"):
        ours, theirs = row[f"replay_{kind}_s"], row[f"pyarrow_{kind}_s"]
        each = [a / b for a, b in zip(ours, theirs, strict=True)]
        lines.append(
            f"  {kind:5} replay {median(ours):.3f} s, pyarrow {median(theirs):.3f} s, "
            f"ratio {median(each):.2f} {span(each, '.2f')}"
        )
    return lines


def decoding(rows: list[Row]) -> list[str]:
    """Return lines on steps that only decode."""
    lines = [
        "Steps in which all requests just decode (CPU time; block takes are events)",
        f"  {'batch':>6}{'tokens a block':>16}{'blocks a step':>15}{'ns a step':>11}{'lowest-highest':>18}",
    ]
    for row in rows:
        spread = span(row["step_ns"], ".0f")
        counts = f"{row['batch']:6}{row['block_size']:16}{row['blocks']:15.2f}"
        lines.append(f"  {counts}{median(row['step_ns']):11.0f}{spread:>18}")
    return lines


def fleet(row: Row) -> list[str]:
    """Return lines on eight replicas against one."""
    lines = ["Fleet: CPU time per step row and request (target: ratio at most 1.3)"]
    for name, title in (("one", "1 replica"), ("by_turn", "8 replicas, by turn"), ("by_load", "8 replicas, by load")):
        values = row[f"{name}_ns"]
        shown = f"  {title:22}{median(values):8.0f} ns {span(values, '.0f'):>12}"
        lines.append(shown + (f"   ratio {row[f'{name}_ratio']:.2f}" if name != "one" else ""))
    return lines


def purchase(row: Row) -> list[str]:
    """Return lines on the admission of requests to provisioned capacity."""
    lines = [f"Admission: {row['requests']:,} requests to one size (target: 100 million under 20 s)"]
    for name, title in (("azure_s", "leaky bucket"), ("google_s", "windows")):
        ns = [one / row["requests"] * 1e9 for one in row[name]]
        lines.append(f"  {title:22}{median(ns):8.0f} ns a request {span(ns, '.0f'):>12}")
    return lines


def start_up(row: Row) -> list[str]:
    """Return lines on commands from start to end."""
    lines = ["Start to end of a command (imports included)"]
    for name, title, target in (
        ("help_s", "servecast --help", "0.3 s"),
        ("sample_s", "replay of the sample, warm", "3 s"),
        ("first_s", "first replay, compiling", "60 s"),
    ):
        if name in row:
            wall, cpu = ([pair[place] for pair in row[name]] for place in (0, 1))
            figures = f"{median(wall):6.2f} s {span(wall, '.2f'):>12}  CPU {median(cpu):5.2f} s  (target {target})"
            lines.append(f"  {title:27}{figures}")
    return lines


def span(values: list[float], form: str) -> str:
    """Return lowest and highest as `low-high`."""
    return f"{min(values):{form}}-{max(values):{form}}"


def _short(count: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f}"
