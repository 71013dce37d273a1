"""Slurm: everything the advisor knows of it."""
