"""Grids: which points a file makes, by hand, and what is wrong with files that make none."""

import pytest

from pipeline.errors import ConfigError
from pipeline.sweep import grid
from pipeline.sweep.grid import describe


def load(tmp_path, text):
    path = tmp_path / "grid.toml"
    path.write_text(text)
    return grid.load(path)


def points(tmp_path, text):
    """The settings of every point, as lists of values in the order of `varied`."""
    return [list(point.settings.values()) for point in load(tmp_path, text).points]


def test_every_value_with_every_other_the_first_list_slowest(tmp_path):
    found = load(
        tmp_path,
        '[engine]\nblock_size = 8\n[sweep]\n"load.rate_scale" = [0.5, 2]\n"engine.max_num_seqs" = [64, 256, 1]',
    )
    assert found.varied == ("load.rate_scale", "engine.max_num_seqs")
    assert found.target_slo_share == 0.99
    assert [(p.number, *p.settings.values()) for p in found.points] == [
        (1, 0.5, 64), (2, 0.5, 256), (3, 0.5, 1), (4, 2, 64), (5, 2, 256), (6, 2, 1),
    ]  # fmt: skip
    for point in found.points:
        assert point.config.engine.block_size == 8
        assert point.config.engine.max_num_seqs == point.settings["engine.max_num_seqs"]
        assert point.config.load.rate_scale == point.settings["load.rate_scale"]


def test_keys_without_quotes_and_values_of_all_sorts(tmp_path):
    found = load(
        tmp_path,
        '[sweep]\nhardware.gpu = ["a100-80gb-sxm", "h100-80gb-sxm"]\nload.queue_limit = ["none", 5]\n'
        "engine.enable_prefix_caching = [true, false]\nslo.chat.ttft_ms = [300]\ntarget_slo_share = 1",
    )
    assert len(found.points) == 8
    assert found.target_slo_share == 1
    assert found.points[0].config.load.queue_limit is None
    assert found.points[7].config.engine.enable_prefix_caching is False
    assert found.points[7].config.slo.targets("chat").ttft_ms == 300
    assert describe(found.points[0].settings) == (
        "gpu a100-80gb-sxm, queue_limit none, enable_prefix_caching true, ttft_ms 300"
    )


def test_lists_in_step_stand_where_the_first_of_them_stands(tmp_path):
    text = (
        '[sweep]\n"engine.block_size" = [8, 16]\n"load.rate_scale" = [1, 3]\n"fleet.replicas" = [2, 4]\n'
        'zip = [["fleet.replicas", "engine.block_size"]]'
    )
    found = load(tmp_path, text)
    keys = ("engine.block_size", "fleet.replicas", "load.rate_scale")
    assert [[p.settings[key] for key in keys] for p in found.points] == [
        [8, 2, 1], [8, 2, 3], [16, 4, 1], [16, 4, 3],
    ]  # fmt: skip


def test_points_written_out_get_the_values_they_leave_out_from_the_file_or_the_defaults(tmp_path):
    base = "[engine]\nblock_size = 32\n[sweep]\n"
    text = base + "[[sweep.point]]\nfleet.replicas = 2\n[[sweep.point]]\nengine.block_size = 8"
    assert points(tmp_path, text) == [[2, 32], [1, 8]]


def test_points_written_out_are_combined_with_lists(tmp_path):
    text = (
        '[sweep]\n"load.rate_scale" = [1, 2]\n[[sweep.point]]\n"engine.block_size" = 8\n'
        '[[sweep.point]]\n"engine.block_size" = 16'
    )
    assert points(tmp_path, text) == [[8, 1], [8, 2], [16, 1], [16, 2]]


def test_a_value_that_is_not_taken_costs_its_own_points_only(tmp_path):
    found = load(tmp_path, '[sweep]\n"engine.max_num_seqs" = [64, 0]\n"load.rate_scale" = [1, 2]')
    assert [point.config is None for point in found.points] == [False, False, True, True]
    assert found.points[2].reason == "engine.max_num_seqs = 0: must be at least 1"
    assert found.points[2].settings == {"engine.max_num_seqs": 0, "load.rate_scale": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[engine]\nblock_size = 16", "has no [sweep] table"),
        ("[sweep]", "has no [sweep] table"),
        ("[sweep]\ntarget_slo_share = 0.9", "[sweep] varies nothing"),
        (
            '[sweep]\n"engine.max_num_sequences" = [1]',
            "engine.max_num_sequences: unknown setting; did you mean engine.",
        ),
        ("[sweep]\nmax_num_seqs = [1]", "max_num_seqs: unknown section; did you mean engine.max_num_seqs?"),
        ("[sweep]\ntarget_slo_shar = 0.9", "sweep.target_slo_shar: unknown; did you mean sweep.target_slo_share?"),
        (
            "[engin]\nblock_size = 1\n[sweep]\nload.rate_scale = [1]",
            "engin.block_size: unknown section; did you mean",
        ),
        ("[sweep]\nslo.chat.ttft = [1]", "slo.chat.ttft: unknown setting; did you mean slo.chat.ttft_ms"),
        ("[sweep]\nload.rate_scale = 2", "load.rate_scale = 2: must be a list of at least one value"),
        ("[sweep]\nload.rate_scale = []", "must be a list of at least one value"),
        ("[sweep]\nload.rate_scale = [[1]]", "load.rate_scale: [1]: must be a number, a text or a truth value"),
        ("[sweep]\nload.rate_scale = [1, 1]", "points 1 and 2 are the same: rate_scale 1"),
        (
            "[sweep]\nload.rate_scale = [1]\ntarget_slo_share = 99",
            "sweep.target_slo_share = 99: must be a share",
        ),
        ('[sweep]\nload.rate_scale = [1]\nzip = ["load.rate_scale"]', "sweep.zip: must be a list of groups"),
        ('[sweep]\nload.rate_scale = [1]\nzip = [["load.rate_scale", "fleet.replicas"]]', "fleet.replicas has no list"),
        (
            '[sweep]\nload.rate_scale = [1, 2]\nfleet.replicas = [1]\nzip = [["load.rate_scale", "fleet.replicas"]]',
            "equally long: load.rate_scale has 2, fleet.replicas has 1",
        ),
        (
            '[sweep]\nload.rate_scale = [1]\nzip = [["load.rate_scale", "load.rate_scale"]]',
            "load.rate_scale is in it twice",
        ),
        ("[sweep]\nload.rate_scale = [1]\n[[sweep.point]]\nload.rate_scale = 2", "also has a list in [sweep]"),
        ("[sweep]\npoint = [1]", "must be written as [[sweep.point]]"),
        ("[sweep]\nengine.max_num_seqs = [0, -1]", "engine.max_num_seqs = -1: must be at least 1"),
        ("sweep", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_place(tmp_path, text, message):
    with pytest.raises(ConfigError, match=r"grid\.toml") as error:
        load(tmp_path, text)
    assert message in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        grid.load(tmp_path / "grid.toml")
