"""Files and object stores: paths, atomic writes, locks, retries, reads that trust nothing."""
