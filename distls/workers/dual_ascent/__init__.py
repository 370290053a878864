"""Dual coordinate ascent: the kernel, and the task that runs a lane."""
