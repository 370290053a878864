"""The solver of the stochastic methods."""
