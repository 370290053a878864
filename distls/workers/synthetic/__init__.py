"""Seeded synthetic data, and its export as text."""
