"""PBS: everything the advisor knows of it."""
