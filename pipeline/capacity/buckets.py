"""Admission, request by request: Azure's leaky bucket, and budgets per window (Google, Scale Tier, Priority).

Time is int64 microseconds, tokens are whole multiples of a small fraction of a weighted token, so no comparison is
rounded. Corrections and retries wait in binary heaps; every array is allocated outside. An event at the moment of an
arrival comes before it, so that capacity given back is there for it; corrections of one moment count together. What
goes on from one batch of requests to the next stands in `state` and the heaps; requests that still retry stand at the
front of the next batch.

Rules and what is assumed where the vendor is silent: capacity/README.md.
"""

import numpy as np
from numba import njit

# What is counted, in the order of the counters.
ACCEPTED, SPILLED, REFUSED, THROTTLED, RETRY_US, SPILLED_WEIGHTED, SPILLED_RAW, COUNTERS = range(8)
NEVER = np.iinfo(np.int64).max
NO_WINDOW = np.iinfo(np.int64).min  # before the first request; any other number is a window
NO_RETRY, RETRY_AFTER, EXPONENTIAL = 0, 1, 2
_SECOND_US = 1_000_000

# Cells of `state`: level (leak) or what is left (windows), its moment or window, the second budget, and how many
# corrections and retries wait.
LEVEL, AT, SECOND, DUE, WAITING, STATE = range(6)
PENDING = -1  # decision of a request that will try again
# A refused client that tries again.
RETRY = np.dtype([("time_us", np.int64), ("row", np.int64), ("attempt", np.int64)], align=True)


@njit(cache=True)
def leak(
    arrival_us, duration_us, estimate, actual, raw, served, drain, depth, retry, max_retries, spill,
    state, due_us, due_change, due_second, retries, first_row, final, minutes, decision, level, wait_ms, counters,
):  # fmt: skip
    """Send requests through one leaky bucket.

    drain, depth : units of `estimate` per microsecond, and in all
    retry, max_retries, spill : what happens to a refused one; a spilled one is not tried again
    state        : int64[STATE], zeros at the beginning
    due_us, due_change, due_second : heap of corrections, int64[those due before + requests]
    retries      : heap of RETRY, [requests]
    first_row    : requests before it came in an earlier batch and are here to retry
    final        : no request comes after these: go on until nobody retries
    minutes      : int64[minutes], receives what accepted requests count, by minute of admission
    decision     : int8[requests], PENDING at the beginning: 1 accepted, 2 spilled, 0 refused
    level, wait_ms : empty, or one cell per request: the level just before the last attempt; the wait it was told,
        milliseconds
    counters     : int64[COUNTERS]
    """
    used, now_us, due = state[LEVEL], state[AT], state[DUE]
    waiting = state[WAITING]
    row = first_row
    count = len(arrival_us)
    while row < count or (final and waiting > 0):
        attempt = 0
        time_us = arrival_us[row] if row < count else NEVER
        this = row
        if waiting > 0 and retries[0].time_us <= time_us:
            time_us, this, attempt = retries[0].time_us, retries[0].row, retries[0].attempt
        while due > 0 and due_us[0] <= time_us:
            used = max(0, used - drain * (due_us[0] - now_us))
            now_us = due_us[0]
            while due > 0 and due_us[0] == now_us:
                used += due_change[0]
                due = _pop(due_us, due_change, due_second, due)
            used = max(0, used)
        used = max(0, used - drain * (time_us - now_us))
        now_us = time_us
        if attempt > 0:
            waiting = _pop_retry(retries, waiting)
        else:
            row += 1
        told_ms = 0
        if used < depth and served[this]:
            outcome = 1
            counters[ACCEPTED] += 1
            counters[RETRY_US] += time_us - arrival_us[this]
            change = actual[this] - estimate[this]
            due = _push(due_us, due_change, due_second, due, time_us + duration_us[this], change, 0)
            _book(minutes, time_us, actual[this])
        else:
            outcome = 2 if spill else 0
            if served[this]:
                counters[THROTTLED] += 1
                told_ms = -((depth - used) // (drain * 1000))
            if not spill and served[this] and retry != NO_RETRY and attempt < max_retries:
                outcome = PENDING
                next_us = time_us + _pause_us(retry, told_ms, attempt)
                waiting = _push_retry(retries, waiting, next_us, this, attempt + 1)
            else:
                _lose(counters, spill, time_us - arrival_us[this], actual[this], raw[this])
        decision[this] = outcome
        if len(level) > 0:
            level[this], wait_ms[this] = used, told_ms
        if outcome == 1:
            used += estimate[this]
    state[LEVEL], state[AT], state[DUE], state[WAITING] = used, now_us, due, waiting


@njit(cache=True)
def windows(
    arrival_us, duration_us, estimate, actual, second_estimate, second_actual, raw, served, quota, second_quota,
    window_us, phase_us, retry, max_retries, spill, state, due_us, due_change, due_second, retries, first_row, final,
    minutes, decision, level, wait_ms, counters,
):  # fmt: skip
    """Send requests through budgets that are whole again in every window; arguments as for `leak`.

    quota, second_quota : what a window has; the second counts only where `second_estimate` is not empty
    state : int64[STATE]; AT is NO_WINDOW at the beginning
    due_us, due_change, due_second : heap of corrections: what a request was estimated too high or too low is given
        back to, or taken from, the window in which it ends; a window never has more than its quota
    level               : what is left of the first budget just before the last attempt
    """
    left, window, second_left, due = state[LEVEL], state[AT], state[SECOND], state[DUE]
    two = len(second_estimate) > 0
    waiting = state[WAITING]
    row = first_row
    count = len(arrival_us)
    while row < count or (final and waiting > 0):
        attempt = 0
        time_us = arrival_us[row] if row < count else NEVER
        this = row
        if waiting > 0 and retries[0].time_us <= time_us:
            time_us, this, attempt = retries[0].time_us, retries[0].row, retries[0].attempt
        while due > 0 and due_us[0] <= time_us:
            moment_us = due_us[0]
            if (moment_us - phase_us) // window_us != window:
                window = (moment_us - phase_us) // window_us
                left, second_left = quota, second_quota
            while due > 0 and due_us[0] == moment_us:
                left += due_change[0]
                second_left += due_second[0]
                due = _pop(due_us, due_change, due_second, due)
            left, second_left = min(quota, left), min(second_quota, second_left)
        if (time_us - phase_us) // window_us != window:
            window = (time_us - phase_us) // window_us
            left, second_left = quota, second_quota
        if attempt > 0:
            waiting = _pop_retry(retries, waiting)
        else:
            row += 1
        fits = estimate[this] <= left and (not two or second_estimate[this] <= second_left)
        before = left
        told_ms = 0
        if fits and served[this]:
            outcome = 1
            counters[ACCEPTED] += 1
            counters[RETRY_US] += time_us - arrival_us[this]
            left -= estimate[this]
            second_change = 0
            if two:
                second_left -= second_estimate[this]
                second_change = second_estimate[this] - second_actual[this]
            change = estimate[this] - actual[this]
            due = _push(due_us, due_change, due_second, due, time_us + duration_us[this], change, second_change)
            _book(minutes, time_us, actual[this])
        else:
            outcome = 2 if spill else 0
            if served[this]:
                counters[THROTTLED] += 1
                told_ms = -((time_us - (window + 1) * window_us - phase_us) // 1000)
            if not spill and served[this] and retry != NO_RETRY and attempt < max_retries:
                outcome = PENDING
                next_us = time_us + _pause_us(retry, told_ms, attempt)
                waiting = _push_retry(retries, waiting, next_us, this, attempt + 1)
            else:
                _lose(counters, spill, time_us - arrival_us[this], actual[this], raw[this])
        decision[this] = outcome
        if len(level) > 0:
            level[this], wait_ms[this] = before, told_ms
    state[LEVEL], state[AT], state[SECOND], state[DUE], state[WAITING] = left, window, second_left, due, waiting


@njit(cache=True)
def _pause_us(retry, told_ms, attempt):
    """Return how long a refused client waits before it tries again: as it was told, or 1, 2, 4, ... 60 seconds."""
    if retry == EXPONENTIAL:
        return min(60, 1 << min(attempt, 6)) * _SECOND_US
    return max(told_ms * 1000, 1)


@njit(cache=True)
def _lose(counters, spill, waited_us, actual, raw):
    """Count a request that bought capacity does not serve."""
    counters[SPILLED if spill else REFUSED] += 1
    counters[RETRY_US] += waited_us
    counters[SPILLED_WEIGHTED] += actual
    counters[SPILLED_RAW] += raw


@njit(cache=True)
def _book(minutes, time_us, tokens):
    minute = min(time_us // (60 * _SECOND_US), len(minutes) - 1)
    if minute >= 0:
        minutes[minute] += tokens


@njit(cache=True)
def _push(times, values, seconds, size, time, value, second):
    """Add an entry to a binary heap by time; return its new size."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if times[parent] <= time:
            break
        times[at], values[at], seconds[at] = times[parent], values[parent], seconds[parent]
        at = parent
    times[at], values[at], seconds[at] = time, value, second
    return size + 1


@njit(cache=True)
def _pop(times, values, seconds, size):
    """Remove the earliest entry; return the new size."""
    size -= 1
    time, value, second = times[size], values[size], seconds[size]
    at = 0
    child = 1
    while child < size:
        if child + 1 < size and times[child + 1] < times[child]:
            child += 1
        if time <= times[child]:
            break
        times[at], values[at], seconds[at] = times[child], values[child], seconds[child]
        at = child
        child = 2 * at + 1
    times[at], values[at], seconds[at] = time, value, second
    return size


@njit(cache=True)
def _before(one, other):
    return one.time_us < other.time_us or (one.time_us == other.time_us and one.row < other.row)


@njit(cache=True)
def _push_retry(heap, size, time_us, row, attempt):
    """Add a retry, by time and row; return the new size."""
    new = heap[size]
    new.time_us, new.row, new.attempt = time_us, row, attempt
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if not _before(heap[at], heap[parent]):
            break
        _swap(heap, at, parent)
        at = parent
    return size + 1


@njit(cache=True)
def _pop_retry(heap, size):
    """Remove the earliest retry; return the new size."""
    size -= 1
    _swap(heap, 0, size)
    at = 0
    child = 1
    while child < size:
        if child + 1 < size and _before(heap[child + 1], heap[child]):
            child += 1
        if not _before(heap[child], heap[at]):
            break
        _swap(heap, at, child)
        at = child
        child = 2 * at + 1
    return size


@njit(cache=True)
def _swap(heap, a, b):
    one, other = heap[a], heap[b]
    time_us, row, attempt = one.time_us, one.row, one.attempt
    one.time_us, one.row, one.attempt = other.time_us, other.row, other.attempt
    other.time_us, other.row, other.attempt = time_us, row, attempt
