"""The fixed tree: the same merges whoever holds which leaves and whatever finishes first."""

from itertools import pairwise

import pytest
from helpers import examples, refuses
from hypothesis import given
from hypothesis import strategies as st

from distls.workers.rounds.reduction_tree import ReductionTree

LEAVES = range(1, 18)
BY_HAND = {
    1: "0",
    2: "(0 1)",
    3: "((0 1) 2)",
    5: "(((0 1) (2 3)) 4)",
    6: "(((0 1) (2 3)) (4 5))",
    7: "(((0 1) (2 3)) ((4 5) 6))",
    9: "((((0 1) (2 3)) ((4 5) (6 7))) 8)",
}


def join(left, right):
    """Neither associative nor commutative."""
    return f"({left} {right})"


def tree(n_leaves):
    return ReductionTree(n_leaves, join)


def straight(n_leaves):
    made = tree(n_leaves)
    for leaf in range(n_leaves):
        made.add(0, leaf, f"{leaf}")
    return made.root()


@pytest.mark.fast_cases("1", "3", "6", "9")
@pytest.mark.parametrize("n_leaves", sorted(BY_HAND))
def test_known_trees(n_leaves):
    assert straight(n_leaves) == BY_HAND[n_leaves]


@pytest.mark.fast_cases("1$", "6", "12", "17")
@pytest.mark.parametrize("n_leaves", LEAVES)
def test_leaves_stay_in_order(n_leaves):
    assert straight(n_leaves).replace("(", "").replace(")", "").split() == [str(i) for i in range(n_leaves)]


@st.composite
def arrivals(draw):
    """Leaves dealt to tasks in any way, merged there in any order, arriving in any order."""
    n_leaves = draw(st.integers(1, 17))
    order = draw(st.permutations(range(n_leaves)))
    cuts = sorted(draw(st.sets(st.integers(0, n_leaves))) | {0, n_leaves})
    return n_leaves, [order[a:b] for a, b in pairwise(cuts)]


@examples(400)
@given(arrivals())
def test_any_grouping_and_order(arrival):
    n_leaves, groups = arrival
    whole = tree(n_leaves)
    for group in groups:
        part = tree(n_leaves)
        for leaf in group:
            part.add(0, leaf, f"{leaf}")
        whole.add_all(part.nodes())
    assert whole.root() == straight(n_leaves)


@examples(200)
@given(st.integers(1, 17), st.data())
def test_groups_of_groups(n_leaves, data):
    """Two levels of intermediate holders, as when workers merge and send on."""
    holders = [tree(n_leaves) for _ in range(4)]
    for leaf in data.draw(st.permutations(range(n_leaves))):
        holders[data.draw(st.integers(0, 3))].add(0, leaf, f"{leaf}")
    pairs = tree(n_leaves), tree(n_leaves)
    for place, holder in enumerate(holders):
        pairs[place % 2].add_all(holder.nodes())
    whole = tree(n_leaves)
    whole.add_all(pairs[1].nodes() + pairs[0].nodes())
    assert whole.root() == straight(n_leaves)


@pytest.mark.fast_cases("1$", "6", "12", "17")
@pytest.mark.parametrize("n_leaves", LEAVES)
def test_neighbours_are_merged_where_they_are(n_leaves):
    part = tree(n_leaves)
    for leaf in range(n_leaves):
        part.add(0, leaf, f"{leaf}")
    assert [value for _, _, value in part.nodes()] == [straight(n_leaves)]


def test_what_is_held_at_most():
    """Leaves in order hold one value a level, so that memory stays logarithmic."""
    made = tree(1024)
    for leaf in range(1024):
        made.add(0, leaf, "x")
        assert len(made.nodes()) <= 10


@pytest.mark.fast_cases("1$", "6", "12", "17")
@pytest.mark.parametrize("n_leaves", LEAVES)
def test_an_incomplete_root_is_refused(n_leaves):
    for absent in range(n_leaves):
        made = tree(n_leaves)
        for leaf in range(n_leaves):
            if leaf != absent:
                made.add(0, leaf, f"{leaf}")
        refuses(ValueError, "the reduction is not complete", made.root)


def test_nothing_to_reduce():
    refuses(ValueError, "not complete", tree(0).root)
    refuses(ValueError, r"a tree of 0 leaves has no node \(0, 0\)", tree(0).add, 0, 0, "x")


@examples(300)
@given(arrivals(), st.data())
def test_what_was_counted_is_not_counted_again(arrival, data):
    n_leaves, groups = arrival
    whole, arrived = tree(n_leaves), []
    for group in groups:
        part = tree(n_leaves)
        for leaf in group:
            part.add(0, leaf, f"{leaf}")
        whole.add_all(part.nodes())
        arrived += [(0, leaf) for leaf in group] + [node[:2] for node in part.nodes()]
    before = whole.nodes()
    level, position = data.draw(st.sampled_from(arrived))
    with pytest.raises(ValueError, match=rf"leaf or subtree \({level}, {position}\) was merged twice"):
        whole.add(level, position, "again")
    assert whole.nodes() == before


@pytest.mark.parametrize(("first", "second"), [((1, 0), (0, 1)), ((0, 1), (1, 0)), ((2, 0), (0, 3)), ((0, 6), (2, 1))])
def test_neither_above_nor_below(first, second):
    made = tree(7)
    made.add(*first, "first")
    refuses(ValueError, "was merged twice", made.add, *second, "second")


@pytest.mark.parametrize("node", [(0, 5), (0, -1), (1, 3), (2, 2), (3, 1), (4, 0), (-1, 0)])
def test_nodes_that_do_not_exist(node):
    made = tree(5)
    refuses(ValueError, "a tree of 5 leaves has no node", made.add, *node, "x")
    assert made.nodes() == []
