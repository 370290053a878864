"""``python -m distls`` is the command line."""

from distls.cli import main

main()
