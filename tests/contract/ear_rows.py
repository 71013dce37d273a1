"""Files of EAR's: the headers of two releases, and rows of theirs."""

from __future__ import annotations

EAR4 = (
    "NODE_ID;JOB_ID;STEP_ID;USER_ID;GROUP_ID;APP_ID;USER_ACC;ENERGY_TAG;POLICY;POLICY_TH;"
    "AVG.CPUFREQ;AVG.IMCFREQ;DEF.FREQ;TIME;CPI;TPI;GBS;IO_MBS;P.MPI;DC-NODE-POWER;DRAM-POWER;"
    "PCK-POWER;CYCLES;INSTRUCTIONS;CPU-GFLOPS"
)
EAR6 = (
    "JOBID;STEPID;USERID;GROUPID;ACCOUNTID;JOBNAME;ENERGY_TAG;JOB_START_TIME;JOB_END_TIME;"
    "JOB_START_DATE;JOB_END_DATE;JOB_EARL_START_TIME;JOB_EARL_END_TIME;POLICY;POLICY_TH;"
    "JOB_NPROCS;JOB_TYPE;JOB_DEF_FREQ;EARL_ENABLED;EAR_LEARNING_PHASE;NODENAME;AVG_CPUFREQ_KHZ;"
    "AVG_IMCFREQ_KHZ;DEF_FREQ_KHZ;TIME_SEC;CPI;TPI;MEM_GBS;IO_MBS;PERC_MPI;DC_NODE_POWER_W;"
    "DRAM_POWER_W;PCK_POWER_W;CYCLES;INSTRUCTIONS;STALLS_FETCH_DECODE;STALLS_RESOURCES;"
    "STALLS_MEMORY;CPU_GFLOPS;CPU_UTIL;GPU0_POWER_W;GPU0_FREQ_KHZ;GPU0_UTIL_PERC;GPU1_POWER_W;"
    "GPU1_FREQ_KHZ;GPU1_UTIL_PERC;NODEMGR_DC_NODE_POWER_W;NODEMGR_TIME_SEC"
)


def row4(node: str = "n1", job: str = "7", step: str = "0", **cells: object) -> str:
    values = dict(
        zip(
            EAR4.split(";"),
            f"{node};{job};{step};ann;g;solver;physics; ;monitoring;0.0;2400000;2000000;2400000;"
            "100.0;0.5;0.02;20.0;1.5;30.0;300.25;10.0;200.0;1000000;2000000;50.0".split(";"),
            strict=True,
        )
    )
    return ";".join(str(v) for v in (values | cells).values())


def row6(**cells: object) -> str:
    values = dict.fromkeys(EAR6.split(";"), "0") | {
        "JOBID": "9",
        "STEPID": "1",
        "USERID": "bob",
        "ACCOUNTID": "chem",
        "JOBNAME": "md",
        "JOB_NPROCS": "32",
        "EARL_ENABLED": "1",
        "NODENAME": "n1",
        "DEF_FREQ_KHZ": "2100000",
        "TIME_SEC": "50.0",
        "CPI": "0.8",
        "TPI": "0.01",
        "MEM_GBS": "90.0",
        "DC_NODE_POWER_W": "410.5",
        "CYCLES": "800",
        "INSTRUCTIONS": "1000",
        "CPU_GFLOPS": "70",
        "CPU_UTIL": "99",
    }
    return ";".join(str(v) for v in (values | cells).values())
