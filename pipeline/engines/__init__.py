"""Settings of every scheduler policy, under the argument names of its engine."""

from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Discriminator, Tag

from pipeline.engines.base import EngineSection
from pipeline.engines.reserve import Reserve
from pipeline.engines.sarathi import Orca, Sarathi, Static
from pipeline.engines.sglang import Sglang
from pipeline.engines.slora import Slora
from pipeline.engines.tensorrt_llm import TensorrtLlm
from pipeline.engines.vllm import Vllm
from pipeline.engines.vllm_v0 import VllmV0

_SECTIONS: tuple[type[EngineSection], ...] = (
    Vllm,
    VllmV0,
    Sarathi,
    Orca,
    Static,
    Sglang,
    TensorrtLlm,
    Slora,
    Reserve,
)
# By the name of the policy; the first is the default.
POLICIES: dict[str, type[EngineSection]] = {section.model_fields["policy"].default: section for section in _SECTIONS}
DEFAULT = next(iter(POLICIES))


def _policy(values: Any) -> str:
    return values.get("policy", DEFAULT) if isinstance(values, dict) else values.policy


if TYPE_CHECKING:
    AnyEngine = EngineSection
else:
    AnyEngine = Annotated[
        Union[tuple(Annotated[section, Tag(policy)] for policy, section in POLICIES.items())],  # noqa: UP007
        Discriminator(_policy),
    ]
