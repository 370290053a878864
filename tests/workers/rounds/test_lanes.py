"""Lanes: who works which partitions, when, and that every pass covers everything once."""

import numpy as np
import pytest
from helpers import examples
from hypothesis import given
from hypothesis import strategies as st

from distls.workers.rounds.lanes import deal, round_of_pass, rounds_in_pass

SIZES = st.lists(st.integers(0, 10_000), min_size=1, max_size=60).map(lambda s: np.array(s, np.int64))


@st.composite
def problems(draw):
    sizes = draw(SIZES)
    return sizes, draw(st.integers(1, len(sizes)))


def rounds(lanes, n_rounds, pass_index, seed=0):
    return [round_of_pass(lanes, n_rounds, pass_index, range(r, r + 1), seed) for r in range(n_rounds)]


@examples(200)
@given(problems())
def test_every_block_is_dealt_once(problem):
    sizes, n_lanes = problem
    lanes = deal(sizes, n_lanes)
    assert len(lanes) == n_lanes
    assert sorted(block for lane in lanes for block in lane) == list(range(len(sizes)))
    assert all(lane == tuple(sorted(lane)) for lane in lanes)
    assert all(lanes)  # as many lanes as blocks at most: none is idle
    assert lanes == deal(sizes, n_lanes)


@examples(200)
@given(problems())
def test_lanes_are_balanced(problem):
    sizes, n_lanes = problem
    totals = [int(sizes[list(lane)].sum()) for lane in deal(sizes, n_lanes)]
    assert max(totals) - min(totals) <= int(sizes.max())


@examples(200)
@given(problems())
def test_the_next_block_goes_to_the_emptiest_lane(problem):
    """The rule as it reads; `deal` keeps a heap, for tens of thousands of blocks and lanes."""
    sizes, n_lanes = problem
    lanes, totals = [[] for _ in range(n_lanes)], [0] * n_lanes
    ranks = {lane: rank for rank, lane in enumerate(sorted(range(n_lanes), key=lambda i: f"{i:08b}"[::-1]))}
    for block in np.argsort(-sizes, kind="stable").tolist():
        lane = min(range(n_lanes), key=lambda i: (totals[i], len(lanes[i]), ranks[i]))
        lanes[lane].append(block)
        totals[lane] += int(sizes[block])
    assert deal(sizes, n_lanes) == [tuple(sorted(lane)) for lane in lanes]


def test_known_lanes():
    assert deal(np.array([5, 4, 3, 3, 3]), 2) == [(0, 3), (1, 2, 4)]
    assert deal(np.full(7, 9), 3) == [(0, 3, 6), (2, 5), (1, 4)]
    assert deal(np.zeros(4, np.int64), 2) == [(0, 2), (1, 3)]
    assert deal(np.array([1, 2, 3]), 1) == [(0, 1, 2)]


def test_neighbouring_lanes_are_not_the_heavier_ones():
    """Workers take lanes next to each other: what cannot be dealt evenly is spread over all of them."""
    lanes = deal(np.full(12, 9), 8)
    assert [sum(map(len, lanes[i : i + 4])) for i in (0, 4)] == [6, 6]
    assert [sum(map(len, lanes[i : i + 2])) for i in (0, 2, 4, 6)] == [3, 3, 3, 3]


@examples(300)
@given(problems(), st.integers(1, 40_000), st.integers(0, 5), st.integers(0, 3))
def test_a_pass_covers_every_block_once_within_the_cut(problem, round_bytes, pass_index, seed):
    sizes, n_lanes = problem
    lanes = deal(sizes, n_lanes)
    n_rounds = rounds_in_pass(lanes, sizes, round_bytes)
    work = rounds(lanes, n_rounds, pass_index, seed)
    seen = [[], *([] for _ in lanes)]
    for round_ in work:
        assert [lane.index for lane in round_] == list(range(n_lanes))
        for lane in round_:
            seen[lane.index] += lane.blocks
            assert int(sizes[list(lane.blocks)].sum()) <= round_bytes or len(lane.blocks) == 1
    assert [tuple(sorted(blocks)) for blocks in seen[:n_lanes]] == lanes


def test_the_number_of_rounds():
    lanes = [(0, 1, 2, 3), (4,)]
    sizes = np.array([10, 10, 10, 10, 5])
    assert [rounds_in_pass(lanes, sizes, cut) for cut in (10**12, 40, 39, 20, 19, 10, 9, 1)] == [
        1, 1, 2, 2, 4, 4, 4, 4,
    ]  # fmt: skip
    # three would fit by their sum, but not whichever order they come in
    assert rounds_in_pass([(0, 1, 2, 3)], np.array([10, 10, 10, 1]), 16) == 4
    assert rounds_in_pass([(0,), ()], np.array([0]), 1) == 1
    assert rounds_in_pass([], np.array([], np.int64), 1) == 1


def test_the_order_is_new_in_every_pass_and_lane_and_reproducible():
    lanes = deal(np.full(40, 7), 2)
    orders = [[lane.blocks for lane in rounds(lanes, 1, p)[0]] for p in range(3)]
    assert orders == [[lane.blocks for lane in rounds(lanes, 1, p)[0]] for p in range(3)]
    flat = [tuple(lanes[i].index(block) for block in order) for both in orders for i, order in enumerate(both)]
    assert len(set(flat)) == 6
    assert orders[0] != [lane.blocks for lane in rounds(lanes, 1, 0, seed=1)[0]]


def test_the_order_does_not_depend_on_the_cut():
    lanes = deal(np.arange(1, 31), 3)
    whole = rounds(lanes, 1, 4)[0]
    for n_rounds in (2, 3, 7, 10):
        cut = rounds(lanes, n_rounds, 4)
        for index, lane in enumerate(whole):
            assert lane.blocks == tuple(block for round_ in cut for block in round_[index].blocks)


@pytest.mark.parametrize("n_rounds", [1, 2, 3, 4])
def test_shares_of_a_pass_are_even(n_rounds):
    counts = [len(lane.blocks) for round_ in rounds([tuple(range(10))], n_rounds, 0) for lane in round_]
    assert max(counts) - min(counts) <= 1


def test_without_shuffle_blocks_come_by_number_in_every_pass():
    lanes = [(0, 3, 4, 6), (1, 2, 5)]
    for pass_index in range(3):
        work = [round_of_pass(lanes, 2, pass_index, range(r, r + 1), 9, shuffle=False) for r in range(2)]
        assert [lane.blocks for lane in work[0]] == [(0, 3), (1,)]
        assert [lane.blocks for lane in work[1]] == [(4, 6), (2, 5)]
