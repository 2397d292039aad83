"""Each check finds the fault that it is for, and nothing in a sound run."""

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.query import catalog, session
from tests.queries import fake_run


def spoil(folder, table: str, column: str, row: int, change) -> None:
    path = folder / table
    rows = pq.read_table(path)
    values = rows[column].to_pylist()
    values[row] = change(values[row])
    place = rows.schema.get_field_index(column)
    spoilt = pa.array(values).cast(rows.schema.field(column).type)
    pq.write_table(rows.set_column(place, rows.schema.field(column), spoilt), path)


STEPS = "steps/replica=0/part-00000.parquet"
FAULTS = {
    "request_stamps_rise": ("requests.parquet", "arrival_ns", 30, lambda ns: ns + 10**12),
    "outcomes_have_stamps": ("requests.parquet", "first_token_step", 30, lambda step: None),
    "steps_follow_each_other": (STEPS, "start_ns", 30, lambda ns: ns - 1),
    "blocks_in_range": (STEPS, "free_blocks", 30, lambda blocks: 501),
    "tokens_match_steps": ("requests.parquet", "output_tokens", 30, lambda tokens: tokens + 1),
    "gaps_match_steps": ("gaps.parquet", "gap_ns", 0, lambda ns: ns + 1),
    "last_tokens_match_steps": ("requests.parquet", "finish_step", 30, lambda step: step + 1),
    "steps_sample_all_tokens": (STEPS, "preempted", 30, lambda n: n + 1),
    "counts_agree": ("requests.parquet", "outcome", 30, lambda outcome: "never_finished"),
}


def test_every_check_has_a_fault_here():
    assert set(FAULTS) == {query.name for query in catalog.load().values() if query.kind == "check"}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = fake_run.write(tmp_path_factory.mktemp("runs") / "sound", count=400, num_gpu_blocks=501)
    assert session.failed_checks(session.open([folder])) == {}
    return folder


@pytest.mark.parametrize("name", FAULTS)
def test_the_check_finds_its_fault(written, tmp_path, name):
    folder = shutil.copytree(written, tmp_path / "spoilt")
    table, column, row, change = FAULTS[name]
    spoil(folder, table, column, row, change)
    assert name in session.failed_checks(session.open([folder]))


def test_a_lost_part_of_the_steps_is_found(tmp_path):
    folder = fake_run.write(tmp_path / "run", count=100, part_rows=200)
    (folder / "steps/replica=0/part-00001.parquet").unlink()
    found = session.failed_checks(session.open([folder]))
    assert found["steps_follow_each_other"]["step"].to_list() == [400]
    assert "counts_agree" in found
