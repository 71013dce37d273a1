"""The pure domain: configurations, options, trade-offs and decisions. Standard library only."""
