"""Ingest on workers: survey, stage, transform, assemble."""
