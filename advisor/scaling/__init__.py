"""Time and energy of sizes and node counts never run: laws over parameters, with honest errors."""
