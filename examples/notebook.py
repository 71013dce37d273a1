"""Measured runs as pandas tables. Jupyter and marimo open this file as a notebook.

Run from a checkout: ``python examples/notebook.py``.
"""

# %% The runs of one program out of a measured grid, with a column computed of others.
from pathlib import Path

from advisor_lab import frame

GRID = Path(__file__).parent / "grids" / "opteron48.csv"
runs = frame(
    "runs", GRID, compute={"edp": "energy_j * time_s"}, where="application == 'SP' and cores >= 6"
)

# %% Of every program: its fastest run and the one of least energy, against all 48 cores.
table = frame("runs", GRID).set_index(["application", "cores"])[["time_s", "energy_j"]]
full = table.xs(48, level="cores")
best = table.loc[table.groupby("application")["energy_j"].idxmin()].reset_index("cores")
change = (100 * (best[["time_s", "energy_j"]] / full - 1)).round(1).add_suffix(", % of 48 cores")

# %% What the store knows of your own programs, where there is one:
#    frame("options", application="stencil", where="on_front")
#    frame("outcomes", since="30d").groupby("verdict")["energy_kwh"].sum()

if __name__ == "__main__":
    print(runs[["cores", "time_s", "energy_j", "edp"]].sort_values("edp").head(3).to_string())
    print(best.join(change)[["cores", *change.columns]].to_string())
