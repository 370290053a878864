"""Out-of-core, distributed training of linear, generalised-linear and multi-class models.

The public names are loaded on first use (PEP 562), so that a worker process that imports `distls.workers`
never imports the driver, the estimators or scikit-learn.
"""

import importlib
from typing import TYPE_CHECKING, Any

from distls import facts as _facts

__version__ = "0.1.0"

_HOMES = {
    "AdalineClassifier": "distls.estimators.stochastic",
    "AnnDataOptions": "distls.ingestion.formats.anndata",
    "ArrayOptions": "distls.ingestion.formats.arrays",
    "CSGDRegressor": "distls.estimators.regressors",
    "CalibratedLeastSquaresClassifier": "distls.estimators.least_squares",
    "CsvOptions": "distls.ingestion.formats.csv",
    "DistlsError": "distls.storage.errors",
    "DocumentOptions": "distls.ingestion.formats.documents",
    "DualLinearSVC": "distls.estimators.dual_ascent",
    "DualLogisticRegression": "distls.estimators.dual_ascent",
    "DualRidge": "distls.estimators.dual_ascent",
    "ElasticNet": "distls.estimators.sparse",
    "GeneralizedLeastSquaresClassifier": "distls.estimators.least_squares",
    "GeneralizedLeastSquaresRegressor": "distls.estimators.regressors",
    "History": "distls.training.callbacks",
    "Lasso": "distls.estimators.sparse",
    "LineProgress": "distls.training.callbacks",
    "MCIDClassifier": "distls.estimators.stochastic",
    "MLflowTracker": "distls.training.trackers",
    "MultiTaskLasso": "distls.estimators.sparse",
    "ParquetOptions": "distls.ingestion.formats.parquet",
    "SGDQNClassifier": "distls.estimators.stochastic",
    "SparseLinearSVC": "distls.estimators.sparse",
    "SparseLogisticRegression": "distls.estimators.sparse",
    "SparseMulticlassClassifier": "distls.estimators.sparse",
    "StagewiseClassifier": "distls.estimators.least_squares",
    "StochasticClassifier": "distls.estimators.stochastic",
    "SvmlightOptions": "distls.ingestion.formats.svmlight",
    "TensorBoardTracker": "distls.training.trackers",
    "VwOptions": "distls.ingestion.formats.vw",
    "add_columns": "distls.columns.sharding",
    "append": "distls.ingestion.append",
    "batches": "distls.storage.dataset.stored_rows",
    "calibrate": "distls.evaluation.calibrate",
    "compare": "distls.reporting.comparison",
    "evaluate": "distls.evaluation.evaluate",
    "export": "distls.interchange.export",
    "fit": "distls.training.fitting",
    "generate": "distls.synthetic.generation",
    "import_model": "distls.interchange.import_model",
    "info": "distls.reporting.describe",
    "ingest": "distls.ingestion.ingest",
    "list_methods": "distls.methods.method_registry",
    "load_estimator": "distls.estimators.from_run",
    "load_model": "distls.serving.fitted_model",
    "open_dataset": "distls.storage.dataset.dataset",
    "plan": "distls.planning.cluster_plan",
    "predict": "distls.prediction.predict",
    "report": "distls.reporting.run_report",
    "resume": "distls.training.fitting",
    "to_arrays": "distls.storage.dataset.stored_rows",
    "to_dask": "distls.execution.dask.lazy_rows",
    "to_frame": "distls.storage.dataset.stored_rows",
    "train": "distls.training.from_files",
}

__all__ = ["__version__", *_HOMES]

if TYPE_CHECKING:
    from distls.columns.sharding import add_columns as add_columns
    from distls.estimators.dual_ascent import DualLinearSVC as DualLinearSVC
    from distls.estimators.dual_ascent import DualLogisticRegression as DualLogisticRegression
    from distls.estimators.dual_ascent import DualRidge as DualRidge
    from distls.estimators.from_run import load_estimator as load_estimator
    from distls.estimators.least_squares import (
        CalibratedLeastSquaresClassifier as CalibratedLeastSquaresClassifier,
    )
    from distls.estimators.least_squares import (
        GeneralizedLeastSquaresClassifier as GeneralizedLeastSquaresClassifier,
    )
    from distls.estimators.least_squares import StagewiseClassifier as StagewiseClassifier
    from distls.estimators.regressors import CSGDRegressor as CSGDRegressor
    from distls.estimators.regressors import (
        GeneralizedLeastSquaresRegressor as GeneralizedLeastSquaresRegressor,
    )
    from distls.estimators.sparse import ElasticNet as ElasticNet
    from distls.estimators.sparse import Lasso as Lasso
    from distls.estimators.sparse import MultiTaskLasso as MultiTaskLasso
    from distls.estimators.sparse import SparseLinearSVC as SparseLinearSVC
    from distls.estimators.sparse import SparseLogisticRegression as SparseLogisticRegression
    from distls.estimators.sparse import SparseMulticlassClassifier as SparseMulticlassClassifier
    from distls.estimators.stochastic import AdalineClassifier as AdalineClassifier
    from distls.estimators.stochastic import MCIDClassifier as MCIDClassifier
    from distls.estimators.stochastic import SGDQNClassifier as SGDQNClassifier
    from distls.estimators.stochastic import StochasticClassifier as StochasticClassifier
    from distls.evaluation.calibrate import calibrate as calibrate
    from distls.evaluation.evaluate import evaluate as evaluate
    from distls.execution.dask.lazy_rows import to_dask as to_dask
    from distls.ingestion.append import append as append
    from distls.ingestion.formats.anndata import AnnDataOptions as AnnDataOptions
    from distls.ingestion.formats.arrays import ArrayOptions as ArrayOptions
    from distls.ingestion.formats.csv import CsvOptions as CsvOptions
    from distls.ingestion.formats.documents import DocumentOptions as DocumentOptions
    from distls.ingestion.formats.parquet import ParquetOptions as ParquetOptions
    from distls.ingestion.formats.svmlight import SvmlightOptions as SvmlightOptions
    from distls.ingestion.formats.vw import VwOptions as VwOptions
    from distls.ingestion.ingest import ingest as ingest
    from distls.interchange.export import export as export
    from distls.interchange.import_model import import_model as import_model
    from distls.methods.method_registry import list_methods as list_methods
    from distls.planning.cluster_plan import plan as plan
    from distls.prediction.predict import predict as predict
    from distls.reporting.comparison import compare as compare
    from distls.reporting.describe import info as info
    from distls.reporting.run_report import report as report
    from distls.serving.fitted_model import load_model as load_model
    from distls.storage.dataset.dataset import open_dataset as open_dataset
    from distls.storage.dataset.stored_rows import batches as batches
    from distls.storage.dataset.stored_rows import to_arrays as to_arrays
    from distls.storage.dataset.stored_rows import to_frame as to_frame
    from distls.storage.errors import DistlsError as DistlsError
    from distls.synthetic.generation import generate as generate
    from distls.training.callbacks import History as History
    from distls.training.callbacks import LineProgress as LineProgress
    from distls.training.fitting import fit as fit
    from distls.training.fitting import resume as resume
    from distls.training.from_files import train as train
    from distls.training.trackers import MLflowTracker as MLflowTracker
    from distls.training.trackers import TensorBoardTracker as TensorBoardTracker


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def _as_card(title: str, facts: Any) -> str:
    from distls.reporting.markup import card

    return card(title, facts)


_facts.as_card = _as_card


def __dir__() -> list[str]:
    return sorted(__all__)
