"""The interface of a kind of synthetic data, and of a family of kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

BLOCK_ROWS = 8192  # part of the reproducibility promise, as are the exceptions in `KINDS`: never change them


class Family(Protocol):
    """Generator of the rows of a family of kinds."""

    def build(self, kind: Kind, generator: np.random.Generator) -> Any:
        """Draw what all blocks of one seed share (topics, class means), whatever the part."""

    def draw(self, kind: Kind, model: Any, generator: np.random.Generator) -> tuple[Any, NDArray[Any]]:
        """Draw one block: `kind.block_rows` rows (Rows) and their class codes (n_rows,) or targets (n_rows, 1)."""


@dataclass(frozen=True)
class Kind:
    """A named stream of synthetic rows."""

    name: str
    id: int
    n_train: int
    n_test: int
    n_features: int
    n_classes: int
    layout: Literal["csr", "dense"]
    description: str
    family: Family
    block_rows: int = BLOCK_ROWS
    row_nnz: int = 90
