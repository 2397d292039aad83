"""Kinds of traffic of a bank's shared LLM platform, as numbers.

A traffic class is a session process: how many turns, what each turn adds to the prompt, how long the
answers are, how long the user (or tool) takes before the next turn, and what the prompts share.
Token lengths are mixtures of lognormals, cut to a range; `median` is in tokens, `sigma` is the
standard deviation of the natural logarithm. Everything that requests share is a whole number of
prefix blocks, so no shareable token is lost where the shared part ends.

All tenants, texts and shares are invented. The sizes are set so that the sample's statistics fall
near those of public traces; `pipeline.ingest.synth` states the targets and their sources.
"""

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.errors import ConfigError

Ints = npt.NDArray[np.int64]

TENANTS = ("payments", "wealth", "risk", "markets", "compliance", "operations", "retail", "hr-helpdesk")
NO_LIMIT = -1


@dataclass(frozen=True, slots=True)
class Lengths:
    """Mixture of lognormal lengths in tokens: parts of (weight, median, sigma), cut to low..high."""

    parts: tuple[tuple[float, float, float], ...]
    low: int
    high: int

    def draw(self, rng: np.random.Generator, n: int) -> Ints:
        """Return n lengths in tokens."""
        weights = np.array([weight for weight, _, _ in self.parts])
        part = _pick(rng, weights, n)
        log_median = np.array([math.log(median) for _, median, _ in self.parts])[part]
        sigma = np.array([sigma for _, _, sigma in self.parts])[part]
        lengths = np.exp(log_median + sigma * rng.standard_normal(n))
        return np.rint(np.clip(lengths, self.low, self.high)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Shared:
    """Content that many prompts hold after the system prompt: a catalogue whose popularity follows 1 / rank."""

    items: int
    low_blocks: int
    high_blocks: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """One class of traffic; times in seconds, probabilities per session or per request."""

    name: str
    priority: int
    stream: bool
    night: bool  # follows the batch window, not office hours
    sessions: bool  # requests carry a session id and a turn number
    end_probability: float  # a session ends after each turn with this probability
    most_turns: int
    system_blocks: tuple[int, ...]  # system prompt of a tenant's application, by tenant in turn
    one_system_prompt: bool  # all tenants send the same system prompt and tool schemas
    shared: tuple[Shared, ...]  # nested: an item of the second catalogue belongs to one of the first
    first: Lengths  # tokens of a first turn that no other session has
    later: Lengths  # new tokens of every later turn
    answer: Lengths
    limits: tuple[tuple[float, int], ...]  # (share of sessions, max_tokens)
    think_median_s: float  # from the end of a turn to the start of the next
    think_sigma: float
    token_us: int  # assumed time per generated token, which spaces the turns of a session
    rate_sigma: float  # standard deviation of the logarithm of this class's own rate
    cancelled: float  # share of requests whose client leaves in mid-answer
    reasoning_share: float = 0.0  # mean share of reasoning tokens, which the next turn's prompt leaves out
    context_tokens: int = 131_072  # a session ends before prompt and answer pass this

    def turns_per_session(self) -> float:
        """Return the mean number of turns of a session."""
        return (1.0 - (1.0 - self.end_probability) ** self.most_turns) / self.end_probability


CHAT = Traffic(
    name="chat",
    priority=0,
    stream=True,
    night=False,
    sessions=True,
    end_probability=0.4,
    most_turns=30,
    system_blocks=(1, 2, 1, 1, 1),
    one_system_prompt=False,
    shared=(),
    first=Lengths(((0.55, 150, 0.9), (0.45, 2_200, 0.85)), 4, 48_000),
    later=Lengths(((0.7, 70, 0.9), (0.3, 1_200, 0.85)), 3, 24_000),
    answer=Lengths(((0.15, 40, 0.7), (0.85, 350, 0.55)), 1, 4_096),
    limits=((0.3, NO_LIMIT), (0.4, 1_024), (0.3, 2_048)),
    think_median_s=40.0,
    think_sigma=0.9,
    token_us=12_000,
    rate_sigma=0.3,
    cancelled=0.02,
)

RETRIEVAL = Traffic(
    name="retrieval",
    priority=0,
    stream=True,
    night=False,
    sessions=False,
    end_probability=1.0,
    most_turns=1,
    system_blocks=(1,),
    one_system_prompt=False,
    shared=(Shared(items=300, low_blocks=1, high_blocks=3), Shared(items=20, low_blocks=1, high_blocks=2)),
    first=Lengths(((1.0, 1_800, 0.75),), 40, 24_000),
    later=Lengths(((1.0, 60, 0.8),), 3, 2_000),
    answer=Lengths(((1.0, 210, 0.75),), 1, 2_048),
    limits=((0.5, NO_LIMIT), (0.5, 1_024)),
    think_median_s=30.0,
    think_sigma=0.9,
    token_us=12_000,
    rate_sigma=0.4,
    cancelled=0.01,
)

AGENT = Traffic(
    name="agent",
    priority=1,
    stream=False,
    night=False,
    sessions=True,
    end_probability=0.14,
    most_turns=32,
    system_blocks=(6,),
    one_system_prompt=True,
    shared=(),
    first=Lengths(((0.85, 250, 0.8), (0.15, 1_800, 0.8)), 20, 30_000),
    later=Lengths(((0.7, 180, 0.8), (0.3, 800, 0.85)), 8, 16_000),
    answer=Lengths(((0.85, 85, 0.6), (0.15, 520, 0.7)), 5, 4_096),
    limits=((0.5, NO_LIMIT), (0.5, 4_096)),
    think_median_s=2.5,
    think_sigma=1.0,
    token_us=12_000,
    rate_sigma=0.3,
    cancelled=0.003,
)

DOCUMENTS = Traffic(
    name="documents",
    priority=2,
    stream=True,
    night=False,
    sessions=True,
    end_probability=0.75,
    most_turns=6,
    system_blocks=(1, 2),
    one_system_prompt=False,
    shared=(),
    first=Lengths(((1.0, 7_500, 0.75),), 800, 120_000),
    later=Lengths(((1.0, 70, 0.8),), 5, 2_000),
    answer=Lengths(((1.0, 520, 0.5),), 20, 4_096),
    limits=((0.4, NO_LIMIT), (0.6, 2_048)),
    think_median_s=75.0,
    think_sigma=0.8,
    token_us=14_000,
    rate_sigma=0.3,
    cancelled=0.01,
)

BATCH = Traffic(
    name="batch",
    priority=10,
    stream=False,
    night=True,
    sessions=False,
    end_probability=1.0,
    most_turns=1,
    system_blocks=(1,),
    one_system_prompt=False,
    shared=(Shared(items=6, low_blocks=1, high_blocks=4),),
    first=Lengths(((1.0, 900, 0.6),), 60, 16_000),
    later=Lengths(((1.0, 60, 0.8),), 3, 2_000),
    answer=Lengths(((1.0, 120, 0.6),), 1, 1_024),
    limits=((0.4, 256), (0.6, 512)),
    think_median_s=1.0,
    think_sigma=0.5,
    token_us=12_000,
    rate_sigma=0.5,
    cancelled=0.0,
)

REASONING = Traffic(
    name="reasoning",
    priority=0,
    stream=True,
    night=False,
    sessions=True,
    end_probability=0.7,
    most_turns=8,
    system_blocks=(1,),
    one_system_prompt=False,
    shared=(),
    first=Lengths(((0.8, 220, 0.9), (0.2, 1_800, 0.8)), 8, 7_500),
    later=Lengths(((1.0, 120, 0.9),), 4, 8_000),
    answer=Lengths(((1.0, 3_650, 0.87),), 40, 32_768),
    limits=((0.6, NO_LIMIT), (0.4, 16_384)),
    think_median_s=90.0,
    think_sigma=0.8,
    token_us=22_000,
    rate_sigma=0.2,
    cancelled=0.03,
    reasoning_share=0.7,
    context_tokens=40_960,
)

# A class's place in this list is part of its random streams: append, never reorder.
CLASSES = (CHAT, RETRIEVAL, AGENT, DOCUMENTS, BATCH, REASONING)
BY_NAME = {traffic.name: traffic for traffic in CLASSES}


@dataclass(frozen=True, slots=True)
class Profile:
    """A named mix: share of a week's requests by class, and the model they ask for."""

    shares: Mapping[str, float]
    model: str


PROFILES = {
    "bank": Profile(
        {"chat": 0.40, "retrieval": 0.25, "agent": 0.13, "documents": 0.08, "batch": 0.14},
        "llama-3.1-8b",
    ),
    "reasoning": Profile({"reasoning": 1.0}, "qwen3-32b"),
}


def resolve(mix: str | Mapping[str, float]) -> Profile:
    """Return the profile of a name, or of shares by class, which need not sum to 1.

    Raises ConfigError for an unknown profile or class, and for shares that are negative or all zero.
    """
    if isinstance(mix, str):
        if mix not in PROFILES:
            raise ConfigError(f"mix = {mix!r}: no such profile; profiles are {', '.join(PROFILES)}")
        return PROFILES[mix]
    for name, share in mix.items():
        if name not in BY_NAME:
            near = difflib.get_close_matches(name, BY_NAME, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"classes are {', '.join(BY_NAME)}"
            raise ConfigError(f"mix: no class {name!r}; {hint}")
        if not (math.isfinite(share) and share >= 0):
            raise ConfigError(f"mix[{name!r}] = {share}: a share is a number of at least 0")
    total = sum(mix.values())
    if not total > 0:
        raise ConfigError("mix: at least one class needs a share above 0")
    only_reasoning = all(share == 0 or name == "reasoning" for name, share in mix.items())
    model = PROFILES["reasoning" if only_reasoning else "bank"].model
    return Profile({name: share / total for name, share in mix.items() if share > 0}, model)


def tenant_weights(class_index: int, n_tenants: int) -> npt.NDArray[np.float64]:
    """Return each tenant's share of a class: 1 / rank, ranked differently in every class."""
    rank = (np.arange(n_tenants) + 3 * class_index) % n_tenants
    weights = 1.0 / (rank + 1.0)
    return weights / weights.sum()


def pick_popular(rng: np.random.Generator, items: int, n: int) -> Ints:
    """Return n items of a catalogue, drawn with probability proportional to 1 / rank."""
    return _pick(rng, 1.0 / np.arange(1.0, items + 1.0), n)


def pick_weighted(rng: np.random.Generator, weights: npt.NDArray[np.float64], n: int) -> Ints:
    """Return n positions, drawn with the given weights."""
    return _pick(rng, weights, n)


def _pick(rng: np.random.Generator, weights: npt.NDArray[np.float64], n: int) -> Ints:
    edges = np.cumsum(weights)
    place = np.searchsorted(edges, rng.random(n) * edges[-1], side="right")
    return np.minimum(place, len(weights) - 1).astype(np.int64)
