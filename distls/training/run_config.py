"""The configuration of a run, ``config.json``: what was asked for, and the digests by which it is known again."""

import hashlib
import logging
from functools import cache
from typing import Annotated

import msgspec

from distls.methods.method import Params
from distls.request import Request
from distls.solvers.status import Record
from distls.storage.dataset.dataset import is_dataset
from distls.storage.errors import FormatError
from distls.storage.filesystem.atomic import canonical_json
from distls.storage.filesystem.checksums import is_one_bit_off, is_sealed, sealed
from distls.storage.filesystem.paths import Place, place_of

FORMAT_VERSION = 1  # of config.json
# the options that say how the test files of `train` are read and judged
TESTED_BY = ("format", "on_error", "label_map", "label_level", "drop", "labels", "unknown_features")
_LOG = logging.getLogger(__name__)

_Path = Annotated[str, msgspec.Meta(pattern=r"\A[^\0]*\Z")]


class RunConfig(Request[_Path], frozen=True, kw_only=True):
    """The request of a fit, ``config.json``; the settings of the grid are checked by the method."""

    format_version: int = FORMAT_VERSION
    method: str
    dataset: _Path
    dataset_fingerprint: str
    grid: Annotated[list[Params], msgspec.Meta(min_length=1)]
    fold: int | None = None
    # of what it depends on beside; none in runs of earlier versions
    digests: dict[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.check_needs()

    def stored(self) -> dict[str, object]:
        """Return the members of the file, which names what only some runs have in these only."""
        keys = zip(self.__struct_encode_fields__, msgspec.structs.astuple(self), strict=True)
        members = {
            key: value
            for key, value in keys
            if key not in _OF_SOME or (value is not None and value is not False and value != {})
        }
        return sealed({**members, "request": self.makers})

    def ends_before(self, passes: float) -> bool:
        """Return whether a fit of so many passes has ended before its limit of passes, by a limit of its own."""
        return self.passes is not None and passes < (1 - 1e-9) * self.passes

    @property
    def makers(self) -> str:
        """The digest of what makes the states of a fit: checkpoints have it, limits do not change it."""
        makers = [self.method, self.dataset_fingerprint, self.seed, self.grid, self.fold]
        # as of earlier versions, where there is nothing beside
        named = [*makers, self.digests] if self.digests else makers
        named = named if self.parallelism is None else [*named, self.parallelism]
        return hashlib.sha256(canonical_json(named).encode()).hexdigest()[:16]


# What configurations name only where there is something to say.
_OF_SOME = {
    "selected_on", "fold", "calibrate", "calibration", "threshold_for", "reason", "refit", "trial", "digests",
    "as_published", "departures",
    "parallelism",  # 1 in runs of earlier versions, and of few partitions
}  # fmt: skip


def check_written(path: Place, config: Record, found: RunConfig) -> None:
    """Refuse the content of a configuration that was changed, but for limits and paths, which may be edited."""
    checksum, whole, request = config.get("crc32c"), is_sealed(config), config.get("request")
    if whole or (whole is None and request is None):  # the latter of earlier versions
        return
    # The digest is its own proof: of what makes the states nothing may be edited.
    if request != found.makers:
        raise FormatError(
            f"{path} was changed: this run was started with another method, data, seed or parameters "
            f"(digest {request}, now {found.makers}); put it back, or start a new run"
        )
    written = found.stored().keys() - {"crc32c"}
    if config.keys() != written or checksum is None or is_one_bit_off(config, checksum):
        raise FormatError(f"{path} does not match its checksum; put it back, or start a new run")
    _warn_once(f"{path} was edited: limits and paths are taken as they are now")


# a run's configuration is read several times
@cache
def _warn_once(text: str) -> None:
    _LOG.warning("%s", text)


def moved_along(data: str | Place, run: Place) -> Place:
    """Return where a data set of a run is: where it was, or beside the run if both were moved together."""
    place = place_of(data)
    beside = run.absolute().with_name(place.name)
    return beside if not place.exists() and is_dataset(beside) else place
