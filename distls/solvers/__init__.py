"""The methods: a solver is a few functions over an explicit state, the loop does the rest."""
