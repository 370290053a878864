"""What an ingest, a transposition or a fit keeps on disk until it ends."""
