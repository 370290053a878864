"""Predictions of a model, written for every row of a data set."""
