"""Benchmarks: how fast a replay is, alone and as a command, and what it needs.

    python -m tests.bench [--only NAME] [--runs N] [--quick] [--large]     (`make bench ARGS=...`)

Tables go to the terminal, the same figures and each single measurement as JSON into `bench/`.

What is counted:

- `kernel`: from trace arrays in memory to arrays of steps and requests: allocate the engine, load, run, take
  every output row out. No file is read or written. Seconds are CPU time of the thread, which other users of a
  shared machine disturb less than the clock on the wall.
- event: an arrival (a row that is replayed), an admission or resumption, a chunk of a prompt in a step, a KV
  block taken or given back, a preemption, a finish. Chunks are `scheduled - decode_tokens` summed over steps.
  A block counts when it is handed out and when it is released; a block found in the prefix cache likewise.
- tokens: prompt tokens computed or found in the cache, and tokens sampled.
- `command`: one process replays as `servecast replay` does, after imports and with the compiled engine cached.
  read = trace file to engine arrays; replay = kernel and taking rows out; write = the sink's thread (it runs
  beside the replay); queries = the terminal summary. Those four are CPU time; all = wall time. Memory is the
  largest resident size of the process up to the end of the replay, libraries included.
- `purchase`: made-up requests through one size of a purchase; making them is not counted.
- Figures are medians over the runs, spread is lowest to highest.

Real traces are looked for where tests/shared.py says; a workload whose trace is absent is named and left out.
"""
