"""Out-of-core, distributed training of linear, generalised-linear and multi-class models.

The public names are loaded on first use (PEP 562), so that a worker process that imports `distls.workers`
never imports the driver, the estimators or scikit-learn.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "AdalineClassifier": "distls.estimators",
    "CSGDRegressor": "distls.regressors",
    "CalibratedLeastSquaresClassifier": "distls.least_squares_estimators",
    "DistlsError": "distls.storage.errors",
    "GeneralizedLeastSquaresClassifier": "distls.least_squares_estimators",
    "GeneralizedLeastSquaresRegressor": "distls.regressors",
    "MCIDClassifier": "distls.estimators",
    "SGDQNClassifier": "distls.estimators",
    "StagewiseClassifier": "distls.least_squares_estimators",
    "StochasticClassifier": "distls.estimators",
    "add_columns": "distls.sharding",
    "evaluate": "distls.evaluation",
    "fit": "distls.fitting",
    "generate": "distls.generation",
    "ingest": "distls.ingestion",
    "load_model": "distls.storage.model",
    "open_dataset": "distls.storage.dataset",
    "predict": "distls.prediction",
    "resume": "distls.fitting",
}

__all__ = ["__version__", *_HOMES]

if TYPE_CHECKING:
    from distls.estimators import AdalineClassifier as AdalineClassifier
    from distls.estimators import MCIDClassifier as MCIDClassifier
    from distls.estimators import SGDQNClassifier as SGDQNClassifier
    from distls.estimators import StochasticClassifier as StochasticClassifier
    from distls.evaluation import evaluate as evaluate
    from distls.fitting import fit as fit
    from distls.fitting import resume as resume
    from distls.generation import generate as generate
    from distls.ingestion import ingest as ingest
    from distls.least_squares_estimators import (
        CalibratedLeastSquaresClassifier as CalibratedLeastSquaresClassifier,
    )
    from distls.least_squares_estimators import (
        GeneralizedLeastSquaresClassifier as GeneralizedLeastSquaresClassifier,
    )
    from distls.least_squares_estimators import StagewiseClassifier as StagewiseClassifier
    from distls.prediction import predict as predict
    from distls.regressors import CSGDRegressor as CSGDRegressor
    from distls.regressors import GeneralizedLeastSquaresRegressor as GeneralizedLeastSquaresRegressor
    from distls.sharding import add_columns as add_columns
    from distls.storage.dataset import open_dataset as open_dataset
    from distls.storage.errors import DistlsError as DistlsError
    from distls.storage.model import load_model as load_model


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
