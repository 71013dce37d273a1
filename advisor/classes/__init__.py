"""Classes of applications by the signatures of their runs. Standard library only."""
