"""The parameters of `stagewise` with their defaults, and which of them an inner update uses."""

from __future__ import annotations

from typing import Any

from distls.solvers.features import generator_parameters
from distls.storage.errors import ParameterError
from distls.workers.losses.loss_registry import loss_named, losses_by

# Orders of the original features, and what the generator of blocks calls them.
ORDERS = {
    "random": "columns",
    "replacement": "columns-replaced",
    "frequency": generator_parameters.FREQUENCY,
    "rareness": generator_parameters.RARENESS,
    "gradient": "gradient",
    "block-gradient": generator_parameters.BLOCK_GRADIENT,
}
ALGORITHM_2 = "cls"
_STEPS, _INNER_ROUNDS = 50, 3
_BASIS = "1+2+3"
_RANDOM_STAGES = 16


def takes_steps(inner: str) -> bool:
    """Return whether an inner update is several steps of Algorithm 1: of any link but the identity."""
    return not loss_named(losses_by("inner")[inner]).quadratic


def with_defaults(params: dict[str, Any], n_features: int) -> dict[str, Any]:
    """Return all parameters with their defaults, named as in `distls.solvers.features.generator_parameters`.

    Raises ParameterError for a parameter that the setting does not use.
    """
    original, inner = params["features"] == "original", params["inner"]
    # Refuse what has no effect: a typing error in an option must not go unnoticed.
    calibrates, steps = inner == ALGORITHM_2, takes_steps(inner)
    links = " or ".join(name for name in losses_by("inner") if takes_steps(name))
    _refuse(params, "order", "features=original", used=original)
    _refuse(params, "models", "random features", used=not original)
    _refuse(params, "models", "another inner update than cls", used=not calibrates)
    _refuse(params, "init", "another inner update than cls", used=not calibrates)
    _refuse(params, "inner_rounds", f"inner={links} or {ALGORITHM_2}", used=steps or calibrates)
    _refuse(params, "accelerate", f"inner={links}", used=steps)
    _refuse(params, "basis", f"inner={ALGORITHM_2}", used=calibrates)
    chosen = dict(params)
    chosen["features"] = ORDERS[params["order"] or "random"] if original else params["features"]
    chosen["inner_rounds"] = params["inner_rounds"] or (
        _STEPS if steps else _INNER_ROUNDS if calibrates else 1
    )
    chosen["basis"] = params["basis"] or _BASIS
    chosen["models"] = params["models"] or 1
    per_pass = generator_parameters.stages_per_pass(chosen, n_features)
    # By default a pass over the original features; random ones have no end.
    chosen["stages"] = params["stages"] or (per_pass if original else _RANDOM_STAGES)
    return chosen


def _refuse(params: dict[str, Any], name: str, only: str, *, used: bool) -> None:
    if params[name] is not None and not used:
        raise ParameterError(f"{name}={params[name]}: used with {only} only; leave it out")
