"""Checkpoints: where a fit stands after a round, as a bundle. The end of a fit is one of them."""

from dataclasses import asdict
from typing import Any

from numpy.typing import NDArray

from distls.solvers.loop import Progress, Standing
from distls.solvers.solver import Fitted, S, State
from distls.solvers.status import Record
from distls.storage.errors import MismatchError
from distls.storage.filesystem.paths import Place
from distls.storage.filesystem.safe_read import as_format_error, convert_json
from distls.storage.model.bundle import read_arrays, read_bundle
from distls.workers.prediction.predictor import LinearPredictor

_BEST = "best_so_far_"  # arrays of the best predictor under patience, among those of the state


def packed(done: Standing[State], request: str) -> tuple[Record, dict[str, NDArray[Any]]]:
    """Return the attributes and arrays of a checkpoint; `request` is the digest of what makes the states of a fit."""
    scalars, arrays = done.state.split()
    told: Record = {
        "state": scalars, "request": request, "progress": asdict(done.progress), "record": done.record,
    }  # fmt: skip
    if done.best is not None:
        predictor = done.best.predictor
        told["best"] = {"alpha": done.best.alpha, "recipe": predictor.recipe}
        kept = {"weights": predictor.coefficients, "intercept": predictor.intercept, **predictor.arrays}
        arrays |= {f"{_BEST}{name}": array for name, array in kept.items()}
    return told, arrays


def read_checkpoint(path: Place, run: Place, state_type: type[S], request: str) -> Standing[S]:
    """Read where a fit stood; raise MismatchError for a checkpoint of another request, CorruptDataError if damaged."""
    told, arrays = read_bundle(path, "checkpoint", run)
    if (own := told.get("request")) != request:
        raise MismatchError(f"{path}: a checkpoint of another fit (digest {own}, expected {request})")
    kept = {name.removeprefix(_BEST): arrays.pop(name) for name in list(arrays) if name.startswith(_BEST)}
    with as_format_error(str(path)):
        best = None
        if "best" in told:
            weights, intercept = kept.pop("weights"), kept.pop("intercept")
            best = Fitted(LinearPredictor(weights, intercept, told["best"]["recipe"], kept), told["best"]["alpha"])
        progress = convert_json(told["progress"], Progress)
        record = convert_json(told["record"], Record)
        return Standing(state_type.join(told["state"], arrays), progress, record, best)


def round_of(path: Place) -> int:
    """Return the round of a checkpoint; raises as `read_checkpoint`."""
    told, _ = read_arrays(path, "checkpoint", set())
    with as_format_error(str(path)):
        return int(told["state"]["round"])
