"""Source files in place of a dataset: ingested like a model's training data into a temporary folder."""

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from distls.facts import said, warn_caller
from distls.storage.dataset.dataset import Dataset, is_dataset, open_dataset
from distls.storage.errors import DistlsError, FormatError, ParameterError, StorageError
from distls.storage.filesystem.atomic import describe_os_error, remove_tree, unsynced
from distls.storage.filesystem.paths import Place, StorePath, place_of
from distls.storage.model.model import LinearModel

Scorable = str | Place | Dataset | Sequence[str | Place]
Notify = Callable[[str], None]

# Of options that are not those of a format, which have none.
_DEFAULTS = {"format": "auto", "unknown_features": "error", "on_error": "stop", "labelled": False}
_FEW_BYTES = 2**18


def are_sources(data: Scorable) -> bool:
    """Return whether `data` are files to ingest, not a dataset."""
    if isinstance(data, Dataset):
        return False
    if in_memory(data):
        return True
    if not isinstance(data, (str, Path, StorePath)):
        return len(data) != 1 or are_sources(data[0])
    path = place_of(data)
    return path.is_file() or (path.suffix == ".zarr" and path.is_dir() and not is_dataset(path))


def sources_of(data: Scorable) -> list[Place]:
    """Return the paths that are read."""
    if isinstance(data, Dataset):
        return [data.path]
    if isinstance(data, (str, Path, StorePath)):
        return [place_of(data)]
    return [] if in_memory(data) else [place_of(each) for each in data]


def check_there(path: str | Place) -> None:
    """Raise FormatError for a path of this machine that is neither a file nor a folder."""
    place = place_of(path)
    if isinstance(place, Path) and not place.exists():
        raise FormatError(f"{path}: no such file or data set")
    if isinstance(place, Path) and place.is_fifo():
        remedy = "save its content, or give - for standard input"
        raise FormatError(f"{path}: a pipe, which can be read once only; {remedy}")


def in_memory(data: Any) -> bool:
    """Return whether `data` is an array or a matrix."""
    return hasattr(data, "shape")


def source_options(data: Scorable, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of source files that are not left at their defaults.

    Raises ParameterError for any of them where there are no source files.
    """
    asked = {name: value for name, value in given.items() if value not in (None, _DEFAULTS.get(name))}
    if asked and not are_sources(data):
        raise ParameterError(f"{next(iter(asked))} is for source files; a data set says itself what is in it")
    return asked


@contextlib.contextmanager
def opened_like(
    model: LinearModel, data: Scorable, *, name: str, beside: Place, **options: Any
) -> Iterator[tuple[Dataset, tuple[str, ...]]]:
    """Open a dataset, or ingest source files in their order into a temporary one; yield it, and notices for `pass_on`.

    The model determines how sources are read, classes, width and fitted transforms; messages call it `name`. The
    temporary dataset is named after `beside`, which workers must reach. Options and errors are those of
    `distls.ingest`.
    """
    if isinstance(data, Dataset):
        yield data, ()
    elif not are_sources(data):
        (path,) = [data] if isinstance(data, (str, Path, StorePath)) else data
        check_there(path)
        yield open_dataset(path), ()
    else:
        beside = beside.absolute()
        temporary = beside.with_name(f"{beside.name}.{uuid.uuid4().hex[:8]}.partial")
        try:
            # a busy disk takes longer to sync the small files of few rows than all else
            with unsynced():
                notices = _ingest(data, temporary, model, name, options)
            with _named_as_given(temporary, data):
                yield open_dataset(temporary), notices
        finally:
            remove_tree(temporary)


def _is_small_table(data: Scorable) -> bool:
    """Return whether all sources are small files of CSV, of which a value takes a byte or more."""
    places = sources_of(data) if are_sources(data) else []
    paths = [place for place in places if isinstance(place, Path) and place.suffix in (".csv", ".tsv")]
    try:
        return 0 < len(paths) == len(places) and sum(path.stat().st_size for path in paths) <= _FEW_BYTES
    except OSError:
        return False


@contextlib.contextmanager
def _named_as_given(temporary: Place, data: Scorable) -> Iterator[None]:
    """Name the user's files in messages about the temporary dataset."""
    try:
        yield
    except DistlsError as error:
        files: list[object] = [*sources_of(data)] or ["X"]
        shown = str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
        if str(temporary) not in str(error):
            raise
        raise type(error)(str(error).replace(str(temporary), shown)) from None


def pass_on(notices: Sequence[str], notify: Notify | None) -> None:
    """Pass notices to `notify`, or issue them as UserWarnings of the code that called distls."""
    for notice in notices:
        if notify is None:
            warn_caller(notice)
        else:
            notify(said(notice))


def row_type(model: LinearModel) -> str:
    """Return the type of numbers in which the rows of a model are stored."""
    return "float64" if model.source.get("dtype") == "float64" else "float32"


def _ingest(
    data: Scorable, temporary: Place, model: LinearModel, name: str, options: dict[str, Any]
) -> tuple[str, ...]:
    # imported here: most fits and scores never ingest
    from distls.ingestion.ingest import ingest
    from distls.ingestion.request.like import like_model

    if model.target == "multilabel" and not options.get("unlabelled"):
        options = {**options, "multilabel": True}
    # nobody asks where the rows of most temporary data sets came from
    # they are read once: trying a codec for few rows takes longer than all else
    compress = "none" if _is_small_table(data) else "auto"
    options = {"row_numbers": False, "dtype": row_type(model), "compress": compress, **options}
    try:
        return ingest(data, temporary, like=like_model(model, name), shuffle=False, **options).notices
    except StorageError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        doing = f"the sources could not be ingested into {temporary}"
        remedy = f'make room there, or ingest them elsewhere with --like "{name}"'
        raise describe_os_error(error.__cause__, doing, remedy) from None
