"""The losses by name, and by what they can do: `losses_with(curvature=True, target="class")`.

A loss is added by its file and a line here, or from outside by ``register_loss(MyLoss())``, which every process that
trains or evaluates with it has to run.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import numpy as np

from distls.storage.errors import ParameterError
from distls.workers.losses.binary_losses import BinaryShare
from distls.workers.losses.crammer_singer import CrammerSinger, Perceptron
from distls.workers.losses.links import Cauchit, Link, LogOfProbability, Poisson, Probit
from distls.workers.losses.loss import Floats, Loss, Target
from distls.workers.losses.multiclass_squared_hinge import MulticlassSquaredHinge
from distls.workers.losses.ovr_hinges import MultitaskSquaredHinge, OvrHinge, OvrSquaredHinge
from distls.workers.losses.ovr_log import OvrLog
from distls.workers.losses.row_functions import has_row_function
from distls.workers.losses.softmax import Softmax
from distls.workers.losses.squared import Squared

_losses: dict[str, Loss] = {}
LOSSES: Mapping[str, Loss] = MappingProxyType(_losses)
_binary: dict[str, Loss] = {BinaryShare.name: BinaryShare()}  # forms of two classes, which no user asks for

# scores that are already probabilities, under the name that `scored_as` returns for them
_SIMPLEX = LogOfProbability()


def register_loss(loss: Loss) -> Loss:
    """Make a loss known by its name, and return it.

    Raises ValueError if another loss has the name, it has no row function, or a `Link` contradicts itself.
    """
    taken = _losses.get(loss.name, loss)
    # The same class may be registered again, as modules are imported more than once in a cluster.
    if type(taken) is not type(loss) or loss.name == _SIMPLEX.name:
        raise ValueError(f"there is a loss {loss.name} already")
    if isinstance(loss, Link):
        loss.check()
    # A link has no kernels, so nothing to look for.
    for form in () if isinstance(loss, Link) else (loss, loss.binary, loss.log_loss):
        if form is not None and not has_row_function(form, "row_gradient"):
            raise ValueError(f"{type(form).__name__} needs a function under @row_gradient_of")
    return _known(loss)


def _known(loss: Loss) -> Loss:
    """Enter a loss that has been checked; those of this package are checked by its tests, not at each start."""
    _losses[loss.name] = loss
    # Models name the form they were trained with, so it has to be found by its name.
    if loss.binary is not None:
        _binary[loss.binary.name] = loss.binary
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
    _known(_loss)


def loss_named(name: str) -> Loss:
    """Return the loss of that full name, also a form of two classes; raise ParameterError if there is none."""
    if name not in _losses and not is_binary(name):
        raise ParameterError(f"loss={name}: expected one of {', '.join(_losses)}")
    return _losses[name] if name in _losses else _binary[name]


def is_binary(name: str) -> bool:
    """Return whether a loss is a form of two classes with one output."""
    return name in _binary


def binary_form(loss: Loss) -> Loss:
    """Return the form of two classes of a loss, itself if it has none."""
    return loss if loss.binary is None else loss.binary


def losses_by(parameter: str) -> dict[str, str]:
    """Return the losses of the least-squares methods by their name there, a value of `link` or `inner`."""
    found: dict[str, str] = {}
    for name, loss in _losses.items():
        link = () if loss.link_name is None else (loss.link_name,)
        found |= dict.fromkeys(link if parameter == "link" else loss.inner_names, name)
    return found


def loss_elsewhere(name: str, *, separable: bool) -> Loss:
    """Return the loss that has this name in another program; of two the one that is separable, or the other.

    Raises KeyError if there is none.
    """
    found = [loss for loss in _losses.values() if name in loss.elsewhere]
    if not found:
        raise KeyError(name)
    return next((loss for loss in found if loss.separable == separable), found[0])


def _has(*functions: str) -> Callable[[Loss, bool], bool]:
    """Return the test of row functions, of sets of labels where the second argument says so."""
    return lambda loss, sets: all(has_row_function(loss, name, sets=sets) for name in functions)


_DESCENT = ("add_score_gradient", "add_score_curvature", "score_change")
# what a method may require of a loss -> the test, given also whether targets are sets of labels; what one without it
# is said to lack
_CAPABILITIES: dict[str, tuple[Callable[[Loss, bool], bool], str]] = {
    "slopes": (lambda loss, _: has_row_function(loss, "row_gradient"), "it has no gradient of a row"),
    "curvature": (lambda loss, _: has_row_function(loss, "row_curvature"), "it has no second derivatives"),
    "coordinate_descent": (_has(*_DESCENT), "it has no derivatives in a column of scores"),
    "dual": (lambda loss, _: has_row_function(loss, "dual_step"), "it has no dual step"),
    "second_order": (
        lambda loss, _: type(loss).curvature is not Loss.curvature,
        "it has no matrix of second derivatives",
    ),
    "smooth": (lambda loss, _: loss.smooth, "its gradient is not Lipschitz continuous"),
    "separable": (lambda loss, _: loss.separable, "it is no sum over the outputs"),
    "stochastic": (lambda loss, _: loss.stochastic, "the step sizes are not chosen for its gradients"),
    "probabilities": (lambda loss, _: loss.log_loss is not None, "it has no probabilities"),
    "quadratic": (lambda loss, _: loss.quadratic, "it is not quadratic"),
}


def losses_with(*, target: Target | None = None, **required: bool) -> tuple[str, ...]:
    """Return the names of the losses with all of these properties.

    Parameters
    ----------
    target : {"class", "multilabel", "continuous"}, optional
        A kind of target that the loss suits.
    **required : bool
        Whether it has the property: ``slopes`` (`row_gradient`), ``curvature`` (`row_curvature`),
        ``coordinate_descent`` (`add_score_gradient`, `add_score_curvature` and `score_change`; with
        ``target="multilabel"`` those of sets of labels), ``dual`` (`dual_step`, with the conjugate),
        ``probabilities``, ``second_order`` (`Loss.curvature`), and ``smooth``,
        ``separable``, ``stochastic``, ``quadratic`` as `Loss` has them.
    """
    return tuple(name for name in _losses if not lacks(name, target=target, **required))


def lacks(name: str, *, target: Target | None = None, **required: bool) -> str:
    """Return what a loss lacks of what is required, as in `losses_with`; nothing if it has all, or is not known."""
    loss = _losses.get(name)
    if loss is None:
        return ""
    if target is not None and target not in loss.targets:
        return f"it is not for {target} targets"
    # Not "truth": a method may also require that a loss lacks something.
    for capability, wanted in required.items():
        test, without = _CAPABILITIES[capability]
        if test(loss, target == "multilabel") != wanted:
            return without if wanted else f"it is {capability.replace('_', ' ')}"
    return ""


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return the short names of some losses, each with the first of them that has it."""
    found: dict[str, str] = {}
    for name in names:
        for alias in _losses[name].aliases:
            found.setdefault(alias, name)
    return found


def scorer(name: str) -> Loss:
    """Return the loss of a model's evaluation: the log loss of its probabilities, or else its own.

    `name` is that of a loss, or "simplex" where scores are probabilities.
    """
    loss = _SIMPLEX if name == _SIMPLEX.name else loss_named(name)
    return loss if loss.log_loss is None else loss.log_loss  # an empty tuple is false


def has_probabilities(name: str) -> bool:
    """Return whether the scores of a model trained with a loss give probabilities; `name` as in `scorer`."""
    known = name in _losses or is_binary(name)
    return name == _SIMPLEX.name or (known and loss_named(name).log_loss is not None)


def probabilities(name: str, scores: Floats) -> Floats:
    """Return the class probabilities of scores (n, k), which may be overwritten; `name` as in `scorer`.

    Raises ValueError if the loss has no probabilities.
    """
    return (_SIMPLEX if name == _SIMPLEX.name else loss_named(name)).probabilities(scores)


def class_scores(name: str, scores: Floats) -> Floats:
    """Return scores with a column for each class, see `Loss.of_classes`; `name` as in `scorer`."""
    return scores if scores.shape[1] > 1 else loss_named(name).of_classes(scores)


def decision_of(name: str, scores: Floats) -> Floats:
    """Return the number (n,) whose sign decides between two classes; `name` as in `scorer`."""
    # Half a score against minus half: the score itself, to the bit.
    both = class_scores(name, scores)
    return np.asarray(both[:, 1] - both[:, 0])
