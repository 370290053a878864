"""A loss, a penalty, a method and a format of another package, each as small as it can be."""

from dataclasses import dataclass

import numpy as np

from distls.ingestion.formats.format_registry import register as register_format
from distls.ingestion.request.format import Format
from distls.ingestion.request.format_options import FormatOptions
from distls.ingestion.request.source_plan import SourcePlan, shared_options
from distls.ingestion.request.source_start import start_of
from distls.methods.method import Method, Parameter
from distls.methods.method_registry import register_method
from distls.methods.parameters import fit_intercept, number, one_of
from distls.methods.stochastic import STOCHASTIC_SOLVER
from distls.methods.stochastic_parameters import LANES_AND_ROWS
from distls.storage.errors import BadInputError
from distls.workers.ingestion.parsing.text_blocks import TextItem
from distls.workers.ingestion.records.reader import BlockReader
from distls.workers.ingestion.records.record_batch import ArrayHeader, ReadOptions, RowBlock
from distls.workers.losses.loss import GRADIENT_IN_G, Loss
from distls.workers.losses.loss_registry import register_loss
from distls.workers.losses.row_functions import row_gradient_of
from distls.workers.penalties.penalty import Penalty
from distls.workers.penalties.penalty_registry import register_penalty
from distls.workers.penalties.penalty_rows import row_penalty_of, row_prox_of, scale, sum_of_squares
from distls.workers.simd.class_sums import first_max
from distls.workers.stochastic.sgd import SgdUpdate
from distls.workers.stochastic.step_choice import StepChoice


class ToySquared(Loss):
    """Half the squared distance of the scores from the unit vector of the class."""

    __slots__ = ()

    name = "toy_squared"
    separable = True

    def values(self, scores, y):
        return 0.5 * np.square(self.gradient(scores, y)).sum(axis=1)

    def gradient(self, scores, y):
        return scores - np.eye(scores.shape[1])[y]

    def lipschitz(self, k):
        return 1.0


@row_gradient_of(ToySquared)
def _row(z, scale, y, g):
    value = 0.0
    for c in range(len(g)):
        slope = scale * np.float64(z[c]) - (1.0 if c == y else 0.0)
        value += 0.5 * slope * slope
        g[c] = slope
    return value, GRADIENT_IN_G, first_max(z)


class ToyRidge(Penalty):
    """``|W|_F^2``, twice the usual ridge."""

    __slots__ = ()

    name = "toy-ridge"

    def value(self, w, rho):
        return float(np.square(w).sum())

    def conjugate(self, v, alpha, rho):
        return 1.0, float(np.square(v).sum()) / (4.0 * alpha)

    def zero_from(self, gradient, rho):
        return np.inf


@row_penalty_of(ToyRidge)
def _value(w, rho):
    return sum_of_squares(w)


@row_prox_of(ToyRidge)
def _prox(v, mu, rho, out):
    scale(v, 1.0 / (1.0 + 2.0 * mu), out)


def toy_steps(stats, params, n_lanes, *, warm):
    """Steps of one size, in workers that import this module by its name."""
    return StepChoice(SgdUpdate(**stats.objective(), schedule="constant", eta0=params["eta0"]))


TOY_METHOD = Method(
    name="toy-sgd",
    summary="stochastic gradients with one size of steps",
    paper="Robbins and Monro 1951",
    parameters=(
        Parameter("loss", "crammer_singer", one_of("crammer_singer"), "the loss"),
        Parameter("eta0", 0.1, number(above=0.0), "size of steps"),
        Parameter("alpha", 0.0, number(0.0), "L2 strength, 0 or more"),
        fit_intercept(False),
        *LANES_AND_ROWS,
    ),
    solver=STOCHASTIC_SOLVER,
    steps=f"{__name__}:toy_steps",
    targets=("class",),
)


@dataclass(frozen=True)
class ToyReadOptions(ReadOptions):
    width: int = 0


def toy_blocks(item, options, progress, block_bytes):
    """Yield the rows of a file: a line is a label and numbers, with a slash between them."""
    with item.file.open() as file:
        lines = file.read().splitlines()[progress.offset :]
    for first in range(0, len(lines), 50):
        try:
            block = np.array([line.split(b"/") for line in lines[first : first + 50]], float)
        except ValueError as error:
            raise BadInputError(f"{item.file.path}: {error}") from None
        yield RowBlock(progress.offset + first, block[:, 1:], None, block[:, :1])


class ToyFormat(Format):
    name = "toy"
    options = FormatOptions

    def recognises(self, start):
        return start.content[1:2] == b"/"

    def plan(self, files, read, options, like):
        first = start_of(files[0]).split(b"\n")[0]
        width = first.count(b"/")
        return SourcePlan(
            self.name, BlockReader(toy_blocks), tuple(files),
            tuple(TextItem(n, file, 0, file.size) for n, file in enumerate(files)),
            tuple(file.size for file in files), ToyReadOptions(width=width, **shared_options(options)),
            (ArrayHeader(-1, width, sparse=False),), estimate=float(sum(file.size for file in files)),
        )  # fmt: skip


register_loss(ToySquared())
register_penalty(ToyRidge())
register_method(TOY_METHOD)
register_format(ToyFormat())
