"""The embedded scheduler: this machine, one run at a time, no queue."""
