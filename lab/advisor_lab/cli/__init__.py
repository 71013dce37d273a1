"""The verbs of the laboratory: one module for each, and what they share."""
