"""Router: the replica of each request, as far as it can be known before the replay.

Where it depends on how busy the replicas are, `kernel/fleet.py` chooses in the replay.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from uhashring import HashRing

from pipeline.config import Fleet
from pipeline.kernel.layout import NONE


class Router:
    """Chooses replicas for one batch after the other, in trace order."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.turn = 0
        # The ring of vLLM's production stack: uhashring with its default weights over the workers' addresses.
        self.replicas = {f"http://w{replica}:8000": replica for replica in range(fleet.replicas)}
        self.ring = HashRing(list(self.replicas))

    def choose(self, replayable: np.ndarray, sessions: pa.ChunkedArray) -> np.ndarray:
        """Return int32 replicas of one batch; NONE for the replica with the fewest requests in flight."""
        chosen = np.full(len(replayable), NONE, np.int32)
        if self.fleet.router == "round_robin":
            turns = self.turn + np.arange(np.count_nonzero(replayable))
            chosen[replayable] = turns % self.fleet.replicas
            self.turn += len(turns)
        elif self.fleet.router == "session":
            coded = pc.dictionary_encode(sessions.combine_chunks())
            nodes = [self.replicas[self.ring.get_node(name)] for name in coded.dictionary.to_pylist()]
            known = coded.indices.is_valid().to_numpy(zero_copy_only=False)
            places = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)
            chosen[known] = np.array([*nodes, NONE], np.int32)[places[known]]
        return chosen
