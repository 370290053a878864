"""The decorators of numba kernels, and the cache of compiled ones."""
