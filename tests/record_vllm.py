"""Record what the scheduler of the installed vLLM decides, as a case that `tests/vllm_cases.py` compares with.

    python tests/record_vllm.py OUT --trace trace.parquet --engine engine.json [--first N]
    python tests/record_vllm.py OUT --case FOLDER
    python tests/record_vllm.py OUT --random N --seed S

`--trace` replays the replayable requests of a trace/1 file. engine.json holds the settings that config.json of a
case has in `engine`, or is such a config.json; settings left out have vLLM's defaults. How prefix hashes become
tokens: see tests/recording/inputs.py.
`--case` records the inputs of an existing case or bundle (or of every one in a folder) again, and tells where the
new recording differs from the old one: so a new release of vLLM is checked. `--random` writes a bundle of small
random cases. Then

    python tests/vllm_cases.py OUT --engine kernel        (or shortcut, or twin)

Exit code 0; 1 if `--case` found a difference; 2 if something is wrong with the inputs or with vLLM, which it says.

No GPU and no model is needed. What vLLM 0.33.0 wants, in a Python of its own (3.11, CPU):

    pip install torch==2.13.0                   (a CPU build; vLLM's own pin is 2.14.0)
    pip install --no-deps vllm==0.33.0
    pip install aiohttp cachetools cbor2 cloudpickle fastapi llguidance msgspec numpy openai openai-harmony
        packaging partial-json-parser pillow prometheus-client psutil py-cpuinfo pyarrow pybase64 pydantic pyzmq
        regex requests transformers uvloop xgrammar
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.policies import base
from tests.recording import draw, inputs, real, tables


def record_trace(out: Path, trace: Path, engine: Path, first: int | None) -> bool:
    """Record the requests of a trace as one case."""
    given = inputs.from_trace(trace, inputs.read_settings(engine), first)
    vllm = real.load()
    tables.write_case(out, _recorded(given, vllm, out.name), vllm.version)
    return True


def record_again(out: Path, folder: Path) -> bool:
    """Record the inputs of one case, one bundle or a folder of them again; true if all came out as before."""
    old = base.find(folder)
    vllm = real.load()
    same = True
    for one in old:
        new = out if one == folder else out / one.name
        if new.resolve() == one.resolve():
            raise inputs.InputError(f"{new}: holds the recording to compare with: write elsewhere")
        recordings = [
            (number, _recorded(given, vllm, one.name if number is None else f"{one.name}[{number}]"))
            for number, given in inputs.from_case(one)
        ]
        if recordings[0][0] is None:
            tables.write_case(new, recordings[0][1], vllm.version)
        else:
            tables.write_bundle(new, recordings, vllm.version)
        found = tables.differences(one, new)
        print(f"{one.name}: {'; '.join(found) or 'as recorded before'}", flush=True)
        same = same and not found
    return same


def record_random(out: Path, count: int, seed: int) -> bool:
    """Record a bundle of so many random cases."""
    vllm = real.load()
    rng = np.random.default_rng(seed)
    recordings = [(number, _recorded(draw.case(rng), vllm, f"{out.name}[{number}]")) for number in range(count)]
    tables.write_bundle(out, recordings, vllm.version)
    return True


def _recorded(given: inputs.Inputs, vllm, name: str) -> real.Recording:
    began = time.perf_counter()
    recording = real.record(given, vllm)
    seconds = time.perf_counter() - began
    rows = len(given.arrival_ns)
    each = 1e6 * recording.vllm_s / rows
    print(
        f"{name:32} {rows:6} requests {len(recording.steps):6} steps {seconds:8.2f} s, "
        f"{recording.vllm_s:8.2f} s of processor time in vLLM: {each:.0f} us per request",
        flush=True,
    )
    return recording


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT", type=Path, help="folder to write")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--trace", type=Path, help="trace/1 file")
    source.add_argument("--case", metavar="FOLDER", type=Path, help="recorded case, bundle, or a folder of them")
    source.add_argument("--random", metavar="N", type=int, help="number of random cases")
    parser.add_argument("--engine", type=Path, help="settings for --trace")
    parser.add_argument("--first", metavar="N", type=int, help="of --trace, only so many requests")
    parser.add_argument("--seed", type=int, default=0, help="of --random (default 0)")
    options = parser.parse_args(arguments)
    if (options.trace is None) != (options.engine is None):
        parser.error("--trace and --engine go together")
    for name in ("random", "first"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: must be at least 1")
    try:
        if options.trace is not None:
            same = record_trace(options.out, options.trace, options.engine, options.first)
        elif options.case is not None:
            same = record_again(options.out, options.case)
        else:
            same = record_random(options.out, options.random, options.seed)
    except (inputs.InputError, base.NotACaseError) as error:
        print(f"cannot be recorded: {error}", file=sys.stderr)
        return 2
    except real.VllmError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
