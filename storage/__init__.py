"""The zarr dataset format, models and checkpoints. Knows zarr; not learning, not Dask."""
