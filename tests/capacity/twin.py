"""Admission in plain Python and fractions: the rules once more, one event at a time, without heaps or scales."""

from dataclasses import dataclass, field
from fractions import Fraction


@dataclass
class Call:
    """A request: microseconds, and weighted tokens of one or two budgets as (estimated, real)."""

    arrival_us: int
    duration_us: int
    budgets: list[tuple[Fraction, Fraction]]
    served: bool = True


@dataclass
class Rules:
    """What the purchase is and how a refused client behaves.

    rates     : tokens per second of each budget
    depth_s   : Azure's bucket
    window_us : length of a window, None for a bucket
    """

    rates: list[Fraction]
    depth_s: Fraction = Fraction(60)
    window_us: int | None = None
    phase_us: int = 0
    spill: bool = True
    retry: str = "none"
    max_retries: int = 5


@dataclass
class Outcome:
    """What became of every call, in their order, and how often clients were refused."""

    decision: list[str | None]
    level: list[Fraction | None]
    wait_ms: list[int]
    admitted_us: list[int | None]
    throttled: int = 0
    delay_us: int = 0
    pending: list = field(default_factory=list)


def admit(calls: list[Call], rules: Rules) -> Outcome:
    """Send the calls through; returns what happened to each at its last attempt."""
    n = len(calls)
    out = Outcome([None] * n, [None] * n, [0] * n, [None] * n)
    clock, levels, window = 0, [Fraction(0)] * len(rules.rates), None
    attempts = [(call.arrival_us, 1, row, 0) for row, call in enumerate(calls)]
    corrections: list[tuple[int, list[Fraction]]] = []

    def advance(time_us):
        nonlocal clock, levels, window
        if rules.window_us is None:
            levels = [max(Fraction(0), levels[0] - rules.rates[0] * Fraction(time_us - clock, 1_000_000))]
        elif (time_us - rules.phase_us) // rules.window_us != window:
            window = (time_us - rules.phase_us) // rules.window_us
            levels = quotas(rules)
        clock = time_us

    while attempts:
        attempts.sort()
        time_us, _, row, tries = attempts.pop(0)
        call = calls[row]
        for moment in sorted({at for at, _ in corrections if at <= time_us}):
            advance(moment)
            for at, change in corrections:
                if at == moment:
                    levels = [level + more for level, more in zip(levels, change, strict=True)]
            if rules.window_us is None:
                levels = [max(Fraction(0), levels[0])]
            else:
                levels = [min(quota, level) for quota, level in zip(quotas(rules), levels, strict=True)]
        corrections = [one for one in corrections if one[0] > time_us]
        advance(time_us)
        out.level[row], out.wait_ms[row] = levels[0], 0
        if call.served and fits(call, levels, rules):
            sign = 1 if rules.window_us is None else -1
            levels = [level + sign * e for level, (e, _) in zip(levels, call.budgets, strict=True)]
            corrections.append((time_us + call.duration_us, [sign * (real - e) for e, real in call.budgets]))
            out.decision[row], out.admitted_us[row] = "accepted", time_us
            out.delay_us += time_us - call.arrival_us
            continue
        if call.served:
            out.throttled += 1
            out.wait_ms[row] = told(levels, rules, time_us, window)
        if call.served and not rules.spill and rules.retry != "none" and tries < rules.max_retries:
            pause_us = 1000 * out.wait_ms[row] if rules.retry == "retry_after" else min(60, 2**tries) * 1_000_000
            attempts.append((time_us + max(1, pause_us), 0, row, tries + 1))
            continue
        out.decision[row] = "spilled" if rules.spill else "refused"
        out.delay_us += time_us - call.arrival_us
    return out


def quotas(rules):
    return [rate * Fraction(rules.window_us, 1_000_000) for rate in rules.rates]


def fits(call, levels, rules):
    if rules.window_us is None:
        return levels[0] < rules.rates[0] * rules.depth_s
    return all(e <= level for level, (e, _) in zip(levels, call.budgets, strict=True))


def told(levels, rules, time_us, window):
    """Milliseconds until the bucket is below its depth, or the next window, rounded up."""
    if rules.window_us is None:
        exact = 1000 * (levels[0] - rules.rates[0] * rules.depth_s) / rules.rates[0]
    else:
        exact = Fraction((window + 1) * rules.window_us + rules.phase_us - time_us, 1000)
    return -(-exact.numerator // exact.denominator)
