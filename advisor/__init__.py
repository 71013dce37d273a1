"""A scheduler-integrated energy and performance advisor for HPC sites."""

__version__ = "0.3.0"
