"""Application profiles and their extrapolation (the IBM Exascale Extrapolator's manual, 2018)."""
