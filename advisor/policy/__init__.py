"""Policy and site files: read, check every mistake with its line, compile to plain data."""
