"""The command line: verbs, each of which imports what it needs when it is called."""

import errno
import functools
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from pipeline import __version__
from pipeline.errors import ServecastError

if TYPE_CHECKING:
    from pipeline.sweep.cluster import Cluster
    from pipeline.sweep.grid import Grid
    from pipeline.sweep.results import Choice, Result

EXIT_NO, EXIT_INPUT, EXIT_FAULT, EXIT_INTERRUPTED = 1, 2, 3, 130


_LOGS = click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="TRACE_OR_LOG...")
_READING = (
    click.option("--format", "format_", metavar="F", help="Format of the log; found from its content if not given."),
    click.option("--read-option", multiple=True, metavar="KEY=VALUE", help="What the log does not state."),
    click.option(
        "--spread-ticks",
        type=click.IntRange(min=0),
        metavar="SEED",
        help="Spread arrivals inside the ticks of a coarse clock, by this seed; literal times if not given.",
    ),
    click.option(
        "--privacy-key",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Key of the pseudonyms for ids and tenants; one that is thrown away if not given.",
    ),
    click.option(
        "--map",
        "map",
        metavar="FIELD=COLUMN,...",
        help="Columns of your own CSV, Parquet or JSON, as arrival=ts,input=prompt_toks,output=reply_toks.",
    ),
    click.option(
        "--time-unit",
        "time_unit",
        type=click.Choice(["s", "ms", "us", "ns"]),
        help="Unit of times that are numbers, with --map; found from their size if not given.",
    ),
    click.option(
        "--time-zone",
        "naive_timestamps_are",
        metavar="ZONE",
        help="Zone of times without offset, as Europe/Berlin; UTC if not given.",
    ),
    click.option("--keep-ids", is_flag=True, help="Leave ids and tenants as logged."),
)


_NAMED_READ_OPTIONS = ("map", "time_unit", "naive_timestamps_are")  # read options that have a name of their own


def _reading(command: Any) -> Any:
    """Add the options that say how logs are read; the command gets them as `reading`, arguments of `prepare`."""

    @functools.wraps(command)
    def gathered(
        *, format_: str | None, read_option: tuple[str, ...], spread_ticks: int | None, privacy_key: Path | None,
        keep_ids: bool, **others: Any,
    ) -> Any:  # fmt: skip
        named = {name: value for name in _NAMED_READ_OPTIONS if (value := others.pop(name)) is not None}
        reading = {
            "format": format_,
            "read_options": named | _pairs(read_option),
            "spread_ticks": spread_ticks,
            "privacy_key": privacy_key,
            "keep_ids": keep_ids,
        }
        return command(reading=reading, **others)

    for option in reversed(_READING):
        gathered = option(gathered)
    return gathered


def _tell_ingested(summary: Any) -> None:
    click.echo("\n".join(summary.lines(_width())) + "\n")


class _Group(click.Group):
    """A group whose errors are one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ServecastError as error:
            _stop(str(error), error.exit_code)
        except KeyboardInterrupt:
            _stop("interrupted; nothing half-written was kept", EXIT_INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if os.environ.get("SERVECAST_DEBUG"):
                raise
            if isinstance(error, OSError):
                _stop_for_system(error)
            if isinstance(error, MemoryError):
                _stop("out of memory; fewer or shorter requests at once need less (engine.max_num_seqs)", EXIT_INPUT)
            # The text of an unforeseen error may quote a log, so only its kind and place are shown.
            place = _place(error)
            _stop(f"internal fault: {type(error).__name__} at {place}; SERVECAST_DEBUG=1 shows all", EXIT_FAULT)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="servecast")
def main() -> None:
    """Replay the request log of an LLM service through an exact model of its engine.

    Exit status: 0 done; 1 the answer is no (SLO missed, differences found); 2 unusable input or
    arguments; 3 internal fault.
    """


@main.command()
@_LOGS
@_reading
@click.option(
    "-o", "out", type=click.Path(path_type=Path), help="Trace to write; LOG.parquet in this folder if not given."
)
def ingest(
    logs: tuple[Path, ...],
    reading: dict[str, Any],
    out: Path | None,
) -> None:
    """Turn logs into a trace.

    Records that cannot be used go to X.rejects.parquet beside the trace X.parquet, with row and reason.
    """
    from pipeline.ingest import ingest as read_logs

    out = out or Path(logs[0].name.split(".")[0] + ".parquet")
    summary = read_logs(list(logs), **reading, out=out)
    click.echo("\n".join(summary.lines(_width())))


@main.command()
@_LOGS
@click.option("--config", "config_path", type=click.Path(path_type=Path), help="Settings as TOML (replay.toml).")
@click.option("--engine-args", metavar="TEXT", help='A pasted launch line, as "vllm serve ...".')
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, as engine.max_num_seqs=64.")
@click.option("--where", metavar="CONDITION", help="Replay only these rows, as \"model = 'm'\".")
@_reading
@click.option("--decisions", is_flag=True, help="Also write one row per step and request (slow, large).")
@click.option(
    "--bands/--no-bands",
    default=None,
    help="Say how sure the headlines are, by three more replays.  [default: up to 200,000 requests]",
)
@click.option("--report", "with_report", is_flag=True, help="Also write the report page.")
@click.option(
    "--require-slo",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Exit with 1 if a smaller share of the requests keeps the SLO.",
)
@click.option(
    "-o", "out", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Folder of runs."
)
def replay(
    logs: tuple[Path, ...],
    config_path: Path | None,
    engine_args: str | None,
    overrides: tuple[str, ...],
    where: str | None,
    reading: dict[str, Any],
    decisions: bool,
    bands: bool | None,
    with_report: bool,
    require_slo: float | None,
    out: Path,
) -> None:
    """Replay a trace or a log; print the run folder and a summary.

    A log is read once into OUT/traces/. A run that was made before is found, not repeated.
    Settings come from --config, then --engine-args, then --set; a later one wins. `servecast
    settings` lists them with units and defaults.
    """
    from pipeline import config
    from pipeline.replay import terminal
    from pipeline.replay.prepare import prepare

    settings = config.load(config_path, overrides, engine_args)
    for text in settings.unmodelled:
        click.echo(text, err=True)
    trace = prepare(list(logs), out, **reading, ingested=_tell_ingested)
    run, made = terminal.replay(trace, settings, out, where=where, decisions=decisions)
    terminal.bands(run, trace, settings, where, bands)
    _summarise(run, made, with_report, require_slo)


def _summarise(run: Path, made: bool, with_report: bool, require_slo: float | None) -> None:
    from pipeline import report

    if not made:
        click.echo(f"This run was made before: {run}")
    report.show_summary(run, _console())
    if with_report:
        page, *_ = report.write([run], _report_folder([run], None))
        click.echo(f"Report: {page}")
    if require_slo is not None:
        from pipeline.query import session

        share = session.answer_rows(session.open([run]), "headline")[0]["slo_share"]
        if share is None or share < require_slo:
            shown = "unknown" if share is None else f"{share:.2%}"
            click.echo(f"SLO missed: {shown} of the requests keep it, {require_slo:.2%} are required", err=True)
            sys.exit(EXIT_NO)


@main.command()
@_LOGS
@click.option("--config", "config_path", type=click.Path(path_type=Path), help="Settings as TOML (replay.toml).")
@click.option("--engine-args", metavar="TEXT", help='A pasted launch line, as "vllm serve ...".')
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, as engine.max_num_seqs=64.")
@click.option("--where", metavar="CONDITION", help="Replay only these rows, as \"model = 'm'\".")
@_reading
@click.option(
    "--fit-share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.5,
    show_default=True,
    help="First share of the requests to fit to; the rest is judged.",
)
@click.option(
    "-o",
    "out",
    type=click.Path(path_type=Path),
    default=Path("calibration.toml"),
    show_default=True,
    help="Settings to write; figures (.json) and a chart (.png) go beside it.",
)
def calibrate(
    logs: tuple[Path, ...],
    config_path: Path | None,
    engine_args: str | None,
    overrides: tuple[str, ...],
    where: str | None,
    reading: dict[str, Any],
    fit_share: float,
    out: Path,
) -> None:
    """Fit step times to the latencies that a log saw, and say what that is worth.

    The log must state TTFT or E2E. A factor on the kernels, the engine's time per step and the time outside the engine
    are fitted to the first part of it, and judged on the rest. OUT is a file for --config with these settings.
    """
    import tempfile

    from pipeline import config
    from pipeline.calibrate import run, terminal
    from pipeline.replay.prepare import prepare

    settings = config.load(config_path, overrides, engine_args)
    with tempfile.TemporaryDirectory() as root:
        trace = prepare(list(logs), Path(root), **reading)
        found = run.calibrate(trace, settings, where=where, fit_share=fit_share)
    click.echo("\n".join(terminal.lines(found)))
    click.echo("\n" + "\n".join(f"Written: {path}" for path in run.write(found, settings, trace.name, out)))


@main.command()
@click.argument("grid", type=click.Path(path_type=Path), metavar="GRID.toml")
@_LOGS
@click.option("--where", metavar="CONDITION", help="Replay only these rows, as \"model = 'm'\".")
@_reading
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Runs at once.  [default: processors]")
@click.option("--ray", "with_ray", is_flag=True, help="Run as tasks of a Ray started here (extra: servecast[ray]).")
@click.option("--ray-address", metavar="ADDRESS", help="Run as tasks of the Ray cluster at this address.")
@click.option("--report", "with_report", is_flag=True, help="Also write the report page of every run.")
@click.option(
    "-o", "out", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Folder of runs."
)
def sweep(
    grid: Path,
    logs: tuple[Path, ...],
    where: str | None,
    reading: dict[str, Any],
    jobs: int | None,
    with_ray: bool,
    ray_address: str | None,
    with_report: bool,
    out: Path,
) -> None:
    """Replay a trace or a log under many settings, and say which to choose.

    GRID.toml is a replay.toml with a table [sweep] of settings over lists. Each point is a run of its own; runs that
    were made before are found, not repeated. Table, page and the point to choose go to OUT/sweeps/.

    Exit status: 0 every point is done; 2 some cannot be used (the others are done); 3 a run met a fault of the program.
    """
    from pipeline.sweep import grid as grids
    from pipeline.sweep import results
    from pipeline.sweep.cluster import Cluster

    cluster = Cluster(ray_address, jobs) if with_ray or ray_address is not None else None
    _sweep(grids.load(grid), logs, where, reading, jobs, cluster, with_report, out, results.choose)


@main.command()
@_LOGS
@click.option("--policies", default="all", show_default=True, metavar="NAMES", help="all, or names with commas.")
@click.option(
    "--loads", default="0.5,1,1.5,2", show_default=True, metavar="FACTORS", help="Rates as factors, at most four."
)
@click.option("--config", "config_path", type=click.Path(path_type=Path), help="Settings as TOML (replay.toml).")
@click.option("--engine-args", metavar="TEXT", help='A pasted launch line, as "vllm serve ...".')
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, as engine.max_num_seqs=64.")
@click.option("--where", metavar="CONDITION", help="Replay only these rows, as \"model = 'm'\".")
@_reading
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Runs at once.  [default: processors]")
@click.option("--report", "with_report", is_flag=True, help="Also write the report page of every run.")
@click.option(
    "-o", "out", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Folder of runs."
)
def compare(
    logs: tuple[Path, ...],
    policies: str,
    loads: str,
    config_path: Path | None,
    engine_args: str | None,
    overrides: tuple[str, ...],
    where: str | None,
    reading: dict[str, Any],
    jobs: int | None,
    with_report: bool,
    out: Path,
) -> None:
    """Replay a trace or a log under several schedulers, and show what the choice does.

    The settings describe one deployment; every other scheduler gets the same accelerators, KV memory, longest sequence
    and limit of running requests, and its own defaults for the rest. Table and page go to OUT/sweeps/.

    Exit status as of `servecast sweep`.
    """
    from pipeline import config
    from pipeline.engines import POLICIES
    from pipeline.sweep import compare as comparing

    settings = config.load(config_path, overrides, engine_args)
    names = list(POLICIES) if policies == "all" else [name.strip() for name in policies.split(",")]
    points = comparing.grid(settings, names, _factors(loads))
    _sweep(points, logs, where, reading, jobs, None, with_report, out, comparing.choose)


def _factors(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text}: must be numbers with commas, as 0.5,1,2", param_hint="--loads") from None


def _sweep(
    points: "Grid",
    logs: tuple[Path, ...],
    where: str | None,
    reading: dict[str, Any],
    jobs: int | None,
    cluster: "Cluster | None",
    with_report: bool,
    out: Path,
    choose: "Callable[[Sequence[Result], float], Choice]",
) -> None:
    """Make the runs of a grid, show what came of them, and leave with the sweep's exit status."""
    from pipeline.replay.prepare import prepare
    from pipeline.sweep import run, terminal

    trace = prepare(list(logs), out, **reading, ingested=_tell_ingested)
    with terminal.progress() as tell:
        done = run.sweep(
            points,
            trace,
            out,
            where=where,
            workers=jobs or os.cpu_count() or 1,
            cluster=cluster,
            pages=with_report,
            choose=choose,
            tell=tell,
        )
    terminal.show(done, _console())
    click.echo(f"report {done.files[0]}")
    sys.exit(done.exit_code)


@main.command()
@_LOGS
@click.option("--config", "config_path", type=click.Path(path_type=Path), help="Settings as TOML; [prices] is read.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, as prices.bucket_s=120.")
@click.option(
    "--provider", type=click.Choice(["azure", "google", "openai", "anthropic", "bedrock"]), help="Whose capacity."
)
@click.option("--model", metavar="NAME", help="Model that serves the traffic, as `servecast prices` lists it.")
@click.option("--deployment-type", type=click.Choice(["global", "datazone", "regional"]), help="Kind of deployment.")
@click.option("--region", metavar="NAME", help="Region, named on the page.")
@click.option("--where", metavar="CONDITION", help="Count only these rows, as \"model = 'm'\".")
@_reading
@click.option("--own", "with_own", is_flag=True, help="Also find how many own replicas keep the SLO, by replays.")
@click.option(
    "-o", "out", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Folder of runs."
)
def ptu(
    logs: tuple[Path, ...],
    config_path: Path | None,
    overrides: tuple[str, ...],
    where: str | None,
    reading: dict[str, Any],
    with_own: bool,
    out: Path,
    **chosen: str | None,
) -> None:
    """Say how much provisioned capacity to buy for the traffic of a trace or a log, and when it breaks even.

    Every request goes through the vendor's admission rule for each number of units; what does not fit spills to
    pay-as-you-go. Prices and rates are published ones, or what [prices] states instead. Tables go to
    OUT/purchases/ID/ for `servecast sql`, the page to reports/out/.
    """
    from pipeline import config
    from pipeline import report as reports
    from pipeline.capacity import run
    from pipeline.replay.prepare import prepare

    given = [f"prices.{key}={value}" for key, value in chosen.items() if value is not None]
    settings = config.load(config_path, (*overrides, *given))
    trace = prepare(list(logs), out, **reading, ingested=_tell_ingested)
    folder, made = run.decide(trace, settings, out, where=where, with_own=with_own)
    if not made:
        click.echo(f"This purchase was decided before: {folder}")
    reports.show_purchase(folder, _console())
    page, *_ = reports.write_purchase(folder, _report_folder([folder], None))
    click.echo(f"tables {folder}\npage   {page}")


@main.command()
@click.argument("table", default="units", metavar="[TABLE]")
@click.option("--provider", metavar="NAME", help="Only this vendor.")
@click.option("--model", metavar="TEXT", help="Only models whose name has this text in it.")
@click.option("--json", "as_json", is_flag=True, help="All columns as JSON lines.")
def prices(table: str, provider: str | None, model: str | None, as_json: bool) -> None:
    """List published rates and prices with source and date.

    TABLE is units (the default), unit_prices, token_prices, scale_tier, model_units, gpu_hours, tiers or sources.
    Dates of more than 90 days ago, and unknown ones, are marked: check them before you buy.
    """
    import datetime

    from pipeline.capacity import listing

    rows = listing.rows(table, provider, model)
    if as_json:
        click.echo("\n".join(listing.as_json(rows)))
        return
    listing.show(table, rows, _console(), datetime.date.today())


@main.group(invoke_without_command=True)
@click.option("--model", metavar="NAME", help="Model: id, Hugging Face name, or a config.json of your own.")
@click.option("--gpu", metavar="NAME", help="Accelerator: id, alias, or the name of your [accelerator].")
@click.option("--tp", type=click.IntRange(min=1), metavar="N", help="Accelerators that share the model.")
@click.option("--config", "config_path", type=click.Path(path_type=Path), help="Settings as TOML (replay.toml).")
@click.option("--engine-args", metavar="TEXT", help='A pasted launch line, as "vllm serve ...".')
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, as engine.max_num_seqs=64.")
@click.option("--lengths", metavar="N,N,...", help="Lengths of a request to count with, tokens.")
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
@click.pass_context
def hardware(
    context: click.Context,
    model: str | None,
    gpu: str | None,
    tp: int | None,
    config_path: Path | None,
    engine_args: str | None,
    overrides: tuple[str, ...],
    lengths: str | None,
    as_json: bool,
) -> None:
    """List accelerators and models, or explain one configuration.

    With --model, --gpu or other settings: where memory goes, KV bytes per token, blocks, and how many requests run
    at once, beside what a naive sum says. Without: the catalogue.
    """
    if context.invoked_subcommand is not None:
        return
    import json

    from pipeline import config
    from pipeline.hardware import listing, resolve
    from pipeline.hardware.explain import explain

    named = (("hardware.model", model), ("hardware.gpu", gpu), ("engine.tensor_parallel_size", tp))
    given = [f"{key}={value}" for key, value in named if value is not None]
    if not (given or config_path or engine_args or overrides):
        click.echo(json.dumps(listing.catalogue_rows(), indent=1) if as_json else "\n".join(listing.catalogue_lines()))
        return
    told = explain(resolve(config.load(config_path, (*overrides, *given), engine_args)), _lengths(lengths))
    click.echo(json.dumps(told, indent=1, allow_nan=False) if as_json else "\n".join(listing.lines(told)))


@hardware.command("fit")
@click.option("--model", metavar="NAME", help="Model: id, Hugging Face name, or a config.json of your own.")
@click.option("--gpu", metavar="NAME", help="Accelerator: id or alias.")
@click.option("--tp", type=click.IntRange(min=1), metavar="N", help="Accelerators that share the model.")
@click.option("--config", "config_path", type=click.Path(path_type=Path), help="Settings as TOML (replay.toml).")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, as hardware.kv_cache_dtype=fp8."
)
@click.option("-o", "out", type=click.Path(path_type=Path), help="Settings to write.  [default: GPU_MODEL_tpN.toml]")
def hardware_fit(
    model: str | None,
    gpu: str | None,
    tp: int | None,
    config_path: Path | None,
    overrides: tuple[str, ...],
    out: Path | None,
) -> None:
    """Fit step times of a configuration to NVIDIA's kernel tables (extra: servecast[aiconfigurator]).

    Writes a settings file with a table [step_time]: give it to replay with --config, or copy the table into yours.
    """
    from pipeline import config
    from pipeline.hardware import fit

    named = (("hardware.model", model), ("hardware.gpu", gpu), ("engine.tensor_parallel_size", tp))
    given = [f"{key}={value}" for key, value in named if value is not None]
    # A context that fits beside the weights is the replay's business, not the kernels'.
    table, deployment = fit.fit(config.load(config_path, ("engine.max_model_len=-1", *overrides, *given)))
    out = out or Path(f"{table.gpu}_{table.model}_tp{table.tensor_parallel_size}.toml")
    out.write_text(fit.toml(table, deployment), encoding="utf-8")
    click.echo(f"{out}: mean error {table.error_pct:.1f} % on random steps against {table.source}")


def _lengths(text: str | None) -> list[int]:
    if text is None:
        return []
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1:
        raise click.UsageError(f"--lengths {text}: must be whole numbers of tokens, as 2048,8192")
    return found


@main.command()
@click.argument("tables", nargs=-1, metavar="[kv|steps|replay|open_loop|closed_loop|static]...")
@click.option(
    "--data", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Recompute from this folder."
)
@click.option("--json", "as_json", is_flag=True, help="Rows and limits as JSON.")
@click.option("-o", "out", type=click.Path(path_type=Path), help="Also write the rows as CSV.")
def validate(tables: tuple[str, ...], data: Path | None, as_json: bool, out: Path | None) -> None:
    """Show how exact the predictions are: KV capacity, step time and whole replays against measurements.

    The recorded comparisons are shown; --data recomputes them from a folder of measurements, and exits with 1 if a
    limit is not kept.
    """
    import json

    from pipeline import validate as validation
    from pipeline.validate import checks, terminal

    chosen = validation.chosen(tables)
    found = validation.recorded(chosen) if data is None else validation.recompute(chosen, data)
    told = terminal.as_dicts(chosen, found)
    click.echo(json.dumps(told, indent=1) if as_json else "\n".join(terminal.lines(chosen, found)))
    if out is not None:
        checks.write(found, out)
    if any(limit["kept"] is False for table in told.values() for limit in table["limits"]):
        sys.exit(EXIT_NO)


@main.command()
@click.option("--policy", metavar="NAME", help="Settings of this scheduler's engine.  [default: vllm]")
def settings(policy: str | None) -> None:
    """List every setting of replay.toml with its default and unit."""
    from rich.table import Table

    from pipeline import config
    from pipeline.engines import DEFAULT, POLICIES

    if policy is not None and policy not in POLICIES:
        raise click.BadParameter(f"{policy}: there is no such policy; there are {', '.join(POLICIES)}")

    table = Table(box=None, pad_edge=False)
    table.add_column("setting", no_wrap=True)
    table.add_column("default", no_wrap=True)
    table.add_column("meaning")
    for key, default, meaning in config.describe_fields(policy or DEFAULT):
        table.add_row(key, default, meaning)
    table.add_row("", "", "")
    table.add_row("own hardware", "", "tables to add for what the catalogue of `servecast hardware` lacks")
    for key, default, meaning in config.describe_own_fields():
        table.add_row(key, default, meaning)
    _console().print(table)


@main.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option("-o", "out", type=click.Path(path_type=Path), help="Folder to write to.  [default: reports/out/DATE/RUN]")
def report(runs: tuple[Path, ...], out: Path | None) -> None:
    """Write an HTML page, a Markdown summary and PNG charts for each run."""
    from pipeline import report as reports

    for path in reports.write(list(runs), _report_folder(runs, out)):
        if path.suffix in (".html", ".md"):
            click.echo(path)


@main.command()
@click.argument("arguments", nargs=-1, metavar='[RUN...] ["SELECT ..."]')
@click.option(
    "--format", "format_", default="table", show_default=True, metavar="table|csv|json|parquet", help="Shape."
)
@click.option("-o", "out", type=click.Path(path_type=Path), help="Write the answer to a file.")
def sql(arguments: tuple[str, ...], format_: str, out: Path | None) -> None:
    """Ask runs in SQL; a prompt where no statement is given, the newest run of runs/ where none is named."""
    from pipeline.query import output, prompt, runs, session

    folders = [Path(text) for text in arguments if Path(text).is_dir()]
    statements = [text for text in arguments if not Path(text).is_dir()]
    if len(statements) > 1:
        raise click.UsageError(f"{statements[0]}: is no run folder; name runs first, then one statement in quotes")
    if statements and len(statements[0].split()) == 1 and "/" in statements[0]:
        raise click.UsageError(f"{statements[0]}: no such run folder")
    connection = session.open(folders or [runs.newest(Path("runs"))])
    if not statements:
        prompt.Prompt(connection).cmdloop("SQL over runs; .help lists what there is, Ctrl-D leaves.")
        return
    relation = session.run(connection, statements[0])
    if relation is not None:
        output.write(relation, format_, out or sys.stdout)


@main.command()
@click.argument("run_a", type=click.Path(path_type=Path))
@click.argument("run_b", type=click.Path(path_type=Path))
def diff(run_a: Path, run_b: Path) -> None:
    """Show what differs between two runs: settings and headline figures. Exit status 1 if anything does."""
    from pipeline.query import diff as differences

    found = differences.diff(run_a, run_b)
    differences.show(found, _console())
    sys.exit(0 if found.is_none else EXIT_NO)


@main.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--seed", type=click.IntRange(min=0), help="Seed of all chance.")
@click.option("--start", metavar="TIME", help="Start of the window, ISO 8601 with offset.")
@click.option("--duration-s", type=click.FloatRange(min=0, min_open=True), help="Length of the window, seconds.")
@click.option("--requests", type=click.FloatRange(min=0, min_open=True), help="Expected number of requests.")
@click.option("--requests-per-s", type=click.FloatRange(min=0, min_open=True), help="Mean rate instead of a number.")
@click.option(
    "--mix", default="bank", show_default=True, metavar="PROFILE", help="bank, reasoning, or chat=0.6,batch=0.4."
)
@click.option("--model", help="Model name written into the trace.")
def synth(out: Path, mix: str, **given: Any) -> None:
    """Write a synthetic trace: by default the one that `make replay` uses.

    The same arguments give the same bytes.
    """
    from pipeline.ingest import synth as generator

    chosen: Any = {key: float(value) for key, value in _pairs(mix.split(",")).items()} if "=" in mix else mix
    made = generator.generate(out, mix=chosen, **{key: value for key, value in given.items() if value is not None})
    tokens = f"{made.input_tokens:,} tokens in, {made.output_tokens:,} out"
    click.echo(f"{out}: {made.requests:,} requests over {made.span_us / 1e6:,.0f} s, {tokens} (replayable)")


def _pairs(texts: Iterable[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"{text}: must be key=value")
        pairs[key.strip()] = value.strip()
    return pairs


def _report_folder(runs: Sequence[Path], out: Path | None) -> Path:
    import datetime

    from pipeline import report

    return out or report.default_folder(runs, datetime.date.today())


def _width() -> int:
    import shutil

    return min(shutil.get_terminal_size((80, 24)).columns, 100)


def _console() -> Any:
    from rich.console import Console

    return Console(width=_width() if not sys.stdout.isatty() else None, highlight=False)


def _stop_for_system(error: OSError) -> None:
    """Stop for what the system refused; return if it was something else. Polars states the number in the text alone."""
    stated = re.search(r"\(os error (\d+)\)", str(error))
    number = error.errno or (int(stated[1]) if stated else None)
    if number == errno.EPIPE:  # the reader has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_INPUT)
    if number and (error.filename is not None or stated):
        name = f"{os.fsdecode(error.filename)}: " if error.filename is not None else ""
        _stop(f"{name}{os.strerror(number)}", EXIT_INPUT)


def _place(error: BaseException) -> str:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return "unknown" if frame is None else f"{Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}"


def _stop(message: str, status: int) -> NoReturn:
    click.echo(f"servecast: {message}", err=True)
    sys.exit(status)
