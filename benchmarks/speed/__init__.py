"""Seconds, rates and memory, beside the limits of the machine and beside other systems."""
