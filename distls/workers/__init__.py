"""Code that runs on a worker: kernels, losses, statistics, tasks. Knows numpy, numba and storage; not Dask."""
