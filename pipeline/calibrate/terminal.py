"""What `servecast calibrate` prints: the parameters, and the errors before and after."""

from collections.abc import Iterator

from pipeline.calibrate.run import Calibration
from pipeline.report import words
from pipeline.report.shapes import NAMES

_PARAMETERS = {
    "step_time_scale": ("kernels, factor", words.number),
    "step_overhead_ms": ("engine, per step", words.milliseconds),
    "frontend_ms": ("outside the engine", words.milliseconds),
}
_STATISTICS = ("mean", "p50", "p95", "p99", "request")


def lines(calibration: Calibration) -> Iterator[str]:
    """Yield the lines of the summary, at most 80 columns wide."""
    yield f"{'':22}{'before':>12}{'fitted':>12}"
    for name, (text, say) in _PARAMETERS.items():
        yield f"{text:22}{say(getattr(calibration.start, name)):>12}{say(getattr(calibration.found, name)):>12}"
    for part, text, count in (
        ("fitted", "fitted to", calibration.fitted_requests),
        ("rest", "judged on the rest", calibration.judged_requests),
    ):
        yield ""
        yield f"Error, {text}: {words.plural(count, 'request')}"
        yield f"{'':22}" + "".join(f"{name:>11}" for name in ("mean", "p50", "p95", "p99", "by request"))
        for metric in calibration.errors[part]["after"]:
            for when in ("before", "after"):
                found = calibration.errors[part][when].get(metric, {})
                cells = [
                    words.share(found.get(name)) if name == "request" else words.change(found.get(name))
                    for name in _STATISTICS
                ]
                yield f"{NAMES[metric]:6}{when:16}" + "".join(f"{cell:>11}" for cell in cells)
