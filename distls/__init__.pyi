"""The public names, each from the module that it is loaded from on first use."""

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
from distls.estimators.regressors import GeneralizedLeastSquaresRegressor as GeneralizedLeastSquaresRegressor
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

__version__: str
