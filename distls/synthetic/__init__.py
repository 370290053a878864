"""Synthetic data sets: `distls generate` and its export."""
