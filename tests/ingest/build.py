"""Small inputs for the tests of the import."""

from pathlib import Path

import polars as pl

HOUR = 3_600_000_000


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def canonical(path: Path, **columns: object) -> Path:
    """Write a trace of the user's own: three sound rows, with the given columns over them."""
    sound = {"arrival_us": [0, 10, 20], "input_tokens": [100, 200, 300], "output_tokens": [10, 20, 30]}
    pl.DataFrame({**sound, **columns}).write_parquet(path)
    return path


AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-12 00:00:00.5+00:00,76,340\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,GPT-4,100,20,120,API log\n"
MOONCAKE = '{"timestamp": 0, "input_length": 600, "output_length": 52, "hash_ids": [0, 1]}\n'
BAILIAN = (
    '{"chat_id": 1, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 21, "output_length": 11, '
    '"type": "text", "turn": 1, "hash_ids": [1000, 1001]}\n'
)
