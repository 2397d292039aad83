"""The compiled engine against the twin on drawn replays, and against what the real scheduler decided."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import config, hardware
from pipeline.replay import driver
from tests import cases, engines, oracle, strategies, vllm_cases
from tests.kernel import agree
from tests.kernel.by_hand import BOTH_WAYS, column, replay

RECORDED = Path(__file__).parents[1] / "cases" / "vllm"


@pytest.mark.parametrize("engine", ["kernel", "shortcut"])
@pytest.mark.parametrize("folder", sorted(RECORDED.iterdir()), ids=lambda folder: folder.name)
def test_engine_decides_as_vllm_did(folder, engine):
    found = {}
    for case in cases.read(folder):
        lines = vllm_cases.differences(case, engines.ENGINES[engine](case))
        if lines:
            found[case.name] = lines
    assert found == {}


@pytest.mark.parametrize("way", BOTH_WAYS, ids=["visits", "shortcut"])
def test_a_limit_on_steps_is_kept(way):
    assert column(replay("0us 4>20", max_steps=7, **way).steps, "step") == list(range(7))


@settings(max_examples=strategies.examples(120))
@given(strategies.scenarios())
def test_every_visit_agrees_with_the_twin(scenario):
    assert agree.differences(scenario.twin(check=False), agree.kernel(scenario, decisions=True)) == []


@settings(max_examples=strategies.examples(200))
@given(strategies.scenarios())
def test_the_shortcut_agrees_with_the_twin(scenario):
    assert agree.differences(scenario.twin(check=False), agree.kernel(scenario)) == []


@settings(max_examples=strategies.examples(40))
@given(strategies.scenarios(), st.integers(1, 5), st.integers(1, 7))
def test_cutting_buffers_and_trace_elsewhere_changes_nothing(scenario, rows, pieces):
    sizes = {"step_rows": rows, "gap_rows": 1, "decision_rows": 1, "window": 1}
    assert agree.differences(scenario.twin(check=False), agree.kernel(scenario, pieces=pieces, sizes=sizes)) == []


@settings(max_examples=strategies.examples(40))
@given(strategies.scenarios())
def test_measured_step_times_agree_with_the_plain_formula(scenario):
    deployment = hardware.resolve(config.load())
    steps = deployment.step_time

    def duration_ns(shape: oracle.Shape) -> int:
        decoding = shape.decodes
        return steps.step_ns(decoding, shape.decode_context_tokens, shape.chunks, shape.sampled - decoding)

    twin = oracle.run(
        scenario.trace.requests(scenario.engine.block_size),
        scenario.engine,
        duration_ns,
        scenario.timeout_ns,
        scenario.queue_limit,
    )
    assert agree.differences(twin, agree.kernel(scenario, cost=driver.cost(deployment))) == []


@settings(max_examples=strategies.examples(15))
@given(strategies.scenarios())
def test_the_same_replay_gives_the_same_rows(scenario):
    one, two = agree.kernel(scenario), agree.kernel(scenario)
    for table in ("requests", "steps", "gaps"):
        for name, values in getattr(one, table).items():
            np.testing.assert_array_equal(values, getattr(two, table)[name])
