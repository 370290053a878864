"""Generators of features from outside (GEN of Algorithm 3, least squares revisited), known by a name.

`register_generator(name, generator)` makes one known in this process: models store the name, so each process that
trains or predicts with it registers it. Those of distls are in `distls.workers.features.design`.
"""

import functools
import re
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from distls.workers.runtime.rng import Purpose, rng

BUILT_IN = ("fourier", "logits", "polynomials")
_TAKEN = ("all", "none", "original", "columns", "masks", "random-masks", "kmeans-masks", *BUILT_IN)
NAME = r"^[a-z][a-z0-9_-]{0,63}\Z"
_CHECKED = np.random.default_rng(0).standard_normal((16, 5))


def check_name(kind: str, name: str) -> None:
    """Raise ValueError unless something that is registered may have this name."""
    if re.match(NAME, name) is None:
        raise ValueError(f"{kind} {name!r}: a name has lower-case letters, digits, - and _, a letter first")


class Generator(Protocol):
    """Makes a block of features of each row by itself."""

    def draw(self, random: np.random.Generator, n_inputs: int, size: int) -> tuple[NDArray[Any], ...]:
        """Return the arrays of a block of `size` features of rows with `n_inputs`; `random` is the stage's own."""
        ...

    def features(self, x: NDArray[Any], *drawn: NDArray[Any]) -> NDArray[Any]:
        """Return the features of dense rows (n, n_inputs), shape (n, size), by what `draw` returned."""
        ...


_generators: dict[str, Generator] = {}


def generator_names() -> tuple[str, ...]:
    """Return the names of all generators but those of filters."""
    return (*BUILT_IN, *_generators)


def registered_generator(name: str) -> Generator | None:
    """Return the registered generator of that name, if there is one."""
    return _generators.get(name)


def register_generator(name: str, generator: Generator) -> None:
    """Make a generator of features known by a name, a value of the parameter `features`, in this process.

    Parameters
    ----------
    name : str
        Lower-case letters, digits, ``-`` and ``_``, a letter first.
    generator : Generator
        Its features must be finite, each row's its own, and depend on what is drawn alone; rows are left as they are.

    Raises
    ------
    ValueError
        Another generator has the name, or this one is not of that form.
    """
    check_name("generator", name)
    if name in _TAKEN or _generators.get(name, generator) is not generator:
        raise ValueError(f"there are features {name} already")
    first, again = (generator.draw(np.random.default_rng(1), _CHECKED.shape[1], 3) for _ in range(2))
    given = _CHECKED.copy()
    found = generator.features(given, *first)
    if not np.array_equal(given, _CHECKED):
        # they may be those of the cache
        raise ValueError(f"generator {name}: it changes the rows that it is given")
    if np.shape(found) != (len(_CHECKED), 3) or not np.isfinite(found).all():
        raise ValueError(f"generator {name}: expected a finite array of shape (n_rows, size)")
    if not np.array_equal(found, generator.features(_CHECKED.copy(), *again)):
        raise ValueError(f"generator {name}: its features are not a function of what is drawn")
    # a feature that mixes rows would depend on the batch
    alone = np.concatenate([generator.features(row[None].copy(), *first) for row in _CHECKED])
    if not np.allclose(alone, found, rtol=1e-9, atol=1e-12):
        raise ValueError(f"generator {name}: the features of a row depend on other rows")
    _generators[name] = generator


# Two stages are in use at a time, as of the built-in ones.
@functools.lru_cache(maxsize=2)
def drawn_by(name: str, seed: int, stage: int, n_inputs: int, size: int) -> tuple[NDArray[Any], ...]:
    """Return what a registered generator draws for a stage, the same in every process."""
    return _generators[name].draw(rng(seed, Purpose.FEATURES, stage), n_inputs, size)
