"""Truncated Newton: few reads of all rows to a proven optimum, however many machines."""
