"""Dual variables of all rows, stored by partition."""
