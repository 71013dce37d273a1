"""Meters: how many joules a run on this machine took, measured or plainly called an estimate."""
