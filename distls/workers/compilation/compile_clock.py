"""What this process spends on compiling kernels, without numba."""

import gc
import time


class Compilation:
    """Times the compilation of kernels, one within another, and holds back the garbage collector meanwhile."""

    # a kernel is hundreds of thousands of objects, which set off searches of all that the process has: a tenth of the
    # seconds of a first fit, more where more is imported
    def __init__(self) -> None:
        self._depth, self._was_on, self._began, self.seconds = 0, False, 0.0, 0.0

    def begin(self) -> None:
        """Note that a kernel is being compiled."""
        if self._depth == 0:
            self._was_on, self._began = gc.isenabled(), time.perf_counter()
            gc.disable()
        self._depth += 1

    def end(self) -> None:
        """Note that it is compiled, or has failed."""
        if self._depth == 1:
            self.seconds += time.perf_counter() - self._began
        self._depth = max(self._depth - 1, 0)
        if self._depth == 0 and self._was_on:
            self._was_on = False
            gc.enable()


COMPILATION = Compilation()


def compile_seconds() -> float:
    """Return the wall seconds that this process has spent on compiling kernels, and on waiting for others to do it."""
    return COMPILATION.seconds
