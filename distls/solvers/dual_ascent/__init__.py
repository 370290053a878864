"""Stochastic dual coordinate ascent over lanes."""
