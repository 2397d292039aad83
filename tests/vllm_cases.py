"""The same as `tests/policy_cases.py`, under the name that it had when vLLM's cases were the only ones."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.policies.vllm import differences
from tests.policy_cases import main

__all__ = ["differences", "main"]

if __name__ == "__main__":
    sys.exit(main())
