"""Step time: the batch's shape to nanoseconds.

With T tokens, S sampling rows, m decoding requests whose contexts sum to C, and prefill chunks of c new
tokens after p in KV:

    t = c0 + c1*S + G(T) + L0 + L1*S + mu*D(m, C) + sum P(c, p)
    D = max(D0 + D1*m, D2 + D3*m + D4*C)
    P = max(P0 + P1*c + P2*(p + c), P3 + P4*c + P5*c*(p + c/2))

mu counts only where decodes and chunks meet. G is a table over T; where a model has one of its own for
pure decode steps, that one follows in the second row. Coefficients and their source: hardware/step_time.py.
The recorded cases of the real scheduler use whole nanoseconds a + b*T + c*contexts instead; both are
added, one of them being zero. One float expression per step, rounded once to the even nanosecond.
"""

import numpy as np

from pipeline.kernel.compile import inlined


@inlined
def add_chunk(step, known_tokens, input_tokens, new_tokens, computed_tokens, cost, engine):
    """Count one request's tokens: a prefill chunk, or the one token of a decode.

    The last known token is a decode once it lies behind the prompt (vLLM's own distinction).
    """
    step.scheduled += 1
    step.context_tokens += computed_tokens + new_tokens
    if computed_tokens >= max(input_tokens, known_tokens - 1):
        step.decode_tokens += new_tokens
        step.decode_context_tokens += computed_tokens + new_tokens
        return
    step.prefill_tokens += new_tokens
    step.prefill_area2 += new_tokens * (2 * computed_tokens + new_tokens)
    c, p = float(new_tokens), float(computed_tokens)
    memory = cost.P0 + cost.P1 * c + cost.P2 * (p + c)
    compute = cost.P3 + cost.P4 * c + cost.P5 * c * (p + c / 2.0)
    engine.chunk_ns += max(memory, compute)


@inlined
def nanoseconds(step, g_ns, cost, engine):
    """Return how long a step runs; a step without tokens takes no time.

    g_ns : float64[2, tokens + 1], G for mixed and for decode-only steps
    """
    tokens = step.prefill_tokens + step.decode_tokens
    if tokens == 0:
        return 0
    mixed = step.prefill_tokens > 0
    attention_ns = 0.0
    if step.decode_tokens > 0:
        attention_ns = decode_ns(step.decode_tokens, step.decode_context_tokens, cost)
        if mixed:
            attention_ns *= cost.mu
    step_ns = batch_ns(tokens, step.sampled, mixed, g_ns, cost) + attention_ns
    return whole_ns(step_ns + engine.chunk_ns, tokens, step.context_tokens, cost)


@inlined
def batch_ns(tokens, sampled, mixed, g_ns, cost):
    """Return what does not depend on contexts: overhead, linear layers and LM head."""
    rows = float(sampled)
    return cost.c0 + cost.c1 * rows + g_ns[0 if mixed else 1, tokens] + cost.L0 + cost.L1 * rows


@inlined
def decode_ns(decodes, contexts, cost):
    """Return D, the attention of decoding requests."""
    m = float(decodes)
    return max(cost.D0 + cost.D1 * m, cost.D2 + cost.D3 * m + cost.D4 * float(contexts))


@inlined
def whole_ns(step_ns, tokens, contexts, cost):
    """Round to nanoseconds and add the terms of recorded cases."""
    return np.int64(np.rint(step_ns)) + cost.a_ns + cost.b_ns * tokens + cost.c_ns * contexts
