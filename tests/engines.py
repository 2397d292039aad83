"""Engines that can replay a recorded case: functions from a case to the result tables of `tests/oracle.py`."""

from tests import oracle
from tests.cases import Case


def twin_engine(case: Case) -> oracle.Result:
    """Replay a case with the slow twin."""
    return oracle.run(requests(case), case.engine, oracle.linear_duration(case.a_ns, case.b_ns, case.c_ns), check=False)


def requests(case: Case) -> list[oracle.Request]:
    """Return the requests of a case as the twin takes them."""
    return [
        oracle.Request(
            arrival_ns=int(case.arrival_ns[row]),
            prompt_len=int(case.input_tokens[row]),
            max_tokens=int(case.max_tokens[row]),
            priority=int(case.priority[row]),
            key=oracle.trace_key(
                row,
                case.engine.block_size,
                case.hashes(row).tolist(),
                int(case.prefix_block_tokens[row]),
                int(case.prefix_tokens[row]),
            ),
        )
        for row in range(len(case.arrival_ns))
    ]


ENGINES = {"twin": twin_engine}
DEFAULT = "twin"
