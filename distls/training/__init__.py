"""A fit from request to run folder."""
