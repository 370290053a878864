"""Functions that only kernels call: without machine code of their own, and without reference counts.

A helper is inlined into kernels. Numba would optimise it and turn it into machine code by itself too, with a wrapper
for calls from Python: a fifth of what the first fit compiles, and nobody calls it.

Numba has every function count references to the arrays it is given or takes parts of, in atomic operations that LLVM
does not remove where there are loops in between: at every row as long as a dozen exponentials (docs/decisions/0034).
A helper's arrays are its caller's, which holds them until it returns. So it counts none, and may neither make arrays
nor return them.
"""

# mypy: disable-error-code="misc"
from __future__ import annotations

import functools
from typing import Any

import numba
from numba import types
from numba.core import errors
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher


class _UnfinishedLibrary(JITCodeLibrary):
    """The code of a helper, which kernels link into their own, optimise and turn into machine code with it.

    Numba does both for each function too. Its methods have no other way to leave that out; a test names them.
    """

    def _optimize_functions(self, ll_module: Any) -> None:
        pass

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _HelperCompiler(Compiler):
    def __init__(
        self,
        typingctx: Any,
        targetctx: Any,
        library: Any,
        args: Any,
        return_type: Any,
        flags: Any,
        locals: Any,
    ) -> None:
        library = _UnfinishedLibrary(targetctx.codegen(), "helper")
        flags.no_compile = True
        super().__init__(typingctx, targetctx, library, args, return_type, flags, locals)


_OWN = {"nopython": True, "no_cpython_wrapper": True, "_nrt": False}


def _holds_array(kind: Any) -> bool:
    return isinstance(kind, types.Array) or (
        isinstance(kind, types.BaseTuple) and any(map(_holds_array, kind))
    )


class HelperDispatcher(CPUDispatcher):
    """Compiles a helper for the kernels that call it; for calls from Python it is compiled once more, as numba does."""

    # the signature is that of numba's dispatchers, which are unpickled by it
    def __init__(
        self,
        function: Any,
        locals: Any = None,
        targetoptions: Any = None,
        pipeline_class: Any = _HelperCompiler,
    ) -> None:
        super().__init__(function, locals, {**(targetoptions or {}), **_OWN}, pipeline_class)

    def add_overload(self, cres: Any) -> None:
        """Keep what kernels inline, out of the reach of Python: it would call a null pointer."""
        if _holds_array(cres.signature.return_type):
            raise errors.TypingError(f"{self.py_func.__qualname__} returns an array, which helpers cannot")
        entry = object()  # in place of the address of machine code
        cres.target_context.insert_user_function(entry, cres.fndesc, [cres.library])
        self.overloads[tuple(cres.signature.args)] = cres._replace(entry_point=entry)

    def _compile_for_args(self, *args: Any, **kwargs: Any) -> Any:
        """Return what numba calls with these arguments."""
        return self.for_python

    @functools.cached_property
    def for_python(self) -> Any:
        """The function as numba compiles it for Python."""
        options = {name: value for name, value in self.targetoptions.items() if name not in _OWN}
        return numba.njit(**options)(self.py_func)
