"""What is used of numba beside its interface: each hook with its reason, and a test that names it when it breaks.

Most are for *helpers*, functions that only kernels call: without machine code of their own, and without reference
counts. A helper is inlined into kernels. Numba would optimise it and turn it into machine code by itself too, with a
wrapper for calls from Python: a fifth of what the first fit compiles, and nobody calls it.

Numba has every function count references to the arrays it is given or takes parts of, in atomic operations that LLVM
does not remove where there are loops in between: at every row as long as a dozen exponentials (docs/decisions/0034).
A helper's arrays are its caller's, which holds them until it returns. So it counts none, and may neither make arrays
nor return them.
"""

# mypy: disable-error-code="misc"
import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numba
from numba import types
from numba.core import errors
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.event import Event, Listener, register
from numba.core.registry import CPUDispatcher

# Private hook of numba: whether a function counts references is inherited from its first caller, unless it is told.
COUNTED, UNCOUNTED = {"_nrt": True}, {"_nrt": False}


class _UnfinishedLibrary(JITCodeLibrary):
    """The code of a helper, which kernels link into their own, optimise and turn into machine code with it.

    Numba does both for each function too.
    """

    # Private hook of numba: its methods have no other way to leave these steps out.
    def _optimize_functions(self, ll_module: Any) -> None:
        pass

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def finalize(self) -> None:
        """Link nothing: kernels link it and what it calls, once each."""
        self._finalize_final_module()

    def with_called(self) -> list[Any]:
        """Return this library and those of what it calls, directly or not."""
        found = [self]
        for library in self._linking_libraries:
            found += library.with_called() if isinstance(library, _UnfinishedLibrary) else [library]
        return list(dict.fromkeys(found))


# Private hook of numba: its passes for what helpers do not have. They change nothing, and cost seconds.
LEFT_OUT = {
    "with_lifting", "inline_closure_likes", "rewrite_semantic_constants", "Rewrite dynamic raises",
    "make_function_op_code_to_jit_function", "inline_inlinables", "find_literally", "literal_unroll",
    "LiteralPropagation", "nopython_rewrites", "dump_parfor_diagnostics",
}  # fmt: skip


class _HelperCompiler(Compiler):
    # Private hook of numba: the library is no option, and the flag by which it leaves out machine code is none either.
    def __init__(self, typing: Any, target: Any, _library: Any, args: Any, result: Any, flags: Any, locals: Any):
        flags.no_compile = True
        super().__init__(typing, target, _UnfinishedLibrary(target.codegen(), "helper"), args, result, flags, locals)

    def define_pipelines(self) -> list[Any]:
        """Return numba's passes but those."""
        (passes,) = super().define_pipelines()
        kept = [each for each in passes.passes if each[0].name() not in LEFT_OUT]
        passes.passes = list(dict.fromkeys(kept))  # branches are pruned once
        passes.finalize()
        return [passes]


_OWN = {"nopython": True, "no_cpython_wrapper": True, **UNCOUNTED}


def _holds_array(kind: Any) -> bool:
    return isinstance(kind, types.Array) or (isinstance(kind, types.BaseTuple) and any(map(_holds_array, kind)))


class HelperDispatcher(CPUDispatcher):
    """Compiles a helper for the kernels that call it; for calls from Python it is compiled once more, as numba does."""

    # the signature is that of numba's dispatchers, which are unpickled by it
    def __init__(
        self, function: Any, locals: Any = None, targetoptions: Any = None, pipeline_class: Any = _HelperCompiler
    ) -> None:
        super().__init__(function, locals, {**(targetoptions or {}), **_OWN}, pipeline_class)

    def add_overload(self, cres: Any) -> None:
        """Keep what kernels inline, out of the reach of Python: it would call a null pointer."""
        if _holds_array(cres.signature.return_type):
            raise errors.TypingError(f"{self.py_func.__qualname__} returns an array, which helpers cannot")
        entry = object()  # in place of the address of machine code
        cres.target_context.insert_user_function(entry, cres.fndesc, cres.library.with_called())
        self.overloads[tuple(cres.signature.args)] = cres._replace(entry_point=entry)

    # Private hook of numba: constants have types of their own, for each of which it compiles a function once more.
    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return the typing of a call, whose constants are numbers like others."""
        _, args = self.fold_argument_types(args, kws)
        return super().get_call_template(tuple(map(types.unliteral, args)), {})

    # Private hook of numba: calls from Python with types that are not compiled yet come here; helpers have no others.
    def _compile_for_args(self, *args: Any, **kwargs: Any) -> Any:
        """Return what numba calls with these arguments."""
        return self.for_python

    @functools.cached_property
    def for_python(self) -> Any:
        """The function as numba compiles it for Python."""
        options = {name: value for name, value in self.targetoptions.items() if name not in _OWN}
        return numba.njit(**options)(self.py_func)


class _Named(CompileResultCacheImpl):
    """Names the entries of a kernel in its cache."""

    # Private hook of numba: its own are named by the path and the line of the source. The rest is what warnings name.
    def __init__(self, function: Callable[..., Any], base: str) -> None:
        code = function.__code__
        self._locator, self._lineno = SimpleNamespace(_py_file=code.co_filename), code.co_firstlineno
        self._filename_base = base


class CacheOfKernel(FunctionCache):
    """Numba's cache of one function, with another name for its entries and without files."""

    _impl_class = CompileResultCacheImpl

    # Private hook of numba: its own cache looks for a folder beside the source, and at the time of that file alone.
    def __init__(self, function: Callable[..., Any], base: str, folder: str) -> None:
        self._name, self._py_func, self._cache_path = repr(function), function, folder
        self._impl = _Named(function, base)
        self.enable()


def keep_in(cache: CacheOfKernel, dispatcher: Any) -> None:
    """Have a function's compiled variants loaded from a cache and stored there."""
    # Private hook of numba: `njit(cache=True)` does the same with numba's cache.
    dispatcher._cache = cache


class _Compiled(Listener):
    def __init__(self, call: Callable[[Any, Any], None]) -> None:
        self._call = call

    def on_start(self, event: Event) -> None:
        """Nothing is known yet."""

    def on_end(self, event: Event) -> None:
        """Say what has been compiled, or could not be."""
        self._call(event.data["dispatcher"], event.data["args"])


def when_compiled(call: Callable[[Any, Any], None]) -> None:
    """Have ``call(dispatcher, args)`` called after each compilation, whether it failed or not."""
    # Private hook of numba: the name of the event and those in its data. `is_failed` of 0.68 is true of what succeeds.
    register("numba:compile", _Compiled(call))
