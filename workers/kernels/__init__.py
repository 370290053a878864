"""Numba kernels: serial, without the GIL, cached on disk."""
