"""Recording of a real vLLM: `inputs` and `draw` say what to replay, `real` replays it, `tables` writes the case."""
