"""Stochastic methods: a kernel each, and the task that runs a lane."""
