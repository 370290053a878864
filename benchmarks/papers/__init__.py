"""The experiments of the papers, each by one command."""
