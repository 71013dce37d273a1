"""HPCProbe's experiment files as sweeps, and what they do after each run."""
