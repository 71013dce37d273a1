"""The store: one SQLite file that holds everything the advisor knows."""
