"""The zarr dataset format, models and checkpoints; knows nothing of learning or Dask."""
