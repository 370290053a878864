"""Errors, distances from the optimum and bounds, beside other systems."""
