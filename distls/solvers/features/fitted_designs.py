"""Generated features of a fit: the state that holds them, and the choice of a method that has one block of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

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
        """See `State.join`."""
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

    @property
    def width(self) -> int:
        """Features of a full block."""
        return generator_parameters.block_width(self._params, self._n_features)

    @property
    def order_reads(self) -> float:
        """Reads of all rows for orders of the original features."""
        kind, stages = self._params["features"], self._params["stages"]
        if kind not in generator_parameters.RANKED:
            return float(kind in generator_parameters.COUNTED)
        per_pass = generator_parameters.stages_per_pass(self._params, self._n_features)
        # The gradient of a pass or block is a read of its own before its first stage.
        return float(-(-stages // (1 if kind == generator_parameters.BLOCK_GRADIENT else per_pass)))

    @property
    def preparation_bytes(self) -> int:
        """Bytes of a lane's result besides those of the rounds."""
        ranked = self._params["features"] in generator_parameters.RANKED
        gradient = 8 * self._n_features * self._problem.shape[1] * ranked
        return max(super().preparation_bytes, gradient)
