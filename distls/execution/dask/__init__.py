"""Tasks on Dask clusters: local, remote and standing ones."""
