"""The compiled policies against recordings, against their twins on random cases, and rules that always hold."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.kernel import layout
from tests import policy_cases, shared, strategies
from tests.policies import base, draws, reserve, running, sarathi, sglang, trtllm, vllm_v0, vtc

CASES = Path(__file__).parents[1] / "cases"
PUBLISHED = ("orca_static", "sarathi", "trtllm", "vllm_v0")  # with cases made of published traces
ENGINES = (*PUBLISHED, "sglang", "vtc")
MS = draws.MS
MOST = draws.MOST_STEPS
LINKS = ("earlier", "later", "sample_start", "prefix_start", "slot")  # places in rings and lists

often = settings(
    max_examples=strategies.examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
seldom = settings(often, max_examples=strategies.examples(100))


@pytest.mark.parametrize("engine", ENGINES)
def test_kernel_decides_as_recorded(engine):
    for folder in sorted((CASES / engine).iterdir()):
        assert policy_cases.disagreements(folder, "kernel") == {}, folder.name


@pytest.mark.parametrize("engine", PUBLISHED)
def test_kernel_decides_as_recorded_on_published_traces(engine):
    for folder in sorted(shared.path("oracle", engine).glob("*az*")):
        assert policy_cases.disagreements(folder, "kernel") == {}, folder.name


@pytest.mark.parametrize("name", ["azconv_tight_p16", "mooncake_tight_lpm_overlap", "chat_p16_60k_w8_lfu"])
def test_sglang_decides_as_recorded_on_published_traces(name):
    assert policy_cases.disagreements(shared.path("oracle", "sglang", name), "kernel") == {}


def compare(module: ModuleType, case: base.Case) -> None:
    """Expect of the kernel what the twin makes of a case."""
    expected, got = module.twin(case), module.kernel(case)
    tables = {name: base.in_order(name, table) for name, table in expected.items() if name != "summary" and table}
    twins = base.Case(case.name, {"summary": expected["summary"]}, tables)
    assert base.differences(twins, got) == []
    assert len(got["steps"]["step"]) == len(expected["steps"].get("step", []))


@given(case=draws.sarathi())
@often
def test_sarathi_schedulers_decide_as_their_twin(case):
    compare(sarathi, case)


@given(case=draws.vllm_v0())
@often
def test_vllm_v0_decides_as_its_twin(case):
    compare(vllm_v0, case)


@given(case=draws.reserve())
@often
def test_reserve_decides_as_its_twin(case):
    compare(reserve, case)


@given(case=draws.trtllm())
@often
def test_tensorrt_llm_decides_as_its_twin(case):
    compare(trtllm, case)


@given(case=draws.sglang())
@often
def test_sglang_decides_as_its_twin(case):
    compare(sglang, case)


@given(case=draws.vtc())
@often
def test_slora_decides_as_its_twin(case):
    compare(vtc, case)


# Rules that hold whatever is drawn


def runs(case: base.Case, whole: bool = True, **more) -> dict:
    """Replay a drawn case with the compiled engine, defects off; not whole: in pieces and tiny buffers."""
    module, engine = module_of(case), case.engine | {"max_steps": MOST}
    if module is vllm_v0:
        chosen = vllm_v0.settings(engine, **more)
        ends = [vllm_v0.sample_ends(engine, case.requests, row) for row in range(len(case.requests["prompt_len"]))]
        batch, cost = running.batch(case.requests, ends), vllm_v0.cost(engine)
    elif module is sarathi:
        chosen = sarathi.settings(engine, **more)
        batch, cost = running.batch(case.requests), sarathi.cost(engine, case.requests)
    elif module is trtllm:
        chosen, batch, cost = trtllm.settings(engine, **more), trtllm.batch(case.requests), trtllm.cost(engine)
    elif module is sglang:
        chosen = sglang.settings(engine | {"released_defects": False}, **more)
        batch, cost = sglang.batch(case), sglang.cost(case)
    elif module is vtc:
        chosen, batch, cost = vtc.settings(engine, **more), vtc.batch(case.requests), vtc.cost(case)
    else:
        chosen, batch, cost = reserve.settings(engine, **more), reserve.batch(case), reserve.cost(case)
    if whole:
        return running.replay(chosen, cost, [batch])
    return running.replay(chosen, cost, running.pieces(batch, 2), step_rows=3, gap_rows=1, window=2)


def module_of(case: base.Case) -> ModuleType:
    told_by = {"engine": vllm_v0, "page_size": sglang, "scheduler": sarathi, "chunking": trtllm, "fair_weights": vtc}
    return next((module for key, module in told_by.items() if key in case.engine), reserve)


anything = st.one_of(draws.sarathi(), draws.vllm_v0(), draws.sglang(), draws.trtllm(), draws.vtc(), draws.reserve())


@given(case=anything)
@seldom
def test_pieces_and_buffers_change_nothing(case):
    whole, cut = runs(case), runs(case, whole=False)
    for table in ("requests", "steps", "gaps", "own"):
        if table in whole:
            names = [name for name in whole[table].dtype.names if name not in LINKS]
            for name in names:
                assert whole[table][name].tolist() == cut[table][name].tolist(), (table, name)


@given(case=anything)
@seldom
def test_tokens_and_blocks_are_conserved(case):
    result = runs(case, decisions=True)
    state, requests, decisions = result["state"], result["requests"], result["decisions"]
    engine = state.engines[0]
    total = int(engine.most_blocks)
    assert ((result["steps"]["free_blocks"] >= 0) & (result["steps"]["free_blocks"] <= total)).all()
    computed = np.zeros(len(requests), np.int64)
    np.add.at(computed, decisions["request"], decisions["scheduled_tokens"])
    if len(result["steps"]) < MOST and not state.stalled:
        assert np.isin(requests["outcome"], (layout.FINISHED, layout.MAX_MODEL_LEN, layout.REJECTED)).all()
        assert computed.tolist() == requests["computed_tokens"].tolist()
        assert (int(engine.free_blocks), int(engine.running), int(engine.waiting)) == (total, 0, 0)
    whole = (requests["outcome"] == layout.FINISHED) & (requests["samples"] == 1) & (requests["preemptions"] == 0)
    known = requests["known_tokens"] - 1  # the last token is never computed
    if module_of(case) is sglang:  # where prefixes are found, and a step may be computed in vain
        known -= requests["cached_tokens"]
        known += requests["computed_tokens"] == known + 1
    assert (requests["computed_tokens"][whole] == known[whole]).all()


@given(case=anything, timeout_ms=st.sampled_from([1, 30, 200]))
@seldom
def test_clients_that_leave_give_everything_back(case, timeout_ms):
    result = runs(case, timeout_ns=timeout_ms * MS)
    engine, requests = result["state"].engines[0], result["requests"]
    if len(result["steps"]) == MOST:
        return
    assert not result["state"].stalled
    assert (int(engine.free_blocks), int(engine.running), int(engine.waiting)) == (int(engine.most_blocks), 0, 0)
    gone = requests["outcome"] == layout.TIMED_OUT
    assert (requests["finish_ns"][gone] == requests["arrival_ns"][gone] + timeout_ms * MS).all()
    ended = requests["outcome"] == layout.FINISHED
    assert (requests["finish_ns"][ended] <= requests["arrival_ns"][ended] + timeout_ms * MS).all()
