"""Lanes: fixed, ordered chains of partitions, each processed by one task a round.

The number of lanes and their partitions are part of the problem, never of the cluster.
"""

import functools
import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distls.workers.runtime.rng import Purpose, rng

DEFAULT_LANES = 8


@dataclass(frozen=True)
class Lane:
    """The work of one task in one round."""

    index: int  # place of the lane in every reduction
    blocks: tuple[int, ...]  # partitions, in the order they are read


def deal(sizes: NDArray[np.int64], n_lanes: int) -> list[tuple[int, ...]]:
    """Assign partitions of these sizes (int64) to 1 to n_partitions lanes, balancing their bytes greedily.

    Return the partition numbers of each lane, increasing.
    """
    return list(_dealt(np.asarray(sizes, np.int64).tobytes(), n_lanes))


@functools.lru_cache(maxsize=4)  # the solvers that a plan compares, and the parts of one, deal the same partitions
def _dealt(of: bytes, n_lanes: int) -> tuple[tuple[int, ...], ...]:
    sizes = np.frombuffer(of, np.int64)
    lanes: list[list[int]] = [[] for _ in range(n_lanes)]
    # neighbouring lanes share a worker: partitions that cannot be dealt evenly go to lanes far from each other
    spread = sorted(range(n_lanes), key=lambda lane: f"{lane:032b}"[::-1])
    # a heap of (bytes, blocks, rank among equals, lane): the next block goes to the first
    emptiest = [(0, 0, rank, lane) for rank, lane in enumerate(spread)]
    # largest first; ties go to the lower partition number
    for block in np.argsort(-sizes, kind="stable").tolist():
        # The heap's order is total, so equal lanes are never compared by chance.
        total, count, rank, lane = emptiest[0]
        lanes[lane].append(block)
        heapq.heapreplace(emptiest, (total + int(sizes[block]), count + 1, rank, lane))
    # Increasing, so that cached and read order are those of the disk.
    return tuple(tuple(sorted(lane)) for lane in lanes)


def rounds_in_pass(lanes: Sequence[tuple[int, ...]], sizes: NDArray[np.int64], round_bytes: int) -> int:
    """Return the number of rounds in a pass if a lane reads at most `round_bytes`, or one block, in each."""
    return max((_rounds_of_lane(sizes[list(lane)], round_bytes) for lane in lanes if lane), default=1)


def _rounds_of_lane(sizes: NDArray[np.int64], round_bytes: int) -> int:
    # rounds take blocks by number in a new order every pass, so a round may get the largest ones
    blocks_in_round = max(1, round_bytes // max(int(sizes.max()), 1))
    return -(-len(sizes) // blocks_in_round)


def round_of_pass(
    lanes: Sequence[tuple[int, ...]], n_parts: int, pass_index: int, parts: range, seed: int, *, shuffle: bool = True
) -> list[Lane]:
    """Return the work of a round: each lane's blocks in `parts` of a pass of `n_parts`, reshuffled every pass.

    The order of lane l in pass p is drawn from (ORDER, p, l), or that of the blocks' numbers without `shuffle`; the
    parts of a pass cover every block once.
    """
    work = []
    for index, blocks in enumerate(lanes):
        generator = rng(seed, Purpose.ORDER, pass_index, index)
        # Drawn by pass and lane: a resumed fit has the same order.
        order = generator.permutation(len(blocks)) if shuffle else range(len(blocks))
        # Integer arithmetic: the parts of a pass cover all blocks without a gap.
        start, stop = (len(blocks) * part // n_parts for part in (parts.start, parts.stop))
        work.append(Lane(index, tuple(blocks[i] for i in order[start:stop])))
    return work
