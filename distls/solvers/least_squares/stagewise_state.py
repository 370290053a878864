"""The state of stagewise regression, its blocks, and the model that they make.

The method is Algorithm 3 of least squares revisited.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.solvers.features.fitted_designs import StagedState
from distls.workers.features.design import Design
from distls.workers.features.design_recipe import recipe_of
from distls.workers.least_squares.block_task import Block
from distls.workers.prediction.predictor import LinearPredictor

Array = NDArray[np.float64]


def _nothing() -> Any:
    return np.empty((0, 0))


@dataclass
class StagewiseState(StagedState):
    """State between two rounds; the predictions in RUN/state follow from it."""

    stage: int = 0  # Blocks fitted
    version: int = 0  # Blocks in the kept predictions, the initial model being one
    # shape (n_features, k) or (0, 0): Weights of the initial model, where there is one: every model's
    # predictions start from its own
    base: NDArray[Any] = field(default_factory=_nothing)
    base_intercept: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))  # shape (k,)
    # shape (sum of widths, k): Weights of all blocks, in the order of their stages
    coefficients: NDArray[Any] = field(default_factory=_nothing)
    intercepts: NDArray[np.float64] = field(default_factory=_nothing)  # shape (stage, k)
    # shape (stage, k, k): Weights on the predictions before each block; (0, k, k) without calibration
    calibrations: NDArray[Any] = field(default_factory=_nothing)
    singular: int = 0  # Blocks whose Sigma was singular
    # Rounds done of the stage under way, where a stage takes several; the arrays that follow are its own
    inner: int = 0
    # shape (m, m): As `distls.solvers.least_squares.metric.second_moments` returns it: with an intercept, the
    # constant column is the first
    sigma: NDArray[np.float64] = field(default_factory=_nothing)
    # shape (m, k): Weights, the intercept in front where there is one
    iterate: NDArray[np.float64] = field(default_factory=_nothing)
    # shape (m, k): Where the next gradient is taken
    point: NDArray[np.float64] = field(default_factory=_nothing)
    # Of a link of unbounded slope: the objective at the iterate, and L
    value: float = 0.0
    lipschitz: float = 1.0

    @property
    def has_base(self) -> bool:
        """Whether there is an initial model."""
        return len(self.base) > 0

    @property
    def blocks(self) -> int:
        """Blocks fitted, and the initial model."""
        return self.stage + self.has_base


def base_of(state: StagewiseState) -> list[Block]:
    """Return the initial model as a block, if there is one."""
    return [Block(Design(), state.base, state.base_intercept)] if state.has_base else []


def block_of(state: StagewiseState, stage: int) -> Block:
    """Return the block that was fitted in a stage: weights on its features, then on the predictions before it."""
    parts = [state.coefficients[state.rows_of(stage)], *state.calibrations[stage : stage + 1]]
    return Block(state.design_of(stage), np.concatenate(parts), state.intercepts[stage])


def append_block(state: StagewiseState, design: Design, width: int, weights: Array, intercept: Array) -> StagewiseState:
    """Return the state after one more stage, of a block of `width` features.

    The weights, shape (width, k) or (width + k, k), end with those of the predictions before the block.
    """
    k = len(intercept)
    weights = weights.astype(state.coefficients.dtype)
    calibrations = state.calibrations
    if calibrations.shape[1:] == (k, k):
        # The first block of a model has no predictions before it: its calibration is zero.
        own = weights[width:] if len(weights) > width else np.zeros((k, k), weights.dtype)
        calibrations = np.concatenate([calibrations, own[None]])
    return replace(
        state.with_stage(design, width),
        stage=state.stage + 1,
        coefficients=np.concatenate([state.coefficients, weights[:width]]),
        intercepts=np.concatenate([state.intercepts, intercept[None]]),
        calibrations=calibrations,
        inner=0,
        sigma=np.empty((0, 0)),
        iterate=np.empty((0, 0)),
        point=np.empty((0, 0)),
    )


def assemble(state: StagewiseState, n_features: int, per_model: int) -> LinearPredictor:
    """Return the predictor of all complete models, or of the only one under way, and of the initial model.

    Scores are the mean over models of `per_model` stages each.
    """
    # An incomplete model of an average would be far from the others; a single one is published as it stands.
    n_stages = max(state.stage // per_model * per_model, min(state.stage, per_model))
    n_models = max(1, n_stages // per_model)
    ends = np.cumsum(state.widths)[:n_stages]
    total = np.empty((int(ends[-1]) if n_stages else 0, state.coefficients.shape[1]))
    intercept, base = np.zeros(total.shape[1]), np.zeros(state.base.shape)
    # calibrations are multiplied out, V_t = W_t (I + C_t+1) ... (I + C_T): scores are linear in all features
    # From the last stage back, since each stage's calibration acts on all predictions before it.
    for stage in reversed(range(n_stages)):
        if (stage + 1) % per_model == 0 or stage == n_stages - 1:
            later = np.eye(total.shape[1])
        rows = slice(int(ends[stage] - state.widths[stage]), int(ends[stage]))
        total[rows] = state.coefficients[rows].astype(np.float64) @ later
        intercept += state.intercepts[stage] @ later
        if len(state.calibrations):
            later = later + state.calibrations[stage].astype(np.float64) @ later
        if state.has_base and stage % per_model == 0:
            base += state.base @ later
            intercept += state.base_intercept @ later
    if not n_stages and state.has_base:
        base, intercept = state.base.astype(np.float64), state.base_intercept
    return _weights(state, total / n_models, intercept / n_models, base / n_models, n_features)


def _weights(state: StagewiseState, total: Array, intercept: Array, base: Array, n_features: int) -> LinearPredictor:
    """Return a plain model where all weights are those of original features, else the recipe of the blocks."""
    dtype = state.coefficients.dtype
    if len(state.columns) or not len(total):
        plain = base if state.has_base else np.zeros((n_features, total.shape[1]))
        # `add.at`, since a column may occur in several blocks.
        np.add.at(plain, state.columns[: len(total)], total)
        return LinearPredictor(plain.astype(dtype), intercept)
    features, arrays = recipe_of(state.design, len(total) // int(state.widths[0]))
    recipe: dict[str, Any] = {"n_features": n_features, "features": features}
    if state.has_base:
        recipe["rows"], total = True, np.concatenate([base, total])
    return LinearPredictor(total.astype(dtype), intercept, recipe, arrays)
