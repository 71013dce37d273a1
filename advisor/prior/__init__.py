"""What applications like it say of one that was never swept: the prior, its choice, its trials."""

FEWEST_APPLICATIONS = 3
"""To learn from, at least: each is predicted by the others, and one alone shows no spread."""
