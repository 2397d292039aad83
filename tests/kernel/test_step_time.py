"""Step time in the kernel against the plain formula of the hardware model, and against sums by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import config, hardware
from pipeline.kernel import layout, step_time
from pipeline.replay import driver
from tests.kernel.world import World


def counted(world, decodes=(), chunks=()):
    """Count decodes (by context) and chunks (new tokens, computed before, known) into a step."""
    for context in decodes:
        world.call(step_time.add_chunk, known_tokens=context, input_tokens=1, new_tokens=1, computed_tokens=context - 1)
    for new, before, known in chunks:
        world.call(step_time.add_chunk, known_tokens=known, input_tokens=known, new_tokens=new, computed_tokens=before)
    return world.step


def test_whole_nanoseconds_of_the_recorded_cases():
    world = World()
    world.cost.a_ns, world.cost.b_ns, world.cost.c_ns = 1000, 10, 3
    step = counted(world, decodes=[20, 30], chunks=[(8, 4, 12)])
    assert (step.scheduled, step.decode_tokens, step.prefill_tokens) == (3, 2, 8)
    assert (step.context_tokens, step.decode_context_tokens) == (20 + 30 + 12, 50)
    assert step.prefill_area2 / 2 == 8 * (4 + 8 / 2)
    assert world.call(step_time.nanoseconds) == 1000 + 10 * 10 + 3 * 62


def test_a_step_without_tokens_takes_no_time():
    assert World().call(step_time.nanoseconds) == 0


@pytest.mark.parametrize(
    ("known", "prompt", "before", "new", "decode"),
    [
        (8, 8, 0, 8, False),  # a prompt in one go
        (8, 8, 7, 1, False),  # its last token alone is prefill: the prompt is not yet computed
        (9, 8, 8, 1, True),  # the first generated token
        (12, 8, 0, 12, False),  # everything again after a preemption
        (12, 8, 8, 4, False),  # generated tokens that are computed again
        (12, 8, 11, 1, True),  # the newest of them
    ],
)
def test_what_is_a_decode(known, prompt, before, new, decode):
    world = World()
    world.call(step_time.add_chunk, known_tokens=known, input_tokens=prompt, new_tokens=new, computed_tokens=before)
    assert (world.step.decode_tokens, world.step.prefill_tokens) == ((1, 0) if decode else (0, new))


@given(
    st.lists(st.integers(2, 4000), max_size=12),
    st.lists(st.tuples(st.integers(1, 700), st.integers(0, 3000), st.integers(0, 900)), max_size=4),
)
def test_measured_terms_agree_with_the_plain_formula(decodes, chunks):
    deployment = hardware.resolve(config.load())
    plain, kernel = deployment.step_time, driver.cost(deployment)
    world = World()
    world.cost.a_ns = 0
    for name, value in kernel.terms.items():
        world.cost[name] = value
    known = [(new, before, new + before + more) for new, before, more in chunks]
    step = counted(world, decodes, known)
    samples = sum(more == 0 for _, _, more in chunks)
    step.sampled = len(decodes) + samples
    wanted = plain.step_ns(len(decodes), sum(decodes), [(new, before) for new, before, _ in chunks], samples)
    got = world.call(step_time.nanoseconds, g_ns=kernel.g_ns)
    # The plain formula adds in another order; a nanosecond is at most one unit in the last place of the rounding.
    assert abs(int(got) - wanted) <= 1


def test_which_terms_count_in_which_step():
    """Attention of decodes is the larger of two lines, and dearer beside chunks; each kind of step has its table G."""
    g_ns = np.array([np.arange(100) * 1000.0, np.arange(100) * 10_000.0])
    for contexts, chunks, wanted_ns in (
        ([2] * 8, [], 8 * 10_000 + (50 + 10 * 8)),  # D0 + D1 * m is the larger
        ([100, 200], [], 2 * 10_000 + (20 + 300)),  # D2 + D4 * C is
        ([100, 200], [(5, 0, 5)], 7 * 1000 + 2 * (20 + 300)),
    ):
        world = World()
        for name, value in {"a_ns": 0, "mu": 2, "D0": 50, "D1": 10, "D2": 20, "D4": 1}.items():
            world.cost[name] = value
        counted(world, contexts, chunks)
        assert world.call(step_time.nanoseconds, g_ns=g_ns) == wanted_ns


def test_terms_have_the_names_of_the_hardware_model():
    floats = {name for name in layout.COST.names if layout.COST[name] == np.float64}
    assert floats == set(driver.cost(hardware.resolve(config.load())).terms)
