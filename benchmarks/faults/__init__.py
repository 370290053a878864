"""Faults drawn at random: of processes, files, networks and stores."""
