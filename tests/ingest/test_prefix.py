"""Prefix identity against plain-Python twins of its rules."""

import random

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.ingest import prefix

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def naive_chain(ids, parent=0):
    hashes = []
    for block in ids:
        parent = mix((parent * GOLDEN + mix((block + GOLDEN) & MASK)) & MASK)
        hashes.append(parent)
    return hashes


def test_mix_is_the_published_splitmix64():
    # First outputs of splitmix64 seeded with 1234567, from the authors' C code as Rosetta Code lists them.
    seed, outputs = 1234567, []
    for _ in range(3):
        seed = (seed + GOLDEN) & MASK
        outputs.append(int(prefix.mix(pl.Series([seed], dtype=pl.UInt64).to_numpy())[0]))
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.none() | st.lists(st.integers(0, MASK), max_size=6), max_size=8))
def test_chain_agrees_with_its_twin(lists):
    chained = prefix.chain(pl.Series("h", lists, dtype=pl.List(pl.UInt64)))
    assert chained.to_list() == [None if ids is None else naive_chain(ids) for ids in lists]


def test_namespaces_set_local_ids_apart():
    ids = pl.Series("h", [[1, 2], [1, 2]], dtype=pl.List(pl.UInt64))
    first, second = prefix.chain(ids, pl.Series([5, 6], dtype=pl.UInt64).to_numpy()).to_list()
    assert not set(first) & set(second)
    assert first == naive_chain([1, 2], 5)


def rows(*requests, block=16):
    """Rows of (id, parent, input, output, ids): hashes cover the prompt."""
    return pl.DataFrame(
        {
            "request_id": [r[0] for r in requests],
            "parent_request_id": pl.Series([r[1] for r in requests], dtype=pl.String),
            "session_id": pl.Series([None] * len(requests), dtype=pl.String),
            "turn": pl.Series([None] * len(requests), dtype=pl.Int32),
            "input_tokens": pl.Series([r[2] for r in requests], dtype=pl.Int64),
            "output_tokens": pl.Series([r[3] for r in requests], dtype=pl.Int64),
            "prefix_hashes": pl.Series([r[4] for r in requests], dtype=pl.List(pl.UInt64)),
            "prefix_block_tokens": pl.Series([block] * len(requests), dtype=pl.Int32),
            "prefix_tokens": pl.Series([r[2] for r in requests], dtype=pl.Int32),
        }
    )


def extended(frame):
    return prefix.extend(frame).select("prefix_hashes", "prefix_tokens").rows()


def test_a_follow_up_reveals_the_answer():
    # 21 + 20 tokens: the child's full second block replaces the partial one, its third covers the last 9 tokens.
    parent, child = ("a", None, 21, 20, [1, 90]), ("b", "a", 64, 5, [1, 2, 3, 4])
    assert extended(rows(parent, child)) == [([1, 2, 3], 41), ([1, 2, 3, 4], 64)]


@pytest.mark.parametrize(
    "child",
    [
        ("b", "a", 40, 5, [1, 2, 3]),  # shorter than prompt and answer
        ("b", "a", 64, 5, [7, 2, 3, 4]),  # another first block
        ("b", "x", 64, 5, [1, 2, 3, 4]),  # follows another request
    ],
)
def test_turns_that_reveal_nothing(child):
    assert extended(rows(("a", None, 21, 20, [1, 90]), child))[0] == ([1, 90], 21)


def test_the_first_child_that_fits_gives_the_answer():
    a = ("a", None, 16, 16, [1])
    children = [("b", "a", 20, 1, [1, 5]), ("c", "a", 32, 1, [1, 6]), ("d", "a", 48, 1, [1, 7, 8])]
    assert extended(rows(a, *children))[0] == ([1, 6], 32)


def test_a_childs_partial_block_is_taken_as_its_own_child_completed_it():
    # b ends inside the block that a reaches into; c completes that block.
    chain = [("a", None, 16, 8, [1]), ("b", "a", 25, 3, [1, 50]), ("c", "b", 48, 1, [1, 2, 3])]
    assert extended(rows(*chain)) == [([1, 2], 24), ([1, 2], 28), ([1, 2, 3], 48)]


def test_the_turn_before_is_the_parent_where_none_is_named():
    frame = rows(("a", None, 16, 16, [1]), ("b", None, 48, 1, [1, 2, 3])).with_columns(
        session_id=pl.lit("s"), turn=pl.Series([1, 2], dtype=pl.Int32)
    )
    assert extended(frame)[0] == ([1, 2], 32)


def test_rows_that_reach_past_the_prompt_already_stay():
    frame = rows(("a", None, 16, 16, [1, 9]), ("b", "a", 48, 1, [1, 2, 3]))
    frame = frame.with_columns(prefix_tokens=pl.Series([20, 48], dtype=pl.Int32))
    assert extended(frame)[0] == ([1, 9], 20)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_extending_twice_changes_nothing_and_hashes_stay_prefixes(seed):
    frame = conversation(random.Random(seed))
    once = prefix.extend(frame)
    assert prefix.extend(once).equals(once)
    for before, after in zip(frame.iter_rows(named=True), once.iter_rows(named=True), strict=True):
        full = before["input_tokens"] // 16
        assert after["prefix_hashes"][:full] == before["prefix_hashes"][:full]
        assert len(after["prefix_hashes"]) == -(-after["prefix_tokens"] // 16)
        assert after["prefix_tokens"] in (before["input_tokens"], before["input_tokens"] + before["output_tokens"])


def conversation(rng):
    """Turns that follow a random earlier one, continue its text or not, with true token-level hashes."""
    turns = []
    for n in range(rng.randint(1, 8)):
        parent = rng.choice(turns) if turns and rng.random() < 0.8 else None
        kept = parent["text"][: rng.randint(0, len(parent["text"]))] if parent and rng.random() < 0.3 else None
        start = kept if kept is not None else (parent["text"] if parent else [])
        prompt = start + [rng.randrange(10**9) for _ in range(rng.randint(1, 40))]
        answer = [rng.randrange(10**9) for _ in range(rng.randint(1, 40))]
        turns.append({"id": f"r{n}", "parent": parent and parent["id"], "prompt": prompt, "text": prompt + answer})
    hashed = [
        naive_chain([hash(tuple(t["prompt"][i : i + 16])) & MASK for i in range(0, len(t["prompt"]), 16)])
        for t in turns
    ]
    return rows(
        *[
            (t["id"], t["parent"], len(t["prompt"]), len(t["text"]) - len(t["prompt"]), h)
            for t, h in zip(turns, hashed, strict=True)
        ]
    )


def naive_reuse(frame):
    seen, listed, full = {}, 0, 0
    for row in frame.iter_rows(named=True):
        block, prompt, cover = row["prefix_block_tokens"], row["input_tokens"], row["prefix_tokens"]
        walking = True
        for k, h in enumerate(row["prefix_hashes"]):
            own = min(block, prompt - k * block, cover - k * block)
            if own <= 0 or not walking:
                break
            hit = min(own, seen.get(h, 0))
            listed += hit
            full += hit if own == block == hit else 0
            walking = hit == own
        for k, h in enumerate(row["prefix_hashes"]):
            seen[h] = max(seen.get(h, 0), min(block, cover - k * block))
    return {"prompt_tokens": frame["input_tokens"].sum(), "listed_tokens": listed, "full_tokens": full}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_reuse_agrees_with_its_twin(seed):
    frame = prefix.extend(conversation(random.Random(seed)))
    assert prefix.reuse(frame) == naive_reuse(frame)


def test_reuse_by_hand():
    # Second row finds 16 of its 40 tokens in block 1; its partial third block is not reached.
    frame = rows(("a", None, 20, 1, [1, 2]), ("b", None, 40, 1, [1, 3, 2]), ("c", None, 20, 1, [1, 2]))
    assert prefix.reuse(frame) == {"prompt_tokens": 80, "listed_tokens": 16 + 20, "full_tokens": 32}
