"""Generated features of a fit: the state that holds them, and the choice of a method that has one block of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.methods.parameters import BLOCK_SIZE
from distls.problem import Problem
from distls.solvers.block_reads import BlockReader
from distls.solvers.features import generator_parameters, generators
from distls.solvers.solver import State
from distls.storage.errors import ParameterError
from distls.workers.features.design import Design
from distls.workers.features.design_recipe import design_of, recipe_of

Fitting = TypeVar("Fitting", bound="DesignState")
Staged = TypeVar("Staged", bound="StagedState")
_PREFIX = "design_"


@dataclass
class DesignState(State):
    """Base of the states of methods that generate features."""

    # Of the features: `distls.workers.features.design_recipe.recipe_of`. Empty before they are known, and for the
    # rows themselves
    recipe: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)

    def split(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """See `State.split`; the arrays of the features are arrays of their own."""
        scalars, arrays = super().split()
        # A prefix keeps the arrays of the features apart from the fields of the state in one checkpoint.
        own = {f"{_PREFIX}{name}": array for name, array in scalars.pop("arrays").items()}
        return scalars, arrays | own

    @classmethod
    def join(cls, scalars: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        own = {name: array for name, array in arrays.items() if name.startswith(_PREFIX)}
        others = {name: array for name, array in arrays.items() if name not in own}
        inside = {name.removeprefix(_PREFIX): array for name, array in own.items()}
        return super().join(scalars | {"arrays": inside}, others)

    @property
    def design(self) -> Design:
        """The design of stage 0, from which those of all stages follow."""
        # Columns need no fitted arrays: seed and stage determine the block.
        if self.recipe.get("kind") == "columns":
            return Design(**{name: self.recipe[name] for name in ("kind", "size", "seed", "n_features")})
        return design_of(self.recipe, self.arrays)[0] if self.recipe else Design()

    def with_design(self, design: Design) -> Self:
        """Return the state with features of this design."""
        recipe, arrays = recipe_of(design, 1)
        return replace(self, recipe=recipe, arrays=arrays)


def _no_columns() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass
class StagedState(DesignState):
    """Base of the states of methods with a block of features for each stage."""

    orders: int = 0  # Orders made of the original features, one a pass over them or a block
    # shape (n_features,), or (block,) where each block has its own: The newest of them
    order: NDArray[np.int64] = field(default_factory=_no_columns)
    widths: NDArray[np.int64] = field(default_factory=_no_columns)  # shape (stages begun,): Features of each
    # shape (sum of widths,): Original features of all blocks; empty for random ones
    columns: NDArray[np.int64] = field(default_factory=_no_columns)

    def rows_of(self, stage: int) -> slice:
        """Return where the features of a stage are among those of all."""
        # Columns of different blocks may differ in number, so their places are sums of widths.
        first = int(self.widths[:stage].sum())
        return slice(first, first + int(self.widths[stage]))

    def design_of(self, stage: int) -> Design:
        """Return the features of a stage that has begun."""
        if not len(self.columns):
            return generators.design_at(self.design, stage, self.columns)
        columns = self.columns[self.rows_of(stage)]
        return replace(self.design, stage=stage, size=len(columns), columns=columns)

    def with_stage(self, design: Design, width: int) -> Self:
        """Return the state with the block of one more stage."""
        # Kept for all stages: predictions are recomputed, and the model made, from them.
        columns = self.columns if design.columns is None else np.append(self.columns, design.columns)
        return replace(self, widths=np.append(self.widths, width), columns=columns)


class OneBlock:
    """The features of a method with one block of them: the row itself (``features=none``), or generated ones.

    Raises ParameterError if a parameter is not used by the chosen features, or does not suit the data.
    """

    def __init__(self, params: Mapping[str, Any], problem: Problem) -> None:
        self._problem, self._n_features = problem, problem.shape[0]
        self.generated = params["features"] != "none"
        size = params["block_size"]
        if size is not None and not self.generated:
            raise ParameterError(
                f"block_size={size}: used with generated features only; leave it out, or ask for features=fourier"
            )
        self._params = {**params, "block_size": size or BLOCK_SIZE, "stages": 1}
        if self.generated:
            generator_parameters.check_features(self._params, self._n_features)
        else:
            generator_parameters.check_used(self._params)

    @property
    def width(self) -> int:
        """Features of the block."""
        return int(self._params["block_size"]) if self.generated else self._n_features

    @property
    def reads(self) -> float:
        """Reads of all rows before the first round."""
        return float(self._params["pca"] is not None)

    @property
    def preparation_bytes(self) -> int:
        """Bytes of a lane's result before the first round."""
        return generator_parameters.preparation_bytes(self._params, self._n_features) if self.generated else 0

    @property
    def work_bytes(self) -> int:
        """Bytes of a task for the features of a chunk of rows."""
        return generator_parameters.work_bytes(self._params, self._problem) if self.generated else 0

    def fitted(self, reader: BlockReader, executor: Executor) -> Design:
        """Fit the feature map: principal components, bandwidth, filters."""
        return generators.design_for(self._params, reader, executor, self._problem.seed)

    def prepared(self, state: Fitting, reader: BlockReader, executor: Executor) -> Fitting:
        """Return the state with the fitted features, and the reads that they took."""
        design = self.fitted(reader, executor)
        return replace(state.with_design(design), passes=state.passes + self.reads)

    def probe(self) -> Design:
        """Return a design of the same cost as the fitted one, without reading data."""
        if not self.generated:
            return Design()
        return generator_parameters.probe_design(self._params, self._n_features, self._problem.seed)


class StageBlocks(OneBlock):
    """The features of a method with a block of them for each stage: original or generated ones.

    Raises ParameterError as `OneBlock` does.
    """

    def __init__(self, params: Mapping[str, Any], problem: Problem) -> None:
        self._problem, self._n_features, self._params = problem, problem.shape[0], dict(params)
        self.generated = True
        generator_parameters.check_features(self._params, self._n_features)
        self.kind = kind = params["features"]
        self.original = kind in generator_parameters.ORIGINAL
        self.ranked = kind in generator_parameters.RANKED
        self._counted = kind in generator_parameters.COUNTED
        per_pass = generator_parameters.stages_per_pass(self._params, self._n_features)
        # stages that take their features from one order: with block-gradient every block changes the gradient
        self._per_order = 1 if kind == generator_parameters.BLOCK_GRADIENT else per_pass

    @property
    def width(self) -> int:
        """Features of a full block."""
        return generator_parameters.block_width(self._params, self._n_features)

    @property
    def order_reads(self) -> float:
        """Reads of all rows for orders of the original features."""
        # The gradient of a pass or block is a read of its own before its first stage.
        return float(-(-self._params["stages"] // self._per_order) if self.ranked else self._counted)

    @property
    def preparation_bytes(self) -> int:
        """Bytes of a lane's result besides those of the rounds."""
        return max(super().preparation_bytes, 8 * self._n_features * self._problem.shape[1] * self.ranked)

    def is_used_up(self, state: StagedState, stage: int) -> bool:
        """Return whether a stage needs a further order: a pass is over, or each block has its own."""
        drawn = self.kind == generator_parameters.REPLACED
        return self.original and not drawn and state.orders * self._per_order <= stage

    def ordered(self, state: Staged, reader: BlockReader, executor: Executor) -> Staged:
        """Return the state with an order that takes no round: drawn, or by the number of rows with a feature."""
        if self._counted and state.orders:
            # Frequencies do not change: the next pass takes the same order.
            return replace(state, orders=state.orders + 1)
        order = generators.column_order(self._params, reader, executor, self._problem.seed, state.orders)
        passes = state.passes + self._counted
        return replace(state, order=order, orders=state.orders + 1, passes=passes)

    def ranking(self, cross: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the order by a gradient; of one block alone where the stages after it have their own."""
        order = generators.gradient_order(cross)
        return order[: self.width] if self._per_order == 1 else order
