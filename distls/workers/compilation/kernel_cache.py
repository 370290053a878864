"""The cache of compiled kernels on disk, keyed by their sources.

Numba's own cache looks at the file of a kernel alone, by path and time. Here an entry is named by a digest of the
kernel's *import closure*: its file and every file of the package that it imports, directly or not. An edit anywhere in
it makes a new entry, an edit elsewhere none, and two installations of the same sources share entries. What is damaged
or cannot be written is compiled anew: the cache only saves time.
"""

import fcntl
import functools
import hashlib
import logging
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import types
from numba.core.runtime import rtsys

from distls.storage.filesystem.atomic import describe_os_error
from distls.storage.filesystem.private_folder import NotPrivateError, private_folder, temporary_home
from distls.workers.compilation.compile_clock import COMPILATION
from distls.workers.compilation.entry_files import DamagedEntryError, EntryFiles
from distls.workers.compilation.private_hooks import CacheOfKernel, when_compiled

_LOG = logging.getLogger(__name__)
# imports of a kernel's file from this package: the two folders whose files are compiled into kernels
_IMPORT = re.compile(rb"^\s*from (distls\.(?:workers|storage)[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_LONGEST_COMPILATION = 60.0  # seconds; the slowest kernel takes about ten on a core of its own
_POLL_SECONDS = 0.05
_WORD = re.compile(rb"\w+")
# What stores kernels does not change them: no part of a closure.
_STORE = "distls.workers.compilation.kernel_cache"
# Files of other versions are not looked at: their classes may be others. The first is that of our files.
_COMPILER = f"2-{numba.__version__}-{llvmlite.__version__}"
_DAMAGED = "%s: a damaged file among compiled kernels; they are compiled again"
_NOT_KEPT = "%s"
_REMEDY = "each process compiles its own; NUMBA_CACHE_DIR names another folder"
_TOLD: set[str] = set()
_FOLDERS = {
    "distls.storage": Path(__file__).resolve().parents[2] / "storage",
    "distls.workers": Path(__file__).resolve().parents[1],
}
_VARIABLE = "DISTLS_COMPILING_NOTICE"
_PATIENCE_SECONDS = 1.0
_TEXT = "compiling kernels, once for this machine; this takes from seconds to a minute ..."


class CompilingNotice:
    """Logs the line once, when this process has compiled for a second, unless another process has said it.

    Silent where the environment has ``DISTLS_COMPILING_NOTICE=0``, as commands with ``--quiet`` have.
    """

    def __init__(self) -> None:
        self._spent, self._began, self._told = 0.0, 0.0, False
        self._timer: threading.Timer | None = None
        self._lock: int | None = None

    def begin(self, folder: str) -> None:
        """Note that a kernel whose results are kept in `folder` is being compiled."""
        if self._told or self._timer is not None:
            return
        self._began = time.monotonic()
        # Seconds that earlier kernels took count: many short compilations are a long wait too.
        self._timer = threading.Timer(max(_PATIENCE_SECONDS - self._spent, 0.0), self._tell, (folder,))
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """Note that it is compiled."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._spent += time.monotonic() - self._began

    def _tell(self, folder: str) -> None:
        self._told = True
        if os.environ.get(_VARIABLE, "1") != "0" and self._is_first(folder):
            _LOG.warning(_TEXT)

    def _is_first(self, folder: str) -> bool:
        """Return whether no other living process has said it; workers of a cluster compile at the same time."""
        try:
            self._lock = os.open(os.path.join(folder, "notice.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            # Never released: the notice is for the whole life of this process.
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            pass
        return True


_NOTICE = CompilingNotice()


@functools.cache
def kernel_folder() -> str | None:
    """Return the folder of compiled kernels; None if they cannot be cached."""
    return cache_folder("kernels")


def cache_folder(name: str) -> str | None:
    """Return folder `name` in the first writable cache folder; None if there is none, or others can write to it.

    Candidates are NUMBA_CACHE_DIR, the user's cache folder and a temporary one. Numba unpickles the files there:
    whoever can write to it runs programs as this user.
    """
    if os.environ.get("DISTLS_NUMBA_CACHE", "1") == "0":
        return None
    try:
        return next(filter(None, (_writable(home, name) for home in _homes())), None)
    except NotPrivateError as error:
        remedy = "compiled kernels are not kept; set NUMBA_CACHE_DIR to a folder of your own"
        # `warn` would print a line of the source as well
        warnings.warn_explicit(f"{error}; {remedy}", UserWarning, "distls", 0, module=__name__)
        return None


def _homes() -> list[Path]:
    named = [os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME"), str(Path.home() / ".cache")]
    return [*(Path(root) / "distls" for root in filter(None, named)), temporary_home()]


def _writable(home: Path, name: str) -> str | None:
    try:
        path = private_folder(private_folder(home) / name)
    except NotPrivateError:
        raise
    except OSError:
        return None
    return str(path) if os.access(path, os.W_OK) else None


class KernelCache(CacheOfKernel):
    """The cache of one kernel: an index of its compiled variants and a file for each, in one flat folder."""

    def __init__(self, function: Callable[..., Any], folder: str) -> None:
        super().__init__(function, _base_name(function), folder)
        self._lock_path = os.path.join(folder, f"{self._impl.filename_base}.lock")
        self._lock: int | None = None
        _CACHES[function] = self

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load a compiled variant; if another process is compiling this kernel, wait for its result."""
        if not self._enabled:
            return None
        # What is loaded needs the runtime alone, none of the registries of what is compiled, which take a tenth of a
        # second.
        rtsys.initialize(target_context)
        found = self._loaded(sig, target_context, mend=False)
        if found is None:
            COMPILATION.begin()
            try:
                if self._lock is None:
                    self._lock = _lock(self._lock_path)
                # Once more with the lock: another process may have stored it meanwhile.
                found = self._loaded(sig, target_context, mend=True)
            except BaseException:  # an interrupt while it waits, among others
                self._unlock()
                COMPILATION.end()
                raise
            if found is not None:
                self._unlock()
                COMPILATION.end()
            else:
                # Types of later modules are registered only when the context is refreshed.
                target_context.refresh()
                _NOTICE.begin(self._cache_path)
        return found

    def _loaded(self, sig: Any, context: Any, *, mend: bool) -> Any:
        """Return a compiled variant, None if there is none; `mend` removes a damaged one, and says so."""
        key = self._index_key(sig, context.codegen())
        files = self._files(sig)
        try:
            data = files.load(key)
            return None if data is None else self._impl.rebuild(context, data)
        except MemoryError:
            raise
        except DamagedEntryError as error:
            path = error.path
        except Exception:  # whole, and yet not understood
            path = files.index_path
        if mend and files.discard(path):
            _note(_DAMAGED, path)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store a compiled variant, and let the processes that wait for it go on."""
        # Some variants hold what cannot be stored; they are compiled by every process.
        try:
            if self._enabled and self._impl.check_cachable(data):
                os.makedirs(self._cache_path, mode=0o700, exist_ok=True)
                self._files(sig).save(self._index_key(sig, data.codegen), self._impl.reduce(data))
        except OSError as error:
            _note(_NOT_KEPT, describe_os_error(error, "compiled kernels are not kept", _REMEDY))
        finally:
            self.end()

    def flush(self) -> None:
        """Remove all variants without classes from outside this package."""
        files = EntryFiles(self._cache_path, self._impl.filename_base)
        files.discard(files.index_path)

    def is_empty(self) -> bool:
        """Return whether no variant without classes from outside this package is stored."""
        return not os.path.exists(EntryFiles(self._cache_path, self._impl.filename_base).index_path)

    def _files(self, sig: Any) -> EntryFiles:
        """Return the files of a variant: those of classes from outside this package have an index of their own."""
        # an index is unpickled as a whole, with the classes in it: a program without the module of a loss that another
        # one has registered could not load it
        outside = sorted(name for name in set(_class_modules(sig)) if name.split(".")[0] != "distls")
        suffix = f".{hashlib.sha256(repr(outside).encode()).hexdigest()[:16]}" if outside else ""
        return EntryFiles(self._cache_path, self._impl.filename_base + suffix)

    def end(self) -> None:
        """Let the processes go on that wait for a variant, which this one has compiled, or could not."""
        self._unlock()
        _NOTICE.end()
        COMPILATION.end()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """Add the sources of the losses and penalties that a variant is compiled for."""
        # no kernel's file imports them: they are not in its closure
        # Sorted: the order of a set differs between processes.
        sources = {source_digest(path) for path in map(_file_of, _class_modules(sig)) if path is not None}
        return (*super()._index_key(sig, codegen), *sorted(sources))


_CACHES: dict[Callable[..., Any], KernelCache] = {}


def is_stored(kernel: Any) -> bool:
    """Return whether some variant of a kernel is in the cache, or would not be kept there."""
    cache = _CACHES.get(kernel.py_func)
    return cache is None or not cache.is_empty()


def _give_up_failed(dispatcher: Any, args: Any) -> None:
    """Give up what has failed: numba stores nothing then, and the lock on the kernel would stay."""
    cache = _CACHES.get(dispatcher.py_func)
    # What has not failed is stored by `save_overload`, which releases the lock.
    if cache is not None and tuple(args) not in dispatcher.overloads:
        cache.end()


when_compiled(_give_up_failed)


def _note(message: str, what: object) -> None:
    """Log a message, the first of its kind: what happened to one kernel mostly happened to many."""
    if message not in _TOLD:
        _TOLD.add(message)
        _LOG.warning(message, what)


def _base_name(function: Callable[..., Any]) -> str:
    """Return what the names of a kernel's files begin with: the function, its sources and what compiles them."""
    python = f"py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
    module = function.__module__.removeprefix("distls.workers.")
    digest = source_digest(function.__code__.co_filename)
    return f"{module}.{function.__qualname__}-{digest}.{python}-{_COMPILER}"


def _lock(path: str) -> int | None:
    """Return a descriptor that holds the lock on a kernel; None without locks: each process then compiles itself."""
    # the lock of a process that ends is released; one whose compilation fails may keep it, so the wait is bounded
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    deadline = time.monotonic() + _LONGEST_COMPILATION
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
                continue
        except OSError:  # a file system without locks
            pass
        else:
            return descriptor
        os.close(descriptor)
        return None


@functools.cache
def source_digest(path: str) -> str:
    """Return a digest of a Python file and of all files of this package that it imports, directly or not."""
    digest = hashlib.sha256()
    # Sorted by name, so that the digest does not depend on the order of imports.
    for name, own in sorted(_closure(path).items()):
        digest.update(name.encode() + b"\0" + own)
    return digest.hexdigest()[:16]


def _closure(path: str) -> dict[str, bytes]:
    """Return module name -> digest of its source, of a file's import closure; its own has an empty name."""
    own, imported = _source(path)
    found, waiting = {"": own}, [*imported]
    while waiting:
        name, file = waiting.pop()
        if name not in found and name != _STORE:
            found[name], imported = _source(file)
            waiting += imported
    return found


@functools.cache
def _source(path: str) -> tuple[bytes, tuple[tuple[str, str], ...]]:
    """Return the digest of a file, and the (module, file) pairs that it imports from this package."""
    # many kernels import the same files
    text = Path(path).read_bytes()
    pairs = (pair for name, what in _IMPORT.findall(text) for pair in _files(name.decode(), what))
    return hashlib.sha256(text).digest(), tuple(pairs)


def _files(name: str, what: bytes) -> Iterator[tuple[str, str]]:
    """Yield the module of an import, or, where it is a package, its submodules among the imported names too."""
    root = ".".join(name.split(".")[:2])
    base = _FOLDERS[root].joinpath(*name.split(".")[2:])
    if base.with_suffix(".py").is_file():
        yield name, str(base.with_suffix(".py"))
        return
    if (base / "__init__.py").is_file():
        yield name, str(base / "__init__.py")
    for word in _WORD.findall(what):
        if (base / f"{word.decode()}.py").is_file():
            yield f"{name}.{word.decode()}", str(base / f"{word.decode()}.py")


def _class_modules(sig: Any) -> Iterator[str]:
    """Yield the modules of the classes of the named tuples in a signature."""
    waiting = list(sig)
    while waiting:
        each = waiting.pop()
        if isinstance(each, types.BaseTuple):  # type: ignore[attr-defined]
            waiting += list(each)
            module = getattr(each, "instance_class", tuple).__module__
            if module != "builtins":
                yield module


def _file_of(module: str) -> str | None:
    """Return the file of a loaded module; None if it has none."""
    return getattr(sys.modules.get(module), "__file__", None)
