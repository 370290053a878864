"""What this process spends on compiling kernels, without numba."""

import gc
import time


class Compilation:
    """Times the compilation of kernels, one within another, and holds back the garbage collector meanwhile."""

    # a kernel is hundreds of thousands of objects, which set off searches of all that the process has: a tenth of the
    # seconds of a first fit, more where more is imported
    def __init__(self) -> None:
        self._depth, self._was_on, self._began, self._spent = 0, False, 0.0, 0.0

    def begin(self) -> None:
        """Note that a kernel is being compiled."""
        if self._depth == 0:
            self._was_on, self._began = gc.isenabled(), time.perf_counter()
            gc.disable()
        self._depth += 1

    def end(self) -> None:
        """Note that it is compiled, or has failed."""
        if self._depth == 1:
            self._spent += time.perf_counter() - self._began
        self._depth = max(self._depth - 1, 0)
        if self._depth == 0 and self._was_on:
            self._was_on = False
            gc.enable()

    def seconds(self) -> float:
        """Return the wall seconds so far, those of a compilation that goes on among them."""
        return self._spent + (time.perf_counter() - self._began if self._depth else 0.0)


COMPILATION = Compilation()


def compile_seconds() -> float:
    """Return the wall seconds in which this process has compiled kernels, or waited for others to do it."""
    return COMPILATION.seconds()
