"""The duals of a fit's rows: a file for each partition and version in RUN/state, and which of them are current.

Half of the duals of a hinge or more are zero: such an array is stored as a bit for each dual and the values of the
others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import StateLostError
from distls.storage.filesystem.atomic import subfolders, sweep
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.filesystem.safe_read import as_format_error, convert_json, read_json
from distls.storage.model.bundle import read_bundle, write_bundle
from distls.storage.rows import CsrRows
from distls.storage.temporary.row_state import RowState, StateFolder, owner_of

# Losses load numba: not for those who only ask which duals there are.
if TYPE_CHECKING:
    from distls.workers.losses.loss import Loss

DualFile = tuple[int, int]  # partition and version

_NAMES = ("loss", "n_outputs", "dtype")
_ARRAYS = ("versions", "before", "mix", "up", "down")
_SPARSE = 0.5  # share of nonzero duals below which zeros are left out


class _PublishedPoint(msgspec.Struct, frozen=True):
    """The names in the description of a published point."""

    loss: str
    n_outputs: int
    dtype: Literal["float32", "float64"]
    dataset: str
    owner: str = ""  # as of earlier versions
    binary: bool = False  # likewise: two classes have the second's duals alone


class _Published(msgspec.Struct):
    """What is read of a run's ``status.json``."""

    weights_sha256: str | None = None


@dataclass(frozen=True, eq=False)
class DualPoint:
    """The duals of all rows, as they are stored.

    Those of partition p are ``mix[p]`` times its version ``versions[p]`` plus the rest times ``before[p]``; version 0
    is all zeros.
    """

    folder: str
    loss: str
    n_outputs: int  # duals a row
    dtype: str
    versions: NDArray[np.int64]  # shape (n_partitions,), and the next two
    before: NDArray[np.int64]
    mix: NDArray[np.float64]
    up: NDArray[np.float64]  # shape (n_outputs,): as in `Balance`, and the next
    down: NDArray[np.float64]
    mirrored: bool = False  # what is stored are the duals of the second class, and the first has minus these

    @property
    def form(self) -> Loss:
        """The loss whose duals these are."""
        from distls.workers.losses.loss_registry import loss_named

        return loss_named(self.loss)

    @property
    def files(self) -> set[DualFile]:
        """The files that the point consists of."""
        return dual_files(self.versions, self.before, self.mix)

    def read(self, index: int, n_rows: int) -> NDArray[Any]:
        """Return the duals of a partition, shape (n_rows, n_outputs); raise StateLostError if they are lost."""
        shape, share = (n_rows, 1 if self.mirrored else self.n_outputs), float(self.mix[index])
        duals = _read(self.folder, index, int(self.versions[index]), shape, self.dtype)
        # Convex combinations of two feasible points are feasible.
        if share != 1.0:
            old = _read(self.folder, index, int(self.before[index]), shape, self.dtype)
            duals = old + duals.dtype.type(share) * (duals - old)
        return np.hstack([-duals, duals]) if self.mirrored else duals


def _read(folder: str, index: int, version: int, shape: tuple[int, int], dtype: str) -> NDArray[Any]:
    """Return the duals of a partition as stored, writable; raise StateLostError if they are lost."""
    # Version 0 is never stored: a fit starts from zeros.
    if not version:
        return np.zeros(shape, dtype)
    stored = RowState(folder).read(index, version)
    if stored.shape == shape and stored.dtype == dtype:
        return stored
    size, kind = shape[0] * shape[1], np.dtype(dtype)
    # Bits, rounded up to bytes, then the values of the nonzero duals.
    n_bits = -(-size // 8)
    if stored.dtype == np.uint8 and stored.ndim == 1 and len(stored) >= n_bits:
        occupied = np.unpackbits(stored[:n_bits], count=size).view(bool)
        values = stored[n_bits:]
        # A file of other rows could have the right length of bits by chance; the number of values settles it.
        if len(values) == kind.itemsize * np.count_nonzero(occupied):
            duals = np.zeros(size, kind)
            duals[occupied] = np.frombuffer(values.tobytes(), kind)
            return duals.reshape(shape)
    raise StateLostError(f"{folder}: the duals of partition {index} are not those of {shape[0]} rows")


def write_duals(folder: str, index: int, version: int, duals: NDArray[Any]) -> None:
    """Store the duals of a partition; older versions stay."""
    flat = duals.reshape(-1)
    # Exact zeros: a hinge's duals rest at the ends of their domain.
    occupied = flat != 0
    if np.count_nonzero(occupied) < _SPARSE * flat.size:
        duals = np.concatenate([np.packbits(occupied), flat[occupied].view(np.uint8)])
    RowState(folder).put(index, version, duals)


def dual_files(versions: NDArray[np.int64], before: NDArray[np.int64], mix: NDArray[np.float64]) -> set[DualFile]:
    """Return the files that duals consist of; version 0 has none."""
    current = {(p, version) for p, version in enumerate(versions.tolist()) if version}
    mixed = {(p, int(before[p])) for p in np.flatnonzero(mix != 1.0).tolist() if before[p]}
    return current | mixed


def publish_duals(point: DualPoint, fingerprint: str) -> None:
    """Leave the duals of a fit that has ended in RUN/state, with what is needed to read them."""
    arrays = {name: getattr(point, name) for name in _ARRAYS}
    names = {name: getattr(point, name) for name in _NAMES} | {"owner": owner_of(point.folder)}
    # The description last: without it the point does not exist.
    write_bundle(place_of(point.folder) / "point", "duals", {**names, "dataset": fingerprint}, arrays)


def drop_others(point: DualPoint) -> None:
    """Remove what a run no longer needs once its status says that it has ended: it may be kept for long."""
    files = RowState(point.folder)
    for index, version in files.stored() - point.files:
        files.drop(index, version)
    sweep(files.folder)


def published_duals(run: str, fingerprint: str) -> DualPoint | None:
    """Return the dual point of a run that has ended, or None if it has none of this data set.

    That of a run that has chosen among settings is in the child run of the setting that won.
    """
    root = place_of(run)
    places = (place for place in (root, *_won(root)) if (place / "state" / "point" / "bundle.json").exists())
    return next((_point_in(place / "state", place, fingerprint) for place in places), None)


def _won(run: Place) -> list[Place]:
    """Return the child runs with the weights that a run has published."""
    children = run / "children"
    if not children.is_dir():
        return []
    digest = _digest_of(run)
    # By the digest of the weights: names of children say nothing about which one won.
    return [child for child in subfolders(children) if digest is not None and _digest_of(child) == digest]


def _digest_of(run: Place) -> str | None:
    """Return the digest of the weights that a run has published, None without any."""
    file = run / "status.json"
    if not file.exists():
        return None
    with as_format_error(str(file)):
        return read_json(file, _Published, run).weights_sha256


def _point_in(folder: Place, run: Place, fingerprint: str) -> DualPoint | None:
    names, arrays = read_bundle(folder / "point", "duals", run)
    with as_format_error(str(folder / "point")):
        found = convert_json(names, _PublishedPoint)
        # Duals of other rows prove nothing about these.
        if found.dataset != fingerprint:
            return None
        n = len(arrays["versions"])
        sound = all(arrays[name].shape == (n,) for name in ("versions", "before", "mix"))
        if not sound or not all(arrays[name].shape == (found.n_outputs,) for name in ("up", "down")):
            raise ValueError("the shapes of its arrays")
        # Mirrored, what is the first class's above zero is the second's below.
        up, down = (arrays[name].astype(np.float64) for name in ("up", "down"))
        return DualPoint(
            folder=StateFolder.of(folder, found.owner),
            loss=found.loss,
            mirrored=found.binary,
            n_outputs=2 if found.binary else found.n_outputs,
            dtype=found.dtype,
            versions=arrays["versions"].astype(np.int64),
            before=arrays["before"].astype(np.int64),
            mix=arrays["mix"].astype(np.float64),
            up=np.concatenate([down, up]) if found.binary else up,
            down=np.concatenate([up, down]) if found.binary else down,
        )


def numeric_targets(y: Any, k: int) -> Any:
    """Return targets as dual functions take them: class codes, or numbers (n, k), of label sets their indicators."""
    from distls.workers.losses.targets import indicators

    return indicators(y, k).astype(np.float64) if isinstance(y, CsrRows) else y
