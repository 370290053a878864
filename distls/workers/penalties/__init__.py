"""Penalties: values, proximal operators, conjugates."""
