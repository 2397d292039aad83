import copy
import dataclasses
import json

import pytest

from pipeline.report import headline
from tests.report import samples


def one(answer, **changed):
    """Return the sample's only row of an answer with some values changed."""
    (row,) = samples.answers()[answer]
    assert not set(changed) - set(row)
    return [row | changed]


def test_sentence_says_load_latency_memory_and_slo():
    assert headline.sentence(samples.run()) == (
        "At 5.5 requests/s, 24 users at once on average: p95 TTFT 380 ms, p95 TPOT 32 ms; "
        "KV memory peaks at 71 %; SLO met for 98.7 % of requests."
    )


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"requests": 0}, "No request was replayed."),
        (
            {"requests": 1, "offered_rps": None, "users_mean": 1.0, "tpot_p95_ms": None, "slo_share": 1.0},
            "With 1 request, 1 user at once on average: p95 TTFT 380 ms; KV memory peaks at 71 %; "
            "SLO met for 100 % of requests.",
        ),
        (
            {"ttft_p95_ms": None, "tpot_p95_ms": None, "kv_peak_share": None, "slo_share": 0.0},
            "At 5.5 requests/s, 24 users at once on average: no request got a token; SLO met for 0 % of requests.",
        ),
    ],
)
def test_sentence_leaves_out_what_is_unknown(changed, text):
    assert headline.sentence(samples.run(headline=one("headline", **changed))) == text


def test_verdict_counts_what_was_missed():
    assert headline.verdict(samples.run()) == (
        "130 of 9,870 requests miss the SLO (TTFT 1 s, TPOT 50 ms): 110 over the limit of TTFT, "
        "20 without a full answer."
    )


def test_verdict_says_when_a_request_misses_several_limits():
    rows = [r | {"tpot_missed": 5} for r in samples.answers()["slo_attainment"]]
    assert headline.verdict(samples.run(slo_attainment=rows)).endswith(
        ": 110 over the limit of TTFT, 10 over the limit of TPOT, 20 without a full answer; "
        "one request can miss several."
    )


def test_setting_says_when_step_times_are_an_estimate():
    manifest = copy.deepcopy(samples.MANIFEST)
    plain = "llama-3.1-8b on NVIDIA H100 80GB SXM, vllm policy, 28,000 KV blocks of 16 tokens"
    assert headline.setting(samples.run(manifest=manifest)) == plain
    manifest["hardware"]["step_time"] = {"estimate": True, "error_pct": 17.0}
    manifest["hardware"]["tensor_parallel_size"] = 2
    text = headline.setting(samples.run(manifest=manifest))
    assert text == plain.replace("on NVIDIA", "on 2 x NVIDIA") + "; step times are an estimate, about +-17 %"


def with_bands(folder, saturation=None, ttft_ms=(300.0, 450.0), **more):
    """Return the sample run, whose p95 of TTFT is 380 ms, with bands in its folder."""
    ends = [
        {"scale": scale, "ttft_p95_ms": ttft, "tpot_p95_ms": tpot, "e2e_p95_ms": 9000.0, "slo_share": share}
        for scale, ttft, tpot, share in ((0.9, ttft_ms[0], 28.0, 0.99), (1.1, ttft_ms[1], 36.0, 0.97))
    ]
    saturation = saturation or {"offered_rps": 5.5, "capacity_rps": 11.0, "share": 0.5}
    content = {"version": 1, "error_pct": 10.0, "basis": "measured", "replays": ends, "saturation": saturation}
    (folder / "bands.json").write_text(json.dumps(content))
    return dataclasses.replace(samples.run(**more), folder=folder)


def test_certainty_gives_bands_and_the_distance_from_saturation(tmp_path):
    assert headline.certainty(samples.run()) == ""
    assert headline.certainty(with_bands(tmp_path)) == (
        "With step times 10 % shorter or longer: p95 TTFT 300 ms to 450 ms, p95 TPOT 28 ms to 36 ms, SLO 97 % to 99 %. "
        "No limit of the SLO flips inside that band. The load is 50 % of the 11 requests/s at which the queue no "
        "longer empties."
    )


def test_certainty_says_what_is_undecided(tmp_path):
    near = {"offered_rps": 10.5, "capacity_rps": 11.0, "share": 0.954}
    text = headline.certainty(with_bands(tmp_path, near, ttft_ms=(300.0, 1200.0)))
    assert "Undecided: whether p95 TTFT keeps 1 s and whether the queue empties." in text
    far = {"offered_rps": 22.0, "capacity_rps": 11.0, "share": 2.0}
    text = headline.certainty(with_bands(tmp_path, far, ttft_ms=(1100.0, 1200.0)))
    assert "whether p95 TTFT keeps 1 s" in text  # the run itself, at 380 ms, keeps it
    assert "whether the queue empties" not in text
    unknown = {"offered_rps": 5.5, "capacity_rps": None, "share": None}
    assert headline.certainty(with_bands(tmp_path, unknown)).endswith("cannot be told from so few requests.")


def test_a_closed_load_has_no_distance_from_saturation(tmp_path):
    nothing = {"offered_rps": None, "capacity_rps": None, "share": None}
    manifest = copy.deepcopy(samples.MANIFEST)
    manifest["config"]["load"] |= {"kind": "closed", "concurrency": 8}
    assert headline.certainty(with_bands(tmp_path, nothing, manifest=manifest)).endswith(
        "the load follows the service and cannot outrun it."
    )


def test_verdict_when_all_is_well_or_nothing_was_replayed():
    good = [r | {"within_slo": r["requests"]} for r in samples.answers()["slo_attainment"]]
    assert (
        headline.verdict(samples.run(slo_attainment=good)) == "Every request is within the SLO (TTFT 1 s, TPOT 50 ms)."
    )
    assert headline.verdict(samples.run(slo_attainment=[])) == "There is nothing to hold against the SLO."


def test_promise_says_that_classes_differ():
    manifest = copy.deepcopy(samples.MANIFEST)
    manifest["config"]["slo"]["batch"] = {"ttft_ms": 10_000.0}
    text = headline.promise(samples.run(manifest=manifest))
    assert text == "TTFT 1 s, TPOT 50 ms; some classes have limits of their own"


@pytest.mark.parametrize(
    ("changed", "start"),
    [
        ({}, "Nothing binds: requests wait 3 % of the time and KV memory peaks at 71 %."),
        ({"kv_memory": one("kv_memory", above_90_share=0.05)}, "KV memory binds: above 90 % for 5 % of the time"),
        (
            {"headline": one("headline", preemptions=1)},
            "KV memory binds: above 90 % for 0 % of the time, 1 preemption;",
        ),
        (
            {
                "waiting_queue": one("waiting_queue", waiting_share=0.4),
                "step_summary": one("step_summary", batch_max=256),
            },
            "The batch limit binds: up to 256 requests run at once (max_num_seqs); requests wait 40 % of the time",
        ),
        ({"waiting_queue": one("waiting_queue", waiting_share=0.4)}, "Compute binds: requests wait 40 % of the time"),
        ({"headline": one("headline", tpot_p95_ms=51.0)}, "Compute binds: hardly anyone waits, but steps are long"),
        ({"step_summary": one("step_summary", steps=0)}, "The engine never ran a step."),
    ],
)
def test_what_binds(changed, start):
    assert headline.what_binds(samples.run(**changed)).startswith(start)


def test_records_states_every_count():
    assert headline.records(samples.run()) == (
        "10,000 requests in the trace; 12 records of the log could not be read; 130 not replayed; "
        "20 too long for the context; 0 never finished."
    )


def test_records_says_when_rejects_are_unknown_and_what_was_filtered():
    manifest = copy.deepcopy(samples.MANIFEST)
    manifest["trace"] |= {"rejected_records": None, "where": "tenant = 'a'"}
    text = headline.records(samples.run(manifest=manifest))
    assert "whether records of the log could not be read is not known" in text
    assert text.endswith(" Only requests with tenant = 'a' were taken.")
