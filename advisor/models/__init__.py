"""Response models: which runs to make, fitting them, and judging the fit."""
