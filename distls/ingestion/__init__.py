"""Raw files or arrays to data sets: the driver of an ingest."""
