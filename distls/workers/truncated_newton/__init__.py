"""Reads of truncated Newton methods: gradients, and products with the Hessian."""
