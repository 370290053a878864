"""The losses by name, and by what they can do: `losses_with(curvature=True, target="class")`.

A loss is added by its file and a line here, or from outside by ``register_loss(MyLoss())``, which every process that
trains or evaluates with it has to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from distls.storage.errors import ParameterError
from distls.workers.losses.crammer_singer import CrammerSinger
from distls.workers.losses.links import Cauchit, Link, LogOfProbability, Poisson, Probit
from distls.workers.losses.loss import Floats, Loss, Target
from distls.workers.losses.multiclass_squared_hinge import MulticlassSquaredHinge
from distls.workers.losses.multitask_squared_hinge import MultitaskSquaredHinge
from distls.workers.losses.ovr_hinge import OvrHinge
from distls.workers.losses.ovr_log import OvrLog
from distls.workers.losses.ovr_squared_hinge import OvrSquaredHinge
from distls.workers.losses.perceptron import Perceptron
from distls.workers.losses.row_functions import has_row_function
from distls.workers.losses.softmax import Softmax
from distls.workers.losses.squared import Squared

_losses: dict[str, Loss] = {}
LOSSES: Mapping[str, Loss] = MappingProxyType(_losses)

# scores that are already probabilities, under the name that `scored_as` returns for them
_SIMPLEX = LogOfProbability()


def register_loss(loss: Loss) -> Loss:
    """Make a loss known by its name, and return it.

    Raises ValueError if another loss has the name, it has no row function, or a `Link` contradicts itself.
    """
    taken = _losses.get(loss.name, loss)
    if type(taken) is not type(loss) or loss.name == _SIMPLEX.name:
        raise ValueError(f"there is a loss {loss.name} already")
    if isinstance(loss, Link):
        loss.check()
    for form in () if isinstance(loss, Link) else (loss, loss.single_output, loss.log_loss):
        if form is not None and not has_row_function(form, "row_gradient"):
            raise ValueError(f"{type(form).__name__} needs a function under @row_gradient_of")
    _losses[loss.name] = loss
    return loss


for _loss in (
    MulticlassSquaredHinge(),
    MultitaskSquaredHinge(),
    Softmax(),
    CrammerSinger(),
    Perceptron(),
    OvrLog(),
    OvrHinge(),
    OvrSquaredHinge(),
    Squared(),
    Probit(),
    Cauchit(),
    Poisson(),
):
    register_loss(_loss)


def loss_named(name: str) -> Loss:
    """Return the loss of that full name; raise ParameterError if there is none."""
    if name not in _losses:
        raise ParameterError(f"loss={name}: expected one of {', '.join(_losses)}")
    return _losses[name]


def link_names() -> tuple[str, ...]:
    """Return the names of the losses that are given by a link."""
    return tuple(name for name, loss in _losses.items() if isinstance(loss, Link))


def row_loss_for(name: str, *, single: bool = False) -> Loss:
    """Return the loss as kernels take it, with `single` its form for two classes with one output."""
    loss = _losses[name]
    form = loss.single_output if single else loss
    if form is None:
        raise ValueError(f"{name} needs an output for each class")
    return form


def losses_with(
    *,
    target: Target | None = None,
    curvature: bool | None = None,
    coordinate_descent: bool | None = None,
    smooth: bool | None = None,
    separable: bool | None = None,
    single_output: bool | None = None,
    stochastic: bool | None = None,
    probabilities: bool | None = None,
    dual: bool | None = None,
    first: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Return the names of the losses with all of these properties; None does not restrict them.

    Parameters
    ----------
    target : {"class", "multilabel", "continuous"}, optional
        A kind of target that the loss suits.
    curvature : bool, optional
        Second derivatives of a row: `row_curvature`.
    coordinate_descent : bool, optional
        The row functions `add_score_gradient`, `add_score_curvature` and `score_change`; with ``target="multilabel"``
        those of sets of labels.
    smooth, separable, stochastic : bool, optional
        As the attributes of `Loss`.
    single_output : bool, optional
        Two classes may have one output.
    probabilities : bool, optional
        Scores give probabilities.
    dual : bool, optional
        The row function `dual_step`, with the conjugate.
    first : tuple of str
        Names to be listed first.
    """
    names = [
        name
        for name, loss in _losses.items()
        if (target is None or target in loss.targets)
        and curvature in (None, has_row_function(loss, "row_curvature"))
        and coordinate_descent in (None, _has_descent(loss, sets=target == "multilabel"))
        and smooth in (None, loss.smooth)
        and separable in (None, loss.separable)
        and single_output in (None, loss.single_output is not None)
        and stochastic in (None, loss.stochastic)
        and probabilities in (None, loss.log_loss is not None)
        and dual in (None, has_row_function(loss, "dual_step"))
    ]
    return tuple(sorted(names, key=lambda name: first.index(name) if name in first else len(first)))


def _has_descent(loss: Loss, *, sets: bool = False) -> bool:
    """Return whether a loss has the row functions of block coordinate descent."""
    needed = ("add_score_gradient", "add_score_curvature", "score_change")
    return all(has_row_function(loss, name, sets=sets) for name in needed)


def scorer(name: str) -> Loss:
    """Return the loss of a model's evaluation: the log loss of its probabilities, or else its own.

    `name` is that of a loss, or "simplex" where scores are probabilities.
    """
    loss = _SIMPLEX if name == _SIMPLEX.name else _losses[name]
    return loss if loss.log_loss is None else loss.log_loss  # an empty tuple is false


def has_probabilities(name: str) -> bool:
    """Return whether the scores of a model trained with a loss give probabilities; `name` as in `scorer`."""
    return name == _SIMPLEX.name or (name in _losses and _losses[name].log_loss is not None)


def probabilities(name: str, scores: Floats) -> Floats:
    """Overwrite scores (n, k) by class probabilities and return them; `name` as in `scorer`.

    Raises ValueError if the loss has no probabilities.
    """
    return (_SIMPLEX if name == _SIMPLEX.name else _losses[name]).probabilities(scores)
