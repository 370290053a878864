"""Places in object stores, with the part of pathlib's interface that the formats use.

A place is a `pathlib.Path` or a `StorePath`. A store has no folders: one exists while an object's name begins with it.
An object appears whole or not at all, and cannot be renamed: a group of objects is whole once the last one is written.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from distls.storage.errors import ParameterError
from distls.storage.filesystem.object_store import ask, client, explained, obstore, refusals

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SCHEMES = ("s3", "gs", "az", "http", "https")

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_UNSPEAKABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_SQUASHED = re.compile(rf"({'|'.join(SCHEMES)}):/[^/]")
_PART_BYTES = 16 * 2**20  # larger objects are sent in parts of this size
_CHUNK_BYTES = 2**20

Result = TypeVar("Result")


class _Stat(NamedTuple):
    st_size: int


@dataclass(frozen=True, order=True)
class StorePath:
    """An object, or a prefix in the role of a folder, in an object store."""

    root: str  # scheme and bucket: ``s3://bucket``
    key: str  # name in it, without slashes at its ends; empty for the bucket itself

    def __str__(self) -> str:
        return f"{self.root}/{self.key}" if self.key else self.root

    def __fspath__(self) -> str:
        """Refuse to be taken for a path."""
        # the caller would look for a file of that name on this machine
        raise TypeError(f"{self} is in an object store and not a file of this machine")

    # -- names -------------------------------------------------------------------------------------------

    def __truediv__(self, name: str) -> StorePath:
        return StorePath(self.root, f"{self.key}/{name}" if self.key else name)

    def joinpath(self, *names: str) -> StorePath:
        """Return the place `names` below this one."""
        return functools.reduce(StorePath.__truediv__, names, self)

    @property
    def parts(self) -> tuple[str, ...]:
        """The bucket, then the parts of the key."""
        return (self.root, *self.key.split("/")) if self.key else (self.root,)

    @property
    def name(self) -> str:
        """Last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """Ending of the name, with its dot."""
        return Path(self.name).suffix

    @property
    def parent(self) -> StorePath:
        """The place above; of a bucket, itself."""
        return StorePath(self.root, self.key.rpartition("/")[0])

    def with_name(self, name: str) -> StorePath:
        """Return the sibling `name`."""
        if not self.key:
            raise ValueError(f"{self}: a bucket has no name to change")
        return self.parent / name

    def with_suffix(self, suffix: str) -> StorePath:
        """Return the place with another ending."""
        return self.with_name(str(Path(self.name).with_suffix(suffix)))

    def relative_to(self, other: StorePath) -> str:
        """Return the part of the key below `other`."""
        start = f"{other.key}/" if other.key else ""
        if self.root != other.root or not self.key.startswith(start):
            raise ValueError(f"{self} is not below {other}")
        return self.key.removeprefix(start)

    def absolute(self) -> StorePath:
        """Return this place, which means the same everywhere."""
        return self

    def resolve(self) -> StorePath:
        """Return this place, which has no links in it."""
        return self

    # -- what is there -----------------------------------------------------------------------------------

    def stat(self) -> _Stat:
        """Return the size of an object, or raise FileNotFoundError."""
        return _Stat(int(self._ask(lambda store, key: obstore().head(store, key))["size"]))

    def is_file(self) -> bool:
        """Return whether there is an object of this name."""
        try:
            return bool(self.key) and self.stat().st_size >= 0
        except FileNotFoundError:
            return False

    def is_dir(self) -> bool:
        """Return whether there are objects below this name."""
        # One object is enough to know, where a listing of all may be long.
        found: list[Any] = self._ask(
            lambda store, key: next(iter(obstore().list(store, key or None, chunk_size=1)), [])
        )
        return any(each["path"] != self.key for each in found)

    def exists(self) -> bool:
        """Return whether there is an object of this name, or one below it."""
        return self.is_file() or self.is_dir()

    def iterdir(self) -> Iterator[StorePath]:
        """Yield the places right below this one."""
        found = self._listed()
        yield from (StorePath(self.root, each["path"]) for each in found["objects"])
        yield from (StorePath(self.root, prefix.rstrip("/")) for prefix in found["common_prefixes"])

    def folders(self) -> list[StorePath]:
        """Return the places right below this one that have others below them, sorted."""
        prefixes = self._listed()["common_prefixes"]
        return sorted(StorePath(self.root, prefix.rstrip("/")) for prefix in prefixes)

    def objects(self) -> list[StorePath]:
        """Return all objects below this place, sorted."""
        found = self._ask(lambda store, key: [o for some in obstore().list(store, key or None) for o in some])
        return sorted(StorePath(self.root, each["path"]) for each in found)

    def _listed(self) -> Any:
        return self._ask(lambda store, key: obstore().list_with_delimiter(store, key or None))

    # -- reading -----------------------------------------------------------------------------------------

    def read_whole(self, room: Callable[[int], NDArray[np.uint8]]) -> NDArray[np.uint8]:
        """Read the object into the array that `room` gives for its size, and return that."""

        def read(store: Any, key: str) -> NDArray[np.uint8]:
            found = obstore().get(store, key)
            into, done = room(int(found.meta["size"])), 0
            for chunk in found.stream(min_chunk_size=_CHUNK_BYTES):
                into.data[done : done + len(chunk)] = memoryview(chunk)
                done += len(chunk)
            # Short answers happen when connections are cut: retried as lost ones.
            if done != len(into):
                raise ConnectionError(f"the answer ended after {done} of {len(into)} bytes")
            return into

        return self._ask(read)

    def read_bytes(self) -> bytes:
        """Return the object's bytes."""
        return self._ask(lambda store, key: bytes(obstore().get(store, key).bytes()))

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the object's text."""
        return self.read_bytes().decode(encoding)

    def read_range(self, start: int, stop: int) -> memoryview:
        """Return the bytes `start` to `stop` - 1, fewer where the object ends before."""
        if stop <= start:
            return memoryview(b"")

        def read(store: Any, key: str) -> memoryview:
            try:
                return memoryview(obstore().get_range(store, key, start=start, end=stop))
            except obstore().exceptions.BaseError as error:
                if "status code: 416" not in str(error):
                    raise
                return memoryview(b"")  # it ends before

        return self._ask(read)

    # -- writing -----------------------------------------------------------------------------------------

    def write_parts(self, *parts: bytes | memoryview) -> None:
        """Write the concatenated parts as one object, atomically."""
        # Empty parts break requests of several parts.
        views = [memoryview(part).cast("B") for part in parts if memoryview(part).nbytes]
        # A single request is atomic and cheaper.
        if sum(map(len, views)) <= _PART_BYTES:
            content = b"".join(views)
            self._ask(lambda store, key: obstore().put(store, key, content, use_multipart=False))
        else:
            self._ask(lambda store, key: obstore().put(store, key, iter(views), chunk_size=_PART_BYTES))

    def write_bytes(self, content: bytes) -> None:
        """Write an object."""
        self.write_parts(content)

    def write_text(self, text: str, encoding: str = "utf-8") -> None:
        """Write an object."""
        self.write_parts(text.encode(encoding))

    def copy_from(self, source: Path | StorePath) -> None:
        """Copy another object of the same bucket, or a file, to this object."""
        if isinstance(source, StorePath):
            self._ask(lambda store, key: obstore().copy(store, source.key, key))
        else:
            self._ask(lambda store, key: obstore().put(store, key, source, chunk_size=_PART_BYTES))

    def upload(self) -> Upload:
        """Return a file to be written in a ``with`` block; the object appears when that ends without error."""
        return Upload(self)

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a store has no folders."""

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Delete the object."""
        if not missing_ok:
            self.stat()
        self._ask(lambda store, key: obstore().delete(store, key))

    def rmdir(self) -> None:
        """Do nothing: a store has no folders."""

    def remove(self) -> None:
        """Delete everything below this name."""
        # an empty key is a prefix of everything
        if not self.key:
            raise ValueError(f"{self}: a whole bucket is not removed")
        keys = [place.key for place in self.objects()]
        if keys:
            self._ask(lambda store, _key: obstore().delete(store, keys))

    def _ask(self, request: Callable[[Any, str], Result]) -> Result:
        return ask(self.root, self.key, request)


class Upload(io.BufferedIOBase):
    """A file to write an object; a ``with`` block that ends in an error leaves none."""

    def __init__(self, place: StorePath) -> None:
        self._place = place
        self._writer = obstore().open_writer(client(place.root), place.key, buffer_size=_PART_BYTES)

    def writable(self) -> bool:
        """Return true."""
        return True

    def write(self, content: Any, /) -> int:
        """Send bytes, or keep them to be sent."""
        with self._explained():
            self._writer.write(bytes(content))
        return memoryview(content).nbytes

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            with self._explained():
                self._writer.close()
        self.close()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except refusals() as error:
            raise explained(self._place.root, self._place.key, error) from None


Place = Path | StorePath


def place_of(place: str | os.PathLike[str] | StorePath) -> Place:
    """Return the place of a URL or path; raise ParameterError for a URL that is not supported."""
    if isinstance(place, StorePath):
        return place
    text = os.fspath(place)
    match = _URL.fullmatch(text)
    if match is None:
        if not isinstance(place, str) and _SQUASHED.match(text):
            raise ParameterError(f"{text}: a pathlib.Path drops a slash of URLs; give it as a text")
        return Path(place)
    scheme, rest = match[1].lower(), match[2]
    if _UNSPEAKABLE.search(rest):
        raise ParameterError(f"{text!r}: no control characters in URLs, and no bytes that are not UTF-8")
    if scheme == "file" and rest.startswith("/"):
        return Path(rest)
    if scheme not in SCHEMES:
        raise ParameterError(f"{scheme}://...: expected a path, file:/// or {', '.join(f'{s}://' for s in SCHEMES)}")
    bucket, _, key = rest.partition("/")
    names = [name for name in key.split("/") if name not in ("", ".")]
    if "@" in bucket:
        raise ParameterError(f"{scheme}://...@...: no names or keys in URLs; give credentials in the environment")
    if not bucket or ".." in names or set("?#") & set(rest):
        # what follows a "?" may be the signature of a URL that was signed
        shown = f"{text.partition('?')[0]}?..." if "?" in text else text
        raise ParameterError(f"{shown}: expected {scheme}://BUCKET/NAME, without '..', '?' and '#'")
    return StorePath(f"{scheme}://{bucket}", "/".join(names))
