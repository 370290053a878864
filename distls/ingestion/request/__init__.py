"""What an ingest is asked to do: options, data to be like, the plan of its sources, and what an input format is."""
