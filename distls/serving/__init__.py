"""Predictions of a loaded model for rows in memory, in this process."""
