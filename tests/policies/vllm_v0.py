"""vLLM's original scheduler re-stated plainly: 0.2.7, and 0.6.3 without and with chunked prefill.

Real sequences, real block tables with users counted, defects included.
"""

from dataclasses import dataclass, field

import numpy as np

from pipeline.kernel import layout
from pipeline.replay.policies.vllm_v0 import Settings
from pipeline.replay.state import StepCost
from tests.policies import base, running
from tests.policies.base import read

__all__ = ["RECOGNISES", "kernel", "read", "twin"]

DECODES, FIRST, AGAIN, RECOMPUTED, SWAPPED_OUT, SWAPPED_IN, IGNORED = range(7)
WAITING, RUNNING, SWAPPED, ENDED = "waiting", "running", "swapped", "ended"
FITS, LATER, NEVER = "fits", "later", "never"


def RECOGNISES(config: dict) -> bool:  # noqa: N802
    return config.get("oracle") == "vllm" and str(config["vllm_version"]).startswith(("0.2.", "0.6."))


def twin(case: base.Case) -> base.Result:
    kind = Chunked if case.engine["enable_chunked_prefill"] else Late if case.engine["engine"][:3] == "0.6" else Early
    return kind(case).run()


class CrashError(Exception):
    """The real engine dies: no host memory to swap to."""


class Block:
    """A block of memory and how many tables name it."""

    def __init__(self):
        self.users = 1


@dataclass(eq=False)
class Sequence:
    """One sample of a request, or its prompt while there is only that."""

    sample: int
    length: int  # prompt and sampled tokens
    status: str = WAITING
    computed: int = 0  # tokens in memory
    seen: int = 0  # tokens that its blocks were given for
    prefill: bool = True
    table: list[Block] = field(default_factory=list)
    output: int = 0
    capped: bool = False  # whether a limit ended it


@dataclass(eq=False)
class Group:
    """A request: one sequence, or one for each sample."""

    row: int
    arrival_ns: int
    prompt: int
    max_tokens: int
    priority: int
    out_lens: tuple[int, ...]
    sequences: list[Sequence] = field(default_factory=list)
    output: int = 0
    recomputed: int = 0
    swapped: int = 0
    work: int = 0
    status: str = "never_finished"
    first_scheduled: tuple[int, int] = (base.NONE, base.NONE)
    first_token_ns: int = base.NONE
    finished: tuple[int, int] = (base.NONE, base.NONE)

    def of(self, status: str) -> list[Sequence]:
        return [sequence for sequence in self.sequences if sequence.status == status]

    @property
    def live(self) -> list[Sequence]:
        return [sequence for sequence in self.sequences if sequence.status != ENDED]

    @property
    def weight(self) -> int:
        """What it counts against max_num_seqs."""
        wanted = len(self.out_lens)
        return wanted if wanted > len(self.sequences) else len(self.live)

    @property
    def rank(self) -> tuple[int, int]:
        return (self.priority, self.arrival_ns)


class Engine:
    """What all versions share: clock, groups, blocks, steps. Subclasses decide."""

    def __init__(self, case: base.Case):
        self.engine = case.engine
        held = case.requests
        absent = np.full(len(held["arrival_ns"]), base.NONE)
        names = ("arrival_ns", "prompt_len", "max_tokens", "priority", "out_lens")
        columns = [held.get(name, absent).tolist() for name in names]
        self.groups = [Group(row, *values) for row, values in enumerate(zip(*columns, strict=True))]
        for group in self.groups:
            group.sequences.append(Sequence(len(group.out_lens) - 1, group.prompt))
        self.coming = sorted(self.groups, key=lambda group: (group.arrival_ns, group.row))
        self.waiting: list[Group] = []
        self.running: list[Group] = []
        self.swapped: list[Group] = []
        self.bs, self.total = self.engine["block_size"], self.engine["num_gpu_blocks"]
        self.free, self.host_free = self.total, self.engine["num_cpu_blocks"]
        self.watermark = int(self.engine["watermark"] * self.total)
        self.now = 0
        self.steps: list[dict] = []
        self.rows: list[dict] = []

    def run(self) -> base.Result:
        stalled = crashed = False
        while True:
            while self.coming and self.coming[0].arrival_ns <= self.now:
                self.waiting.append(self.coming.pop(0))
            self.batch: list[tuple[Group, int, int]] = []  # group, tokens of all its sequences, event
            self.lost: list[tuple[Group, int, int]] = []  # group, tokens it had in memory, event
            self.ignored: list[Group] = []
            self.moved_in = self.moved_out = self.copied = 0
            try:
                self.decide()
            except CrashError:
                crashed = True
                break
            if self.batch or self.lost or self.ignored:
                self.step()
                if len(self.steps) == self.engine["max_steps"]:
                    break
            elif self.coming:
                self.now = self.coming[0].arrival_ns
            else:
                stalled = bool(self.waiting or self.running or self.swapped)
                break
        return self.result({"stalled": stalled, "crashed": crashed})

    # Blocks

    def blocks_of(self, tokens: int) -> int:
        return -(-tokens // self.bs)

    def take(self) -> Block:
        assert self.free > 0, "a block is taken where none is free"
        self.free -= 1
        return Block()

    def release(self, sequence: Sequence) -> None:
        for block in sequence.table:
            block.users -= 1
            self.free += block.users == 0
        sequence.table = []

    def can_allocate(self, group: Group) -> str:
        need = self.blocks_of(group.of(WAITING)[0].length)
        if self.total - need < self.watermark:
            return NEVER
        return FITS if self.free - need >= self.watermark else LATER

    def allocate(self, group: Group) -> None:
        (sequence,) = group.of(WAITING)
        sequence.table = [self.take() for _ in range(self.blocks_of(sequence.length))]
        for block in sequence.table:
            block.users = self.users_at_start(group)
        sequence.status, sequence.seen = RUNNING, sequence.length

    def users_at_start(self, group: Group) -> int:
        return 1

    def make_room(self, group: Group) -> None:
        """Give every running sequence a place for its next token; a block with other users is copied."""
        for sequence in group.of(RUNNING):
            if self.blocks_of(sequence.length) > len(sequence.table):
                sequence.table.append(self.take())
            elif sequence.table[-1].users > 1 and sequence.length > sequence.seen:
                shared = sequence.table.pop()
                sequence.table.append(self.take())
                shared.users -= 1
                self.copied += 1
            sequence.seen = sequence.length

    # Preemption

    def put_out(self, victim: Group) -> None:
        mode = self.engine["preemption_mode"] or ("recompute" if victim.weight == 1 else "swap")
        self.recompute(victim) if mode == "recompute" else self.swap_out(victim)

    def recompute(self, victim: Group) -> None:
        (sequence,) = victim.of(RUNNING)
        self.lost.append((victim, sequence.computed, RECOMPUTED))
        self.release(sequence)
        sequence.status, sequence.computed, sequence.prefill = WAITING, 0, True
        victim.recomputed += 1

    def swap_out(self, victim: Group) -> None:
        sequences = victim.of(RUNNING)
        self.check_host(victim)
        self.lost.append((victim, sum(sequence.computed for sequence in sequences), SWAPPED_OUT))
        before = self.free
        copies = self.copies(sequences)
        for sequence in sequences:
            self.release(sequence)
            sequence.table, sequence.status = copies[sequence], SWAPPED
        assert self.free >= before
        moved = len({block for table in copies.values() for block in table})
        self.host_free -= moved
        self.moved_out += moved
        self.swapped.append(victim)
        victim.swapped += 1

    def swap_in(self, group: Group) -> None:
        sequences = group.of(SWAPPED)
        copies = self.copies(sequences)
        self.host_free += len({block for sequence in sequences for block in sequence.table})
        moved = len({block for table in copies.values() for block in table})
        self.free -= moved
        self.moved_in += moved
        for sequence in sequences:
            sequence.table, sequence.status = copies[sequence], RUNNING

    # The step

    def step(self) -> None:
        number, began, engine = len(self.steps), self.now, self.engine
        for position, (group, computed, event) in enumerate(self.lost):
            self.log(number, position, group, event, len(group.live), 0, computed, False, False)
        for position, group in enumerate(self.ignored):
            self.log(number, position, group, IGNORED, 0, 0, 0, False, False)
            group.status, group.finished = "ignored", (number, began)
        prefill = context = 0
        for position, (group, tokens, event) in enumerate(self.batch):
            sequences = group.of(RUNNING)
            computed = sum(sequence.computed for sequence in sequences)
            is_prefill = self.told_prefill(group)
            ends = not is_prefill or sequences[0].computed + tokens >= sequences[0].length
            self.log(number, position, group, event, len(sequences), tokens, computed, is_prefill, ends)
            prefill += tokens if is_prefill else 0
            context += computed + tokens
            if group.first_scheduled[0] == base.NONE:
                group.first_scheduled = (number, began)
        tokens = sum(count for _, count, _ in self.batch)
        duration = engine["a_ns"] + engine["b_ns"] * tokens + engine["c_ns"] * context if tokens else 0
        duration += engine["d_ns"] * (self.moved_in + self.moved_out) + engine["e_ns"] * self.copied
        events = [event for _, _, event in self.batch]
        kinds = [event for _, _, event in self.lost]
        self.steps.append({
            "step": number, "t_sched_ns": began, "dur_ns": duration, "n_running": len(self.running),
            "n_waiting": len(self.waiting), "n_swapped": len(self.swapped), "n_sched": len(self.batch),
            "n_seqs": sum(len(group.of(RUNNING)) for group, _, _ in self.batch), "n_tokens": tokens,
            "prefill_tokens": prefill, "decode_tokens": tokens - prefill, "padded_tokens": self.padded(),
            "ctx_tokens": context, "n_admitted": events.count(FIRST), "n_resumed": events.count(AGAIN),
            "n_swapped_in": events.count(SWAPPED_IN), "n_preempt_recompute": kinds.count(RECOMPUTED),
            "n_preempt_swap": kinds.count(SWAPPED_OUT), "n_ignored": len(self.ignored), "free_gpu_blocks": self.free,
            "free_cpu_blocks": self.host_free, "blocks_swapped_in": self.moved_in,
            "blocks_swapped_out": self.moved_out, "blocks_copied": self.copied,
        })  # fmt: skip
        if number + 1 == engine["max_steps"]:
            return
        self.now += duration
        for group, count, _ in self.batch:
            self.deliver(group, count, number)

    def told_prefill(self, group: Group) -> bool:
        """Whether the engine takes what a group does for the computing of its prompt."""
        return group.of(RUNNING)[0].prefill

    def padded(self) -> int:
        """What the engine itself counts as the step's tokens."""
        return sum(count for _, count, _ in self.batch)

    def deliver(self, group: Group, count: int, step: int) -> None:
        """Take a step's tokens into account; sample where the prompt is complete."""
        group.work += count
        sequences = group.of(RUNNING)
        prompt = self.told_prefill(group)
        for sequence in sequences:
            sequence.computed += count // len(sequences)
            sequence.prefill = sequence.prefill and sequence.computed < sequence.length
        if prompt and sequences[0].prefill:
            return
        if len(group.sequences) < len(group.out_lens):
            sequences = self.fork(group)
        if group.first_token_ns == base.NONE:
            group.first_token_ns = self.now
        for sequence in sequences:
            sequence.length += 1
            sequence.output += 1
            group.output += 1
        ended = [sequence for sequence in sequences if self.ends(group, sequence)]
        for sequence in sequences:  # children that have not ended take the prompt's table; then who has ended goes
            if sequence not in ended and not sequence.table:
                sequence.table = list(group.sequences[0].table)
                for block in sequence.table:
                    block.users += 1
        for sequence in ended:
            self.release(sequence)
            sequence.status = ENDED
        if not group.live:
            group.finished = (step, self.now)
            group.status = "length" if any(sequence.capped for sequence in group.sequences) else "stop"
            self.running.remove(group)

    def fork(self, group: Group) -> list[Sequence]:
        (parent,) = group.sequences
        for sample in range(len(group.out_lens) - 1):
            child = Sequence(sample, parent.length, RUNNING, parent.computed, parent.seen, prefill=False)
            group.sequences.append(child)
        return group.sequences

    def ends(self, group: Group, sequence: Sequence) -> bool:
        stop = sequence.output == group.out_lens[sequence.sample]
        capped = sequence.length > self.engine["max_model_len"] or sequence.output == group.max_tokens
        if stop or capped:
            sequence.capped = capped and (self.capped_first or not stop)
        return stop or capped

    def log(self, step, position, group, event, sequences, tokens, computed, is_prefill, samples) -> None:
        self.rows.append({
            "step": step, "pos": position, "req": group.row, "event": event, "n_seqs": sequences, "n_sched": tokens,
            "n_computed": computed, "is_prefill": is_prefill, "samples": samples,
        })  # fmt: skip

    def result(self, summary: dict) -> base.Result:
        groups = self.groups
        outcomes = {
            "out_first_sched_step": [group.first_scheduled[0] for group in groups],
            "out_first_sched_ns": [group.first_scheduled[1] for group in groups],
            "out_first_token_ns": [group.first_token_ns for group in groups],
            "out_finish_step": [group.finished[0] for group in groups],
            "out_finish_ns": [group.finished[1] for group in groups],
            "out_n_output": [group.output for group in groups],
            "out_n_preempt_recompute": [group.recomputed for group in groups],
            "out_n_preempt_swap": [group.swapped for group in groups],
            "out_computed_tokens": [group.work for group in groups],
            "out_status": [group.status for group in groups],
        }
        return {
            "steps": base.by_column(self.steps),
            "schedule": base.by_column(self.rows),
            "requests": outcomes,
            "summary": summary,
        }

    def event(self, group: Group) -> int:
        return AGAIN if group.recomputed else FIRST

    def weights(self) -> int:
        return sum(group.weight for group in self.running)

    def drop_head(self) -> None:
        self.ignored.append(self.waiting.pop(0))
        for sequence in self.ignored[-1].sequences:
            sequence.status = ENDED


class Early(Engine):
    """0.2.7."""

    capped_first = True

    def users_at_start(self, group: Group) -> int:
        return len(group.sequences)  # the leak: those that have ended are counted too

    def decide(self) -> None:
        if not self.swapped:
            self.admit()
            if self.batch or self.ignored:
                return
        self.decode()
        self.swapped.sort(key=lambda group: group.arrival_ns)
        while self.swapped and not self.lost:
            group = self.swapped[0]
            need = len({block for sequence in group.live for block in sequence.table}) + len(group.of(SWAPPED))
            if self.free - need < self.watermark or self.weights() + group.weight > self.engine["max_num_seqs"]:
                break
            self.swap_in(self.swapped.pop(0))
            self.make_room(group)
            self.running.append(group)
            self.batch.append((group, len(group.of(RUNNING)), SWAPPED_IN))

    def admit(self) -> None:
        budget = self.engine["max_num_batched_tokens"]
        lengths: list[int] = []
        while self.waiting:
            group = self.waiting[0]
            length = group.of(WAITING)[0].length
            status = self.can_allocate(group)
            if length > min(self.engine["max_model_len"], budget) or status == NEVER:
                self.drop_head()
                continue
            with_it = [*lengths, length]
            padded = len(with_it) * max(with_it)
            if status == LATER or padded > budget:
                break
            if self.weights() + group.weight > self.engine["max_num_seqs"]:
                break
            if padded - sum(with_it) > self.engine["max_paddings"]:
                break
            lengths = with_it
            self.waiting.pop(0)
            self.allocate(group)
            self.running.append(group)
            self.batch.append((group, length, self.event(group)))

    def decode(self) -> None:
        queue = sorted(self.running, key=lambda group: group.arrival_ns)
        self.running = []
        while queue:
            group = queue.pop(0)
            while self.free < len(group.of(RUNNING)):
                victim = queue.pop() if queue else group
                self.put_out(victim)
                if victim is group:
                    break
            else:
                self.make_room(group)
                self.running.append(group)
                self.batch.append((group, len(group.of(RUNNING)), DECODES))

    def recompute(self, victim: Group) -> None:
        super().recompute(victim)
        self.waiting.insert(0, victim)

    def check_host(self, group: Group) -> None:
        if len({block for sequence in group.live for block in sequence.table}) > self.host_free:
            raise CrashError

    def copies(self, sequences: list[Sequence]) -> dict[Sequence, list[Block]]:
        """Blocks elsewhere for those of some sequences, shared as they are."""
        images: dict[Block, Block] = {}
        tables = {}
        for sequence in sequences:
            for block in sequence.table:
                if block in images:
                    images[block].users += 1
                else:
                    images[block] = Block()
            tables[sequence] = [images[block] for block in sequence.table]
        return tables

    def padded(self) -> int:
        prompts = [count for _, count, event in self.batch if event in (FIRST, AGAIN)]
        return len(prompts) * max(prompts) if prompts else super().padded()


class Late(Engine):
    """0.6.3 without chunked prefill."""

    capped_first = False

    def __init__(self, case: base.Case):
        super().__init__(case)
        self.last_call_ns, self.prompts_last, self.prompt_ns = 0, False, 0

    def told_prefill(self, group: Group) -> bool:
        return group.sequences[0].prefill  # the defect: that one may have ended

    def decide(self) -> None:
        self.seqs, self.left = self.weights(), self.engine["max_num_batched_tokens"]
        admitted: list[tuple[Group, int, int]] = []
        if not self.swapped:
            admitted = self.admit(chunked=False)
        if admitted:
            self.running += [group for group, _, _ in admitted]
            self.batch = admitted
            return
        if self.engine["policy"] == "priority":
            self.make_way()
        out: list[Group] = []
        decodes, _ = self.serve(out, chunked=False)
        back = [] if out else self.bring_back()
        self.waiting[:0] = [group for group in reversed(out) if group.of(WAITING)]
        self.running += [group for group, _, _ in decodes + back]
        self.batch = decodes + back

    def padded(self) -> int:
        return self.engine["max_num_batched_tokens"] - self.left

    def passed_delay(self) -> bool:
        """Whether delay_factor lets prompts in; it is asked before every one."""
        if self.prompts_last:
            self.prompt_ns = self.now - self.last_call_ns
        self.last_call_ns, self.prompts_last = self.now, False
        factor = self.engine["delay_factor"]
        if factor == 0 or not self.waiting:
            return True
        oldest = min(group.arrival_ns for group in self.waiting)
        return self.now - oldest > factor * self.prompt_ns or not self.running

    def admit(self, chunked: bool) -> list[tuple[Group, int, int]]:
        limit = self.engine["max_model_len"]
        if not chunked:
            limit = min(limit, self.engine["max_num_batched_tokens"])
        admitted = []
        while self.passed_delay() and self.waiting:
            group = self.waiting[0]
            tokens = group.of(WAITING)[0].length
            if chunked:
                tokens = min(tokens, self.left)
            status = self.can_allocate(group)
            if tokens > limit or status == NEVER:
                self.drop_head()
                continue
            if status == LATER or tokens == 0 or not self.within_budget(group, tokens):
                break
            self.waiting.pop(0)
            self.allocate(group)
            self.spend(group, tokens)
            admitted.append((group, tokens, self.event(group)))
        self.prompts_last = bool(admitted)
        return admitted

    def within_budget(self, group: Group, tokens: int) -> bool:
        return tokens <= self.left and self.seqs + group.weight <= self.engine["max_num_seqs"]

    def spend(self, group: Group, tokens: int) -> None:
        self.left -= tokens
        self.seqs += group.weight

    def make_way(self) -> None:
        """Put out running groups that rank behind the head of the queue until it fits."""
        self.running.sort(key=lambda group: group.rank)
        if not self.waiting:
            return
        head = self.waiting.pop(0)
        tokens = head.of(WAITING)[0].length
        while self.running and self.running[-1].rank > head.rank:
            if self.can_allocate(head) == FITS and self.within_budget(head, tokens):
                break
            victim = self.running.pop()
            self.seqs -= victim.weight
            self.recompute(victim)
            self.waiting.insert(0, victim)
        self.waiting.insert(0, head)
        self.waiting.sort(key=lambda group: group.rank)

    def serve(self, out: list[Group], chunked: bool) -> tuple[list, list]:
        """Go through the running queue; return decodes and chunks of prompts, and put in `out` who is put out."""
        decodes, chunks = [], []
        while self.running:
            group = self.running[0]
            sequences = group.of(RUNNING)
            tokens = sum(sequence.length - sequence.computed for sequence in sequences)
            if chunked and len(sequences) == 1:
                tokens = min(tokens, self.left)
            if tokens == 0:
                break
            self.running.pop(0)
            while self.free < self.touched(group):
                victim = self.running.pop() if self.running else group
                self.put_out(victim)
                out.append(victim)
                if victim is group:
                    break
            else:
                self.make_room(group)
                prompt = self.told_prefill(group)
                (chunks if prompt else decodes).append((group, tokens if prompt else len(sequences), DECODES))
                self.left -= tokens
                self.seqs += group.weight if chunked else 0
        return decodes, chunks

    def touched(self, group: Group) -> int:
        """Blocks that the next tokens are written to; in mid-prompt, the prompt's last block unless it is full."""
        return sum(sequence.length > sequence.seen or sequence.seen % self.bs > 0 for sequence in group.live)

    def swap_need(self, group: Group) -> int:
        return self.touched(group) + sum(sequence.seen // self.bs for sequence in group.live)

    def bring_back(self) -> list[tuple[Group, int, int]]:
        back = []
        while self.swapped:
            group = self.swapped[0]
            need = self.swap_need(group)
            if need > self.total:
                self.ignored.append(self.swapped.pop(0))
                for sequence in group.sequences:
                    sequence.status = ENDED
                continue
            tokens = sum(sequence.length - sequence.computed for sequence in group.of(SWAPPED))
            if self.free - need < self.watermark or not self.within_budget(group, tokens):
                break
            self.swap_in(self.swapped.pop(0))
            self.make_room(group)
            self.spend(group, tokens)
            back.append((group, tokens if self.told_prefill(group) else len(group.of(RUNNING)), SWAPPED_IN))
        return back

    def check_host(self, group: Group) -> None:
        if self.swap_need(group) > self.host_free:
            raise CrashError

    def copies(self, sequences: list[Sequence]) -> dict[Sequence, list[Block]]:
        """Blocks elsewhere for those of some sequences: each has its own, what was shared is written several times."""
        return {sequence: [Block() for _ in sequence.table] for sequence in sequences}


class Chunked(Late):
    """0.6.3 with chunked prefill."""

    def decide(self) -> None:
        self.seqs, self.left = 0, self.engine["max_num_batched_tokens"]
        out: list[Group] = []
        decodes, chunks = self.serve(out, chunked=True)
        back = [] if out else self.bring_back()
        back_chunks = [entry for entry in back if self.told_prefill(entry[0])]
        back_decodes = [entry for entry in back if not self.told_prefill(entry[0])]
        beyond, self.ignored = self.ignored, []
        admitted = self.admit(chunked=True)
        self.ignored += beyond  # those that can never come back are named last
        self.waiting[:0] = [group for group in reversed(out) if group.of(WAITING)]
        for part in (back_decodes, back_chunks, decodes, chunks, admitted):
            self.running += [group for group, _, _ in part]
        self.batch = admitted + chunks + back_chunks + decodes + back_decodes


STATUSES = {layout.FINISHED: "stop", layout.REJECTED: "ignored", layout.NEVER_FINISHED: "never_finished"}
EVENTS = {
    layout.CONTINUED: DECODES,
    layout.ADMITTED: FIRST,
    layout.RESUMED: AGAIN,
    layout.LOST: RECOMPUTED,
    layout.SWAPPED_OUT: SWAPPED_OUT,
    layout.SWAPPED_IN: SWAPPED_IN,
    layout.DROPPED: IGNORED,
}


def kernel(case: base.Case) -> base.Result:
    """Replay a case with the compiled engine."""
    engine, requests = case.engine, case.requests
    ends = [sample_ends(engine, requests, row) for row in range(len(requests["arrival_ns"]))]
    result = running.replay(
        settings(engine, decisions=True, released_defects=True), cost(engine), [running.batch(requests, ends)]
    )
    return recorded_form(case, result, ends)


def settings(engine: dict, **more) -> Settings:
    """Return a case's settings as the compiled engine takes them."""
    same = ("block_size", "num_gpu_blocks", "num_cpu_blocks", "max_num_batched_tokens", "max_num_seqs", "max_paddings")
    same += ("enable_chunked_prefill", "preemption_mode", "watermark", "max_steps")
    return Settings(
        **{name: engine[name] for name in same},
        version=engine["engine"],
        max_model_len=2**31 - 1,
        scheduler_max_model_len=engine["max_model_len"],
        scheduling_policy=engine["policy"],
        scheduler_delay_factor=engine["delay_factor"],
        swap_block_ns=engine["d_ns"],
        copy_block_ns=engine["e_ns"],
        **more,
    )


def cost(engine: dict) -> StepCost:
    """Return a case's step time, for more tokens than any step can hold."""
    most = engine["max_num_batched_tokens"] + engine["max_num_seqs"] + engine["max_model_len"] + 1
    return StepCost.whole(engine["a_ns"], engine["b_ns"], engine["c_ns"], most)


def sample_ends(engine: dict, requests: base.Table, row: int) -> list[int]:
    """Return the tokens of every sample of a request, limits applied."""
    cap = limit(engine, requests, row)
    return [min(tokens, cap) for tokens in requests["out_lens"][row]]


def limit(engine: dict, requests: base.Table, row: int) -> int:
    """Return the tokens at which max_tokens or max_model_len end a sample; the first one it always gets."""
    longest = max(engine["max_model_len"] + 1 - int(requests["prompt_len"][row]), 1)
    stated = int(requests["max_tokens"][row]) if "max_tokens" in requests else base.NONE
    return longest if stated == base.NONE else min(longest, stated)


def recorded_form(case: base.Case, result: dict, ends: list[list[int]]) -> base.Result:
    """Return what the compiled engine made in recorded names."""
    own, parts = result["own"], result["state"].parts
    crashed = bool(parts.settings.crashed[0])
    columns = {
        "n_swapped": "swapped", "n_seqs": "sequences", "padded_tokens": "padded_tokens", "n_swapped_in": "swapped_in",
        "n_preempt_recompute": "recomputed", "n_preempt_swap": "swapped_out", "n_ignored": "ignored",
        "free_cpu_blocks": "free_host_blocks", "blocks_swapped_in": "blocks_in", "blocks_swapped_out": "blocks_out",
        "blocks_copied": "blocks_copied",
    }  # fmt: skip
    steps = running.steps(result) | {name: own[column] for name, column in columns.items()}
    steps["free_gpu_blocks"] = steps["free_blocks"]
    schedule = running.schedule(result, EVENTS)
    schedule["n_seqs"] = sequences(schedule, ends)
    requests = running.outcomes(result, STATUSES)
    if crashed:  # nor did anybody learn whom that decision dropped
        kept = np.isin(np.arange(len(ends)), schedule["req"][schedule["event"] == IGNORED])
        requests["out_status"][(requests["out_status"] == "ignored") & ~kept] = "never_finished"
    early = case.engine["engine"].startswith("0.2.")
    for row, lengths in enumerate(case.requests["out_lens"]):
        cap = limit(case.engine, case.requests, row)
        if requests["out_status"][row] == "stop" and any(cap <= tokens - (not early) for tokens in lengths):
            requests["out_status"][row] = "length"
    counts = [
        np.bincount(schedule["req"][schedule["event"] == kind], minlength=len(ends))
        for kind in (RECOMPUTED, SWAPPED_OUT)
    ]
    if crashed:  # those put out by the decision in which the engine died, which has no rows
        np.add.at(counts[0], parts.rows[0, 0, : parts.settings.put_out[0]], 1)
        counts[1] = requests["out_n_preempt"] - counts[0]
    requests |= {"out_n_preempt_recompute": counts[0], "out_n_preempt_swap": counts[1]}
    stalled = result["state"].stalled and not crashed
    return {
        "steps": steps,
        "schedule": schedule,
        "requests": requests,
        "summary": {"stalled": stalled, "crashed": crashed},
    }


def sequences(schedule: base.Table, ends: list[list[int]]) -> list[int]:
    """Return how many sequences of its request each row of a schedule speaks of."""
    sampled = [0] * len(ends)  # tokens of each sample
    found = []
    for row, event, samples in zip(schedule["req"], schedule["event"], schedule["samples"], strict=True):
        alive = sum(tokens > sampled[row] for tokens in ends[row]) if sampled[row] else 1
        found.append(0 if event == IGNORED else alive)
        sampled[row] += samples
    return found
