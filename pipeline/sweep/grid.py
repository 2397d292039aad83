"""Grid: a TOML file of settings, some of them over lists, becomes points with one config each.

The file is a `replay.toml` with one more table:

    [sweep]
    "load.rate_scale" = [0.5, 1, 2]      # every value with every other list: the cartesian product,
    "engine.max_num_seqs" = [64, 256]    # the first list changing slowest
    "fleet.replicas" = [1, 2]
    zip = [["engine.max_num_seqs", "fleet.replicas"]]   # these lists go in step instead
    target_slo_share = 0.99              # share of the requests that a point to choose keeps within the SLO

    [[sweep.point]]                      # cases written out: each one with every combination of the lists
    "engine.block_size" = 32
"""

import itertools
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import config as config_module
from pipeline.config import Config, SloTargets, did_you_mean, nearest
from pipeline.errors import ConfigError

TARGET_SLO_SHARE = 0.99
SWEEP, COMPARE = "sweep", "compare"  # pages that a result can be shown on
_RESERVED = ("point", "zip", "target_slo_share")

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of settings; `config` is None where it cannot be used, `reason` says why."""

    number: int  # from 1, in the order of the grid
    settings: Settings  # the varied ones by dotted key, as the file has them
    config: Config | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """Points in order, and the share of requests within the SLO that a point to choose must reach."""

    varied: tuple[str, ...]
    points: tuple[Point, ...]
    target_slo_share: float = TARGET_SLO_SHARE
    page: str = SWEEP


def load(path: Path) -> Grid:
    """Read a grid; ConfigError for a file that is none, an unknown setting (with the nearest one), or no usable point.

    A value that a setting does not take makes only its points unusable.
    """
    base = _read(path)
    try:
        return _grid(base)
    except ConfigError as error:
        raise ConfigError("\n".join(f"{path.name}: {line}" for line in str(error).splitlines())) from None


def _grid(base: dict[str, Any]) -> Grid:
    sweep = base.pop("sweep", None)
    if not isinstance(sweep, dict) or not sweep:
        raise ConfigError('has no [sweep] table; name at least one setting there, as "load.rate_scale" = [0.5, 1, 2]')
    for key, value in _leaves(base):
        _check_name(key, value)
    target = _target(sweep.get("target_slo_share", TARGET_SLO_SHARE))
    lists = _lists({name: value for name, value in sweep.items() if name not in _RESERVED})
    cases = _cases(sweep.get("point", []), lists)
    dimensions = [*([cases] if cases else []), *_in_step(lists, sweep.get("zip", []))]
    if not dimensions:
        raise ConfigError("[sweep] varies nothing; name a setting with a list of values, or a [[sweep.point]]")
    combined = [_merged(parts) for parts in itertools.product(*dimensions)]
    varied = tuple(dict.fromkeys(key for settings in combined for key in settings))
    _check_different(combined)
    points = tuple(_point(number, base, settings, varied) for number, settings in enumerate(combined, start=1))
    if all(point.config is None for point in points):
        raise ConfigError("\n".join(dict.fromkeys(point.reason or "" for point in points)))
    return Grid(varied, points, target)


def describe(settings: Mapping[str, Any]) -> str:
    """Return settings on one line, short names where they are enough: `rate_scale 0.5, max_num_seqs 64`."""
    return ", ".join(
        f"{name} {value_text(value)}" for name, value in zip(short_names(settings), settings.values(), strict=True)
    )


def short_names(keys: Iterable[str]) -> list[str]:
    """Return the last part of each key, or the whole key where two would look alike."""
    keys = list(keys)
    last = [key.rpartition(".")[2] for key in keys]
    return [name if last.count(name) == 1 else key for name, key in zip(last, keys, strict=True)]


def value_text(value: Any) -> str:
    """Return a setting's value as the grid would have it."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def _target(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ConfigError(f"sweep.target_slo_share = {value}: must be a share above 0 and at most 1, as 0.99")
    return float(value)


def _lists(table: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the values of each varied setting, by dotted key."""
    lists = {}
    for path, values in _leaves(table):
        key = ".".join(path)
        if "." not in key and (close := nearest(key, _RESERVED)):
            raise ConfigError(f"sweep.{key}: unknown{did_you_mean([f'sweep.{name}' for name in close])}")
        _check_name(tuple(key.split(".")), values)
        if not isinstance(values, list) or not values:
            raise ConfigError(f"sweep: {key} = {values}: must be a list of at least one value, as [64, 256]")
        if key in lists:
            raise ConfigError(f"sweep: {key} is there twice")
        lists[key] = [_value(key, value) for value in values]
    return lists


def _cases(tables: Any, lists: Mapping[str, Any]) -> list[Settings]:
    """Return the points that are written out."""
    if not isinstance(tables, list) or not all(isinstance(table, dict) and table for table in tables):
        raise ConfigError("sweep.point: must be written as [[sweep.point]], with at least one setting in each")
    cases = []
    for number, table in enumerate(tables, start=1):
        case = {".".join(path): value for path, value in _leaves(table)}
        for key, value in case.items():
            _check_name(tuple(key.split(".")), value)
            if key in lists:
                raise ConfigError(f"sweep.point {number}: {key} also has a list in [sweep]; only one can be")
            case[key] = _value(key, value)
        cases.append(case)
    return cases


def _in_step(lists: Mapping[str, list[Any]], groups: Any) -> Iterator[list[Settings]]:
    """Yield one dimension per list, or per group of lists that go in step, at the place of its first list."""
    group_of = _groups(lists, groups)
    for key in lists:
        group = group_of.get(key, [key])
        if key == min(group, key=list(lists).index):
            yield [dict(zip(group, values, strict=True)) for values in zip(*(lists[k] for k in group), strict=True)]


def _groups(lists: Mapping[str, list[Any]], groups: Any) -> dict[str, list[str]]:
    if not isinstance(groups, list) or not all(isinstance(group, list) and len(group) > 1 for group in groups):
        raise ConfigError('sweep.zip: must be a list of groups, as [["engine.max_num_seqs", "fleet.replicas"]]')
    group_of: dict[str, list[str]] = {}
    for group in groups:
        for key in group:
            if not isinstance(key, str) or key not in lists:
                hint = did_you_mean(nearest(str(key), lists))
                raise ConfigError(f"sweep.zip: {key} has no list in [sweep]{hint}")
            if key in group_of or group.count(key) > 1:
                raise ConfigError(f"sweep.zip: {key} is in it twice")
        if len({len(lists[key]) for key in group}) > 1:
            sizes = ", ".join(f"{key} has {len(lists[key])}" for key in group)
            raise ConfigError(f"sweep.zip: lists that go in step must be equally long: {sizes}")
        group_of |= dict.fromkeys(group, group)
    return group_of


def _value(key: str, value: Any) -> Any:
    if not isinstance(value, str | int | float | bool):
        raise ConfigError(f"sweep: {key}: {value}: must be a number, a text or a truth value")
    return None if isinstance(value, str) and value.lower() == "none" else value


def _merged(parts: Iterable[Settings]) -> Settings:
    return {key: value for part in parts for key, value in part.items()}


def _check_different(combined: list[Settings]) -> None:
    seen: dict[str, int] = {}
    for number, settings in enumerate(combined, start=1):
        text = repr(sorted(settings.items()))
        if text in seen:
            raise ConfigError(f"sweep: points {seen[text]} and {number} are the same: {describe(settings)}")
        seen[text] = number


def _point(number: int, base: Mapping[str, Any], settings: Settings, varied: Iterable[str]) -> Point:
    sections = _nested([*_leaves(base), *((tuple(key.split(".")), value) for key, value in settings.items())])
    try:
        built = config_module.from_dict(sections)
    except ConfigError as error:
        return Point(number, {key: settings.get(key) for key in varied}, None, str(error))
    known = dict(_leaves(config_module.to_dict(built)))
    shown = {key: settings[key] if key in settings else known.get(tuple(key.split("."))) for key in varied}
    return Point(number, shown, built)


def _check_name(key: tuple[str, ...], value: Any) -> None:
    """Raise ConfigError, as `--set` does, for a setting that does not exist; its value is not looked at."""
    known = {name for name, _, _ in config_module.describe_fields()}
    of_a_class = len(key) == 3 and key[0] == "slo" and key[2] in SloTargets.model_fields
    if ".".join(key) not in known and not of_a_class:
        config_module.from_dict(_nested([(key, value)]))


def _leaves(table: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*prefix, name))
        else:
            yield (*prefix, name), value


def _nested(leaves: Iterable[tuple[tuple[str, ...], Any]]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for path, value in leaves:
        table = root
        for part in path[:-1]:
            inner = table.get(part)
            table[part] = inner if isinstance(inner, dict) else {}
            table = table[part]
        table[path[-1]] = value
    return root
