"""Tracing, microbenchmarks and characterising of programs; no job waits for it."""
