"""Generated features in solvers: which ones, and what is fitted to the data."""
