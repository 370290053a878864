"""The fixed reduction tree: the same merges in the same order whatever finishes first, however leaves are grouped.

Leaf i of n is at (level 0, position i); a pair (2j, 2j+1) of one level merges to position j of the next; a last leaf
without a sibling moves up unchanged. A task with several neighbouring leaves merges as far as it can, the driver
merges the rest, and the bits do not depend on where a merge was done.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")
Node = tuple[int, int]


class ReductionTree(Generic[T]):
    """Collects leaves and subtrees in any order and merges siblings as soon as both are there.

    ``merge(left, right)`` returns the merged value. It may reuse the memory of `left`, but neither change `right` nor
    return memory of it that it would change in a `left`.
    """

    def __init__(self, n_leaves: int, merge: Callable[[T, T], T]) -> None:
        self._n_leaves = n_leaves
        self._merge = merge
        self._nodes: dict[Node, T] = {}
        self._covered = bytearray(n_leaves)

    def add(self, level: int, position: int, value: T) -> None:
        """Insert the value of one node and merge upwards as far as possible.

        Raises ValueError if there is no such node, or if it, its ancestor or a descendant was inserted before: a
        result counted twice.
        """
        self._cover(level, position)
        while (level, position) != self._root:
            # Siblings differ in the last bit of their position.
            sibling = position ^ 1
            if sibling < self._width(level):
                if (level, sibling) not in self._nodes:
                    self._nodes[level, position] = value
                    return
                other = self._nodes.pop((level, sibling))
                # The left one first, whichever came last: merging does not commute in its last bits.
                value = self._merge(other, value) if sibling < position else self._merge(value, other)
            level, position = level + 1, position // 2
        self._nodes[level, position] = value

    def _cover(self, level: int, position: int) -> None:
        """Mark the leaves below a node as counted."""
        if not (0 <= level <= self._root[0] and 0 <= position < self._width(level)):
            raise ValueError(f"a tree of {self._n_leaves} leaves has no node {(level, position)}")
        # All leaves below the node, the last node of a level may have fewer.
        leaves = slice(position << level, min((position + 1) << level, self._n_leaves))
        if any(self._covered[leaves]):
            raise ValueError(f"leaf or subtree {(level, position)} was merged twice")
        self._covered[leaves] = b"\1" * (leaves.stop - leaves.start)

    def nodes(self) -> list[tuple[int, int, T]]:
        """Return the nodes merged so far, as (level, position, value) in order."""
        return [(level, position, value) for (level, position), value in sorted(self._nodes.items())]

    def root(self) -> T:
        """Return the merged value of all leaves; raise ValueError if leaves are missing."""
        if list(self._nodes) != [self._root]:
            raise ValueError(f"the reduction is not complete: it holds {sorted(self._nodes)}")
        return self._nodes[self._root]

    def add_all(self, nodes: Iterable[tuple[int, int, T]]) -> None:
        """Insert nodes that another part of the tree has merged."""
        for level, position, value in nodes:
            self.add(level, position, value)

    def _width(self, level: int) -> int:
        return -(-self._n_leaves // (1 << level))

    @property
    def _root(self) -> Node:
        # Levels until one node is left.
        return (max(self._n_leaves - 1, 0).bit_length(), 0)
