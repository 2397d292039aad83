"""Prefix identity from what a log holds: token ids as they are, text in chunks of a nominal size.

Block ids are 64-bit digests of a block alone; `prefix.chain` makes them stand for all before them, and the import
keys them. Text has no token borders: chunks of 4 characters a token are cut from the start, so that requests with
the same beginning share chunks whatever their lengths, and no more chunks are kept than the prompt has tokens for.
"""

import hashlib
import json
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.ingest.fields import parsed

BLOCK_TOKENS = 16
CHARACTERS_PER_TOKEN = 4  # a rule of thumb for English text; the share of reuse is an estimate


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def blocks_of_tokens(ids: Any, input_tokens: int | None) -> dict[str, Any]:
    """Return the prefix columns of a list of token ids; none where it is not the whole prompt."""
    if not isinstance(ids, Sequence) or isinstance(ids, str) or len(ids) < BLOCK_TOKENS or len(ids) != input_tokens:
        return {}
    if not all(isinstance(token, int) and 0 <= token < 2**31 for token in ids):
        return {}
    full = len(ids) // BLOCK_TOKENS
    data = array("i", ids).tobytes()
    step = BLOCK_TOKENS * 4
    return _columns([_digest(data[k * step : (k + 1) * step]) for k in range(full)], "token_blocks")


def blocks_of_messages(messages: Any, input_tokens: int | None) -> dict[str, Any]:
    """Return the prefix columns of a prompt in text: a string, or messages with role and content."""
    prompt = _prompt(parsed(messages)) if messages else ""
    if not prompt or not input_tokens:
        return {}
    step = BLOCK_TOKENS * CHARACTERS_PER_TOKEN
    full = min(len(prompt) // step, input_tokens // BLOCK_TOKENS)
    blocks = [_digest(prompt[k * step : (k + 1) * step].encode("utf-8", "replace")) for k in range(full)]
    return _columns(blocks, "text_blocks") if blocks else {}


def _columns(blocks: list[int], kind: str) -> dict[str, Any]:
    return {
        "blocks": blocks,
        "prefix_block_tokens": BLOCK_TOKENS,
        "prefix_tokens": len(blocks) * BLOCK_TOKENS,
        "prefix_kind": kind,
    }


def _prompt(messages: Any) -> str:
    if isinstance(messages, str):
        return messages
    if not isinstance(messages, list):
        return ""
    parts = []
    for message in messages:
        if isinstance(message, Mapping):
            content = message.get("content")
            parts.append(str(message.get("role") or ""))
            parts.append(content if isinstance(content, str) else json.dumps(content, sort_keys=True))
    return "\n".join(parts)
