"""Names of prefix blocks: 64-bit numbers that are equal exactly where the tokens up to there are equal.

A real log hashes tokens block by block, each hash over the one before. Here the content is known by
construction: a prompt is the system prompt of an application, then nested shared documents, then
the stream of one session, which only grows: a later turn's prompt is the former prompt, the former
answer and new text. So block i is named by its owner (application, document or session) and i. A
name fixes all earlier blocks, as a chained hash does.

A turn that a later one continues covers its answer too, so the answer's blocks can be found again; its
last block may be cut, and the later turn gives the same name to the whole block: the two agree on
the tokens that the first one covers. Reasoning tokens are not sent back, so a turn that has them
covers its prompt alone. The last turn of a session covers what the turn before it covered: its own
tokens come once, and need no name.
"""

import numpy as np
import numpy.typing as npt

Names = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

BLOCK_TOKENS = 512

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)


def name(owner: Names, number: npt.NDArray) -> Names:
    """Return a 64-bit name for each (owner, number): SplitMix64's finaliser over their combination."""
    with np.errstate(over="ignore"):
        z = owner + (number.astype(np.uint64) + np.uint64(1)) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * _M1
        z = (z ^ (z >> np.uint64(27))) * _M2
        return z ^ (z >> np.uint64(31))


def block_names(rows: np.ndarray, seed: int) -> tuple[Names, Ints]:
    """Return the block names of all rows in one array, and the offsets of each row's part in it.

    rows : ROW[n]; `prefix_tokens` says how far each is covered, 0 for not at all
    """
    root = np.full(len(rows), seed % 2**64, np.uint64)
    application = name(name(root, rows["klass"]), rows["application"] + 2)
    document = name(application, rows["document"] + 2)
    companion = name(document, rows["companion"] + 2)
    session = name(name(root, np.full(len(rows), 255)), rows["session"])

    counts = -(-rows["prefix_tokens"].astype(np.int64) // BLOCK_TOKENS)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    row = np.repeat(np.arange(len(rows)), counts)
    block = np.arange(offsets[-1]) - offsets[row]
    owner = session[row]
    ends = np.cumsum([rows["system_blocks"], rows["document_blocks"], rows["companion_blocks"]], axis=0)
    for names, end in zip((companion, document, application), ends[::-1], strict=True):
        owner = np.where(block < end[row], names[row], owner)
    return name(owner, block), offsets
