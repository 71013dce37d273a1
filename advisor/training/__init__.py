"""Training: plan a low-cost sweep, run it, fit, confirm, and say what it cost and gains."""
