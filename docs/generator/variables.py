"""The environment variables the advisor reads or sets, for docs/cli.md and the man page.

``tests/lint/pages.py`` compares them with the code.
"""

from __future__ import annotations

VARIABLES = {
    "Read by every verb": {
        "ADVISOR_DB": "the store, like `--db`",
        "ADVISOR_CONFIG_DIR": "the folder of policy.yaml and site.yaml, like `--config-dir`",
        "ADVISOR_SOCKET": "the daemon's socket, like `--socket`",
    },
    "Settings of one job, in the environment of sbatch, srun, salloc or qsub": {
        "ADVISOR": "`off` leaves the job as it is written",
        "ADVISOR_MODE": "`off`, `observe`, `advise` or `apply`, no bolder than the policy allows",
        "ADVISOR_GOAL": "which configuration to take, like `min_energy`",
        "ADVISOR_MAX_SLOWDOWN": "the largest slowdown, like `2%`",
        "ADVISOR_COLD_START": "`off`, `advise` or `apply` estimates from other applications, as "
        "far as the policy allows",
        "ADVISOR_ESTIMATED_NODE_TYPES": "`accept` or `refuse` node types that are only estimated",
        "ADVISOR_EXTRAPOLATED": "`refuse`, `advise` or `accept` predictions for sizes that "
        "were not swept, as far as the policy allows",
        "ADVISOR_MAX_EXTRAPOLATION": "the largest job size to predict, as a multiple of the "
        "largest "
        "measured size, at most the policy's",
        "ADVISOR_SIZE_N": "the size's parameter `n`, like `4e6`; any name may stand for N",
        "ADVISOR_APPLICATION": "the application's name",
        "ADVISOR_WORKLOAD": "the name of its input",
    },
    "Set in a job by the hooks": {
        "ADVISOR_DECISION": "the decision's id",
        "ADVISOR_STAMP": "the decision, as `advisor collect` reads it from the accounting",
        "SLURM_ADVISOR_STAMP": "the same, in a job whose `--export` passes few variables",
        "ADVISOR_SET": "the variables that the advisor set, with their former values, so that a "
        "job submitted from inside does not inherit them",
        "SLURM_ADVISOR_SET": "the same, in a job whose `--export` passes few variables",
        "ADVISOR_PLAN": "Slurm: what the steps of the job get that `srun` starts in it, where the "
        "job itself is left as written",
        "SLURM_ADVISOR_PLAN": "the same, in a job whose `--export` passes few variables",
        "ADVISOR_QSUB": "PBS: a random key to what the program before qsub read in the script; "
        "the hook takes it out",
        "ADVISOR_QSUB_PREPARED": "PBS: when the program before qsub became a site's own one, which "
        "may call it again",
        "ADVISOR_SWEEP": "PBS: the sweep that a job belongs to",
        "SLURM_ADVISOR_GPUS": "Slurm: what the nodes set on the GPUs of a sweep's job, or among "
        "what it may choose as it runs, which the hook in the controller puts into its stamp; "
        "nothing that the job starts has it",
        "ADVISOR_RESULTS": "PBS, and in the comment of Slurm's jobs: the folder where a sweep's "
        "owner leaves its results for the store's host",
    },
    "Read by `advisor tui --browser`": {
        "ADVISOR_TUI_KEY": "the key that the page asks for, of at least 16 characters, where "
        "a portal chose one; else the verb makes one and prints it",
    },
    "To find faults": {
        "ADVISOR_DEBUG": "any value makes the hooks print their log to standard error too",
    },
    "Between `advisor lab characterise` and the program it runs; not for you to set": {
        "ADVISOR_PHASES": "the folder for the times of phases",
        "ADVISOR_BURSTS": "what is counted in each burst",
        "ADVISOR_STREAMS": "the folder for the memory streams of a traced program",
        "ADVISOR_STREAMS_BYTES": "the most bytes to write there",
        "ADVISOR_TWIN": "the ending of a traced program's name",
        "ADVISOR_WATCH": "the folder where calls of OpenMP and MPI are kept",
    },
}
"""By who reads or sets them: name and sentence."""
