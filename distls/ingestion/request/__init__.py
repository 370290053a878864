"""The request of an ingest: options, reference data, the plan of its sources, the interface of a format."""
