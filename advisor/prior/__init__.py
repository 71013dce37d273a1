"""What applications like it say of one that was never swept: the prior, its choice, its trials."""
