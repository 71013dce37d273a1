"""Judging models by measured grids, and statistics of runs."""
