"""The private hooks of numba, all in one file: a version that changes one fails here, by name."""

import inspect
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from numba.core import errors
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, DefaultPassBuilder, Flags
from numba.core.registry import CPUDispatcher

from distls.workers.compilation import jit, private_hooks


def test_functions_are_told_whether_to_count_references():
    assert numba.njit(**private_hooks.COUNTED)(lambda n: np.zeros(n).sum())(2) == 0.0
    with pytest.raises(errors.TypingError, match="zeros"):
        numba.njit(**private_hooks.UNCOUNTED)(lambda n: np.zeros(n).sum())(2)


def test_a_library_has_the_steps_that_helpers_leave_out():
    steps = "_optimize_functions", "_optimize_final_module", "_finalize_final_module"
    assert all(name in dir(JITCodeLibrary) for name in steps)
    finalize = inspect.getsource(JITCodeLibrary._finalize_final_module)
    assert "_finalize_dynamic_globals" in finalize
    assert "self._finalized = True" in inspect.getsource(JITCodeLibrary.finalize) + finalize


def test_a_compiler_takes_a_library_and_a_flag_against_machine_code():
    names = ["self", "typingctx", "targetctx", "library", "args", "return_type", "flags", "locals"]
    assert list(inspect.signature(Compiler.__init__).parameters) == names
    assert "no_compile" in Flags.options


def test_passes_that_helpers_leave_out_are_those_of_a_compiler():
    state = SimpleNamespace(func_ir=None, flags=Flags())
    names = {each.name() for each, _ in DefaultPassBuilder.define_nopython_pipeline(state).passes}
    assert names > private_hooks.LEFT_OUT


def test_a_constant_is_a_number_like_others():
    one = jit.helper(lambda x, n: x + n)
    assert numba.njit(lambda x: one(x, 1) + one(x, 2) + one(x, len(str(x))))(3) == 13
    assert len(one.overloads) == 1


def test_what_helpers_call_is_linked_once():
    inner = jit.helper(lambda x: x + 1)
    outer = jit.helper(lambda x: inner(x) + inner(2 * x))
    assert numba.njit(lambda x: outer(x) + inner(x))(3) == 15


def test_calls_from_python_come_to_compile_for_args():
    assert callable(CPUDispatcher._compile_for_args)
    assert "_compile_for_args" in vars(private_hooks.HelperDispatcher)


def test_a_cache_has_what_ours_sets(tmp_path):
    made = FunctionCache(test_a_cache_has_what_ours_sets)
    ours = private_hooks.CacheOfKernel(test_a_cache_has_what_ours_sets, "base", str(tmp_path))
    assert vars(ours).keys() == vars(made).keys() - {"_cache_file"}
    assert vars(ours._impl).keys() == vars(CompileResultCacheImpl(test_a_cache_has_what_ours_sets)).keys()
    assert (ours.cache_path, ours._impl.filename_base) == (str(tmp_path), "base")
    assert list(inspect.signature(FunctionCache._index_key).parameters) == ["self", "sig", "codegen"]
    assert "_cache" in vars(numba.njit(lambda: None))


def test_events_of_compilations_have_dispatcher_and_arguments():
    heard = []
    private_hooks.when_compiled(lambda *event: heard.append(event))
    function = numba.njit(lambda x: x)
    function(1.0)
    assert (function, (numba.types.float64,)) in heard


def test_these_are_all():
    folder = Path(private_hooks.__file__).parent
    counts = {file.name: file.read_text().count("# Private hook of numba") for file in folder.glob("*.py")}
    assert {name: count for name, count in counts.items() if count} == {"private_hooks.py": 10}
