"""Schedulers: how to read their requests, write into them, and run sweeps on them."""
