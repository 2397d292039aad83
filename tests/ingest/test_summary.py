from pipeline.ingest import digest, ingest
from tests.ingest import build


def test_the_table_fits_80_columns_and_says_what_was_found(tmp_path):
    path = build.canonical(
        tmp_path / "t.parquet",
        input_tokens=[100, -1, 300],
        model=["m", "m", "a-rather-long-name-of-a-model-that-someone-serves-under-a-path/of-its-own/and-more"],
        prefix_hashes=[[1, 2], None, [1, 3, 4, 5, 6]],
        prefix_block_tokens=[64, None, 64],
        prefix_tokens=[100, None, 300],
    )
    summary = ingest([path], out=tmp_path / "out.parquet")
    text = "\n".join(summary.lines())
    assert max(map(len, summary.lines())) <= 80
    assert "3 read, 2 valid, 1 rejected" in text
    assert "negative_tokens 1" in text
    assert "16.0% of prompt tokens under an infinite cache, 16.0% in full blocks" in text  # 64 of 400
    assert summary.rejected == {"negative_tokens": 1}
    assert sum(summary.models.values()) == 1
    assert (summary.records, summary.valid, summary.replayable) == (3, 2, 2)
    assert (summary.input_tokens, summary.output_tokens) == (400, 40)


def test_a_digest_is_of_content_and_options(tmp_path):
    first, same = build.write(tmp_path / "a", build.AZURE), build.write(tmp_path / "b", build.AZURE)
    other = build.write(tmp_path / "c", build.AZURE + "\n")
    assert digest([first]) == digest([same]) == digest([same], {"format": None})
    assert len({digest([first]), digest([other]), digest([first], {"spread_ticks": 0}), digest([first, same])}) == 4
