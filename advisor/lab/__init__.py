"""The laboratory: tracing, microbenchmarks, characterising and evaluation; no job waits for it."""
