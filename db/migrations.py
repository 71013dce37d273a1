"""The store's schema as sqlite-utils migrations, applied in order and never edited afterwards.

``db/schema.sql`` is generated from these (``make schema``); a test keeps the two equal.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

migrations = Migrations("advisor")


def _run(db: Database, script: str) -> None:
    """Execute the statements of a script one by one: no commit, all of them or none.

    Every statement ends at a line's end. sqlite-utils looks for the end at each character, which
    takes three quarters of the time a new store takes.
    """
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""
    if statement.strip():
        db.execute(statement)


_INITIAL = Path(__file__).with_name("initial.sql").read_text(encoding="utf-8")
"""The tables of version 1."""


@migrations()
def m0001_initial(db: Database) -> None:
    """Create every table of version 1."""
    _run(db, _INITIAL)


_CHARACTERISATIONS = """
-- An application's phases and memory streams, as one contributor measured them on one node type.
CREATE TABLE characterisations (
    id           INTEGER PRIMARY KEY,
    workload_id  INTEGER NOT NULL REFERENCES workloads (id),
    node_type    TEXT NOT NULL,
    contributor  TEXT NOT NULL,
    scope        TEXT NOT NULL CHECK (scope IN ('own', 'account', 'all')),
    record       TEXT NOT NULL CHECK (json_valid(record)),
    created_at   TEXT NOT NULL,
    UNIQUE (workload_id, node_type, contributor)
);
"""


@migrations()
def m0002_characterisations(db: Database) -> None:
    """Add what rankings start from."""
    _run(db, _CHARACTERISATIONS)


_PROFILES = """
-- One go of the microbenchmarks on one node: which machine it was, and with what.
CREATE TABLE benches (
    id           INTEGER PRIMARY KEY,
    node_type    TEXT NOT NULL,
    machine      TEXT NOT NULL CHECK (json_valid(machine)),
    host         TEXT NOT NULL,
    kernel       TEXT NOT NULL,
    compiler     TEXT NOT NULL,
    measured_by  TEXT NOT NULL,
    measured_at  TEXT NOT NULL
);

-- What one microbenchmark takes on a node type. spread: half of the mean's 95 % interval over it.
CREATE TABLE profiles (
    id                  INTEGER PRIMARY KEY,
    node_type           TEXT NOT NULL,
    microbenchmark      TEXT NOT NULL,
    streams             TEXT NOT NULL CHECK (json_valid(streams)),
    threads             INTEGER NOT NULL CHECK (threads >= 1),
    time_per_iter_us    REAL NOT NULL CHECK (time_per_iter_us > 0),
    spread              REAL NOT NULL CHECK (spread >= 0),
    repeats             INTEGER NOT NULL CHECK (repeats >= 1),
    energy_per_iter_nj  REAL CHECK (energy_per_iter_nj > 0),
    meter               TEXT NOT NULL DEFAULT '',
    bench_id            INTEGER NOT NULL REFERENCES benches (id),
    UNIQUE (node_type, microbenchmark, streams, threads)
);

-- Microbenchmarks a ranking lacked; the next bench runs them first.
CREATE TABLE bench_requests (
    id              INTEGER PRIMARY KEY,
    microbenchmark  TEXT NOT NULL,
    streams         TEXT NOT NULL CHECK (json_valid(streams)),
    wanted_for      TEXT NOT NULL,
    created_at      TEXT NOT NULL,
    UNIQUE (microbenchmark, streams)
);
"""


@migrations()
def m0003_profiles(db: Database) -> None:
    """Add the node types' profiles."""
    _run(db, _PROFILES)


_RANKINGS = """
-- How long an application takes on a node type against its base node type, where it ran, as
-- estimated from microbenchmarks. error_pct and energy_error_pct: one standard error.
CREATE TABLE rankings (
    id                INTEGER PRIMARY KEY,
    workload_id       INTEGER NOT NULL REFERENCES workloads (id),
    base              TEXT NOT NULL,
    node_type         TEXT NOT NULL,
    contributor       TEXT NOT NULL,
    scope             TEXT NOT NULL CHECK (scope IN ('own', 'account', 'all')),
    method            TEXT NOT NULL,
    time_s            REAL NOT NULL CHECK (time_s > 0),
    time_ratio        REAL NOT NULL CHECK (time_ratio > 0),
    error_pct         REAL NOT NULL CHECK (error_pct >= 0),
    energy_ratio      REAL CHECK (energy_ratio > 0),
    energy_error_pct  REAL CHECK (energy_error_pct >= 0),
    energy_source     TEXT CHECK (energy_source IN ('profiles', 'node power')),
    similarity        REAL CHECK (similarity >= 0),
    similarity_max    REAL CHECK (similarity_max > 0),
    created_at        TEXT NOT NULL,
    UNIQUE (workload_id, base, node_type, contributor),
    CHECK ((energy_ratio IS NULL) = (energy_error_pct IS NULL)),
    CHECK ((energy_ratio IS NULL) = (energy_source IS NULL)),
    CHECK ((similarity IS NULL) = (similarity_max IS NULL))
);
"""


@migrations()
def m0004_rankings(db: Database) -> None:
    """Add what is estimated of node types where an application never ran."""
    _run(db, _RANKINGS)


_BY_HAND = """
ALTER TABLE rankings ADD COLUMN by_hand INTEGER NOT NULL DEFAULT 0 CHECK (by_hand IN (0, 1));
"""


@migrations()
def m0005_rankings_by_hand(db: Database) -> None:
    """Mark rankings from given files: unlike those of the store, nobody can make them again."""
    _run(db, _BY_HAND)


_METHOD = """
-- How the threads of a run were set: by variables inside the job's own allocation, or by a smaller
-- request; '' for imported runs, and for jobs that ran as they were written.
ALTER TABLE observations ADD COLUMN method TEXT NOT NULL DEFAULT ''
    CHECK (method IN ('', 'variables', 'request'));
"""
_METHOD_OF_RUNS = """
-- Sweeps made their runs by a smaller request; on a machine without a scheduler (no job) they set
-- variables, as they still do. Jobs that were advised ran with a smaller request, too.
UPDATE observations SET method = CASE WHEN job_id = '' THEN 'variables' ELSE 'request' END
    WHERE source IN ('sweep', 'confirm');
UPDATE observations SET method = 'request' WHERE source = 'job'
    AND json_extract(extra, '$.decision') IN (SELECT id FROM decisions WHERE changed = 1);
"""
_METHOD_OF_MODELS = """
UPDATE models SET stats = json_set(stats, '$.method', ?),
    updated_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
WHERE state <> 'replaced' AND id IN (
    SELECT m.id FROM models AS m
    JOIN observations AS o ON o.workload_id = m.workload_id AND o.node_type = m.node_type
    WHERE o.method = ? AND (o.scope = 'all'
        OR (m.scope <> 'all' AND o.scope = 'account')
        OR (m.scope = 'own' AND o.contributor = m.owner)))
"""
_METHOD_OF_TRANSFERS = """
UPDATE models SET stats = json_set(stats, '$.method', ?),
    updated_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
WHERE state <> 'replaced' AND id IN (
    SELECT t.id FROM models AS t
    JOIN models AS b ON b.workload_id = t.workload_id AND b.state <> 'replaced'
        AND b.node_type = json_extract(t.stats, '$.transfer.base')
    WHERE t.name = 'transfer' AND json_extract(b.stats, '$.method') = ?)
"""


@migrations()
def m0006_method(db: Database) -> None:
    """Mark how runs were measured, and the models that rest on them."""
    _run(db, _METHOD)
    _run(db, _METHOD_OF_RUNS)
    for statement in (_METHOD_OF_MODELS, _METHOD_OF_TRANSFERS):
        for method in ("variables", "request"):
            db.execute(statement, [method, method])


_FORGOTTEN = """
-- What was forgotten, for as long as it can be had back: rows of the table that kind names.
CREATE TABLE forgotten (
    id            INTEGER PRIMARY KEY,
    workload_id   INTEGER NOT NULL REFERENCES workloads (id),
    forgotten_at  TEXT NOT NULL,
    forgotten_by  TEXT NOT NULL,
    kind          TEXT NOT NULL
                  CHECK (kind IN ('models', 'observations', 'characterisations', 'rankings')),
    record        TEXT NOT NULL CHECK (json_valid(record))
);

-- Nothing is known of a hidden workload; models that were taken out of use still name it.
ALTER TABLE workloads ADD COLUMN hidden INTEGER NOT NULL DEFAULT 0 CHECK (hidden IN (0, 1));
"""


@migrations()
def m0007_forgotten(db: Database) -> None:
    """Let what was measured be forgotten, and had back for a day."""
    _run(db, _FORGOTTEN)


@migrations()
def m0008_options_version(db: Database) -> None:
    """Put the version byte before the packed options, as advisor/core/option.py reads them."""
    db.execute("UPDATE models SET options = CAST(x'01' || options AS BLOB)")


_SIGNATURES = """
-- What one run did to its node, as rates of one node; NULL where it was not measured. release: of
-- the program that measured, whose scale tpi has.
CREATE TABLE signatures (
    id               INTEGER PRIMARY KEY,
    workload_id      INTEGER NOT NULL REFERENCES workloads (id),
    node_type        TEXT NOT NULL,
    nodes            INTEGER NOT NULL CHECK (nodes >= 1),
    ranks_per_node   INTEGER NOT NULL CHECK (ranks_per_node >= 1),
    threads_per_node INTEGER NOT NULL CHECK (threads_per_node >= 1),
    freq_khz         INTEGER NOT NULL CHECK (freq_khz >= 0),
    cpi              REAL CHECK (cpi >= 0),
    tpi              REAL CHECK (tpi >= 0),
    gflops           REAL CHECK (gflops >= 0),
    gbs              REAL CHECK (gbs >= 0),
    io_mbs           REAL CHECK (io_mbs >= 0),
    mpi_percent      REAL CHECK (mpi_percent >= 0),
    mpi_calls_s      REAL CHECK (mpi_calls_s >= 0),
    gpu_util         REAL CHECK (gpu_util >= 0),
    cpu_util         REAL CHECK (cpu_util >= 0),
    power_w          REAL CHECK (power_w >= 0),
    memory_mb        REAL CHECK (memory_mb >= 0),
    time_s           REAL CHECK (time_s > 0),
    cpus             INTEGER CHECK (cpus >= 1),
    source           TEXT NOT NULL,
    release          TEXT NOT NULL DEFAULT '',
    contributor      TEXT NOT NULL,
    account          TEXT NOT NULL DEFAULT '',
    scope            TEXT NOT NULL CHECK (scope IN ('own', 'account', 'all')),
    job_id           TEXT NOT NULL DEFAULT '',
    created_at       TEXT NOT NULL
);
CREATE INDEX signatures_by_workload ON signatures (workload_id, node_type);
CREATE UNIQUE INDEX one_signature_of_a_job
    ON signatures (workload_id, node_type, source, contributor, job_id) WHERE job_id <> '';

-- Signatures can be forgotten, too.
CREATE TABLE forgotten_now (
    id            INTEGER PRIMARY KEY,
    workload_id   INTEGER NOT NULL REFERENCES workloads (id),
    forgotten_at  TEXT NOT NULL,
    forgotten_by  TEXT NOT NULL,
    kind          TEXT NOT NULL CHECK (kind IN
                  ('models', 'observations', 'characterisations', 'rankings', 'signatures')),
    record        TEXT NOT NULL CHECK (json_valid(record))
);
INSERT INTO forgotten_now SELECT * FROM forgotten;
DROP TABLE forgotten;
ALTER TABLE forgotten_now RENAME TO forgotten;
"""


@migrations()
def m0009_signatures(db: Database) -> None:
    """Add the signatures of runs."""
    _run(db, _SIGNATURES)


_MONTHS = """
-- What pruned decisions and outcomes add up to, by month of the decision.
CREATE TABLE months (
    month        TEXT NOT NULL,
    application  TEXT NOT NULL,
    node_type    TEXT NOT NULL,
    decisions    INTEGER NOT NULL DEFAULT 0,
    changed      INTEGER NOT NULL DEFAULT 0,
    outcomes     INTEGER NOT NULL DEFAULT 0,
    worse        INTEGER NOT NULL DEFAULT 0,
    node_s       REAL NOT NULL DEFAULT 0,
    energy_j     REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (month, application, node_type)
);

CREATE INDEX decisions_by_user ON decisions (user);
CREATE INDEX outcomes_by_user ON outcomes (user);
"""


@migrations()
def m0010_months(db: Database) -> None:
    """Add monthly sums of what is pruned, and find a user's jobs without looking at all."""
    _run(db, _MONTHS)


_TRIALS = """
-- Trials of applications never swept: jobs that ran at a point nobody had measured, one at a time
-- for each class model. The daemon takes the place before it answers.
CREATE TABLE trials (
    id                INTEGER PRIMARY KEY,
    workload_id       INTEGER NOT NULL REFERENCES workloads (id),
    node_type         TEXT NOT NULL,
    scope             TEXT NOT NULL CHECK (scope IN ('own', 'account', 'all')),
    owner             TEXT NOT NULL,
    class             TEXT NOT NULL,
    decision_id       TEXT NOT NULL UNIQUE,
    user              TEXT NOT NULL,
    own               TEXT NOT NULL CHECK (json_valid(own)),
    own_time_s        REAL NOT NULL CHECK (own_time_s > 0),
    own_energy_j      REAL NOT NULL CHECK (own_energy_j > 0),
    point             TEXT NOT NULL CHECK (json_valid(point)),
    max_slowdown      REAL NOT NULL,
    min_saving        REAL NOT NULL,
    state             TEXT NOT NULL CHECK
                      (state IN ('pending', 'confirmed', 'refuted', 'bad', 'unjudged', 'freed')),
    time_s            REAL CHECK (time_s > 0),
    energy_j          REAL CHECK (energy_j > 0),
    error             REAL NOT NULL DEFAULT 0 CHECK (error >= 0),
    created_at        TEXT NOT NULL,
    updated_at        TEXT NOT NULL
);
CREATE UNIQUE INDEX one_trial_at_a_time
    ON trials (workload_id, node_type, scope, owner) WHERE state = 'pending';

-- They are forgotten with all else of an application.
CREATE TABLE forgotten_now (
    id            INTEGER PRIMARY KEY,
    workload_id   INTEGER NOT NULL REFERENCES workloads (id),
    forgotten_at  TEXT NOT NULL,
    forgotten_by  TEXT NOT NULL,
    kind          TEXT NOT NULL CHECK (kind IN ('models', 'observations', 'characterisations',
                  'rankings', 'signatures', 'trials')),
    record        TEXT NOT NULL CHECK (json_valid(record))
);
INSERT INTO forgotten_now SELECT * FROM forgotten;
DROP TABLE forgotten;
ALTER TABLE forgotten_now RENAME TO forgotten;
"""


@migrations()
def m0011_trials(db: Database) -> None:
    """Add the trials of applications never swept."""
    _run(db, _TRIALS)


@migrations()
def m0012_application_profiles(db: Database) -> None:
    """Do nothing: application profiles are the laboratory's, which makes their tables itself."""


_SUMMED = """
-- What the sums by month hold already, so that nothing counts twice: ids of pruned decisions,
-- scheduler, job and submission of pruned outcomes; under '' the time up to which all is in them.
CREATE TABLE summed (
    key TEXT PRIMARY KEY,
    at  TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX signatures_by_job ON signatures (job_id) WHERE job_id <> '';
"""


@migrations()
def m0013_summed(db: Database) -> None:
    """Add what the sums by month hold already, and find a job's signature at once."""
    _run(db, _SUMMED)


_SIZES = """
-- Of a family's model: what its options take at sizes that never ran (core/size_table.py).
ALTER TABLE models ADD COLUMN sizes BLOB NOT NULL DEFAULT x'';
"""


@migrations()
def m0014_sizes(db: Database) -> None:
    """Add what models of families say of sizes that never ran."""
    _run(db, _SIZES)


@migrations()
def m0015_kernels(db: Database) -> None:
    """Keep profiles of kernels that users bring, with whose jobs they advise."""
    _run(db, Path(__file__).with_name("kernels.sql").read_text(encoding="utf-8"))


@migrations()
def m0016_file_systems(db: Database) -> None:
    """Add what reads and writes of files take, by file system."""
    _run(db, Path(__file__).with_name("file_systems.sql").read_text(encoding="utf-8"))


@migrations()
def m0017_cached(db: Database) -> None:
    """Keep what the page cache takes beside what the file system does."""
    _run(db, "ALTER TABLE file_systems ADD COLUMN cached_us REAL CHECK (cached_us > 0);")


_OUTCOME_INDICES = """
-- Every collection asks for old outcomes and for those of models that came out worse.
CREATE INDEX outcomes_by_time ON outcomes (collected_at);

CREATE INDEX outcomes_by_model ON outcomes (json_extract(record, '$.judged_model'))
    WHERE verdict IN ('as-promised', 'better', 'worse');
"""


@migrations()
def m0018_outcome_indices(db: Database) -> None:
    """Find old outcomes and a model's judged ones without reading all."""
    _run(db, _OUTCOME_INDICES)


_SPACE = """
-- The grid that a run's model is evaluated on, as the sweep or whoever fitted it said; '' where
-- nobody did (models/space.py).
ALTER TABLE observations ADD COLUMN space TEXT NOT NULL DEFAULT ''
    CHECK (space = '' OR json_valid(space));
"""


@migrations()
def m0019_search_space(db: Database) -> None:
    """Keep with a run the grid that its model is evaluated on."""
    _run(db, _SPACE)


_PRUNED_ROWS = """
-- What was pruned, for a day: whoever named a wrong time gets it back (store/pruning.py). Of the
-- kind 'horizon' is the time up to which all was summed before.
CREATE TABLE pruned_rows (
    id         INTEGER PRIMARY KEY,
    pruned_at  TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('decisions', 'outcomes', 'observations', 'horizon')),
    record     TEXT NOT NULL CHECK (json_valid(record))
);
CREATE INDEX pruned_rows_by_time ON pruned_rows (pruned_at);
"""


@migrations()
def m0020_pruned_rows(db: Database) -> None:
    """Keep what was pruned for a day."""
    _run(db, _PRUNED_ROWS)


_STALE = """
-- Models that follow from something which has changed since they were worked out: the transaction
-- that changed it marks them, advisor/derive works them out (store/stale.py). Each marking draws
-- another number; since is when the first one was. Scope and owner are those of a class model.
CREATE TABLE stale (
    id           INTEGER PRIMARY KEY,
    workload_id  INTEGER NOT NULL REFERENCES workloads (id),
    kind         TEXT NOT NULL CHECK (kind IN ('lesson', 'transfers', 'sizes', 'class')),
    scope        TEXT NOT NULL DEFAULT '' CHECK (scope IN ('', 'own', 'account', 'all')),
    owner        TEXT NOT NULL DEFAULT '',
    since        TEXT NOT NULL,
    mark         INTEGER NOT NULL DEFAULT (random()),
    UNIQUE (workload_id, kind, scope, owner)
);

-- Class models that waited for a collection with time for them.
INSERT INTO stale (workload_id, kind, scope, owner, since)
SELECT m.workload_id, 'class', m.scope, m.owner, min(m.updated_at) FROM models AS m
WHERE m.name = 'class' AND m.state <> 'replaced'
    AND m.updated_at < (SELECT max(b.updated_at) FROM models AS b
        WHERE b.node_type = m.node_type AND b.name NOT IN ('class', 'transfer'))
GROUP BY m.workload_id, m.scope, m.owner;
"""


@migrations()
def m0021_stale(db: Database) -> None:
    """Mark models that have to be worked out again."""
    _run(db, _STALE)


_COUNT_LAWS = """
-- What an application's profiles say of its sizes (null: nothing); its families of sizes follow.
CREATE TABLE count_laws (
    application  TEXT PRIMARY KEY,
    laws         TEXT NOT NULL CHECK (json_valid(laws)),
    created_at   TEXT NOT NULL
) WITHOUT ROWID;
"""

_LAWS_OF_STEPS = """
INSERT INTO count_laws (application, laws, created_at)
SELECT application, coalesce(json_extract(result, '$.laws'), 'null'), created_at
FROM profile_steps AS step
WHERE number = (
    SELECT max(number) FROM profile_steps
    WHERE application = step.application AND json_type(result, '$.laws') IS NOT NULL
);
"""
"""Of a store that had application profiles when these were no part of their own."""


@migrations()
def m0022_count_laws(db: Database) -> None:
    """Keep what application profiles say apart from the profiles themselves."""
    _run(db, _COUNT_LAWS)
    if "profile_steps" in db.table_names():
        _run(db, _LAWS_OF_STEPS)


_JOB_HISTORIES = """
-- What earlier jobs of one identity did (core/job_identity.py, core/job_history.py): derived from
-- their outcomes, which the index finds, once a collection marked it stale.
CREATE TABLE job_histories (
    identity    TEXT PRIMARY KEY,
    record      TEXT NOT NULL CHECK (json_valid(record)),
    updated_at  TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX job_histories_by_time ON job_histories (updated_at);

CREATE TABLE stale_histories (
    identity  TEXT PRIMARY KEY,
    since     TEXT NOT NULL,
    mark      INTEGER NOT NULL DEFAULT (random())
) WITHOUT ROWID;

CREATE INDEX outcomes_by_identity
    ON outcomes (json_extract(record, '$.identity'), submitted_at)
    WHERE json_extract(record, '$.identity') IS NOT NULL;
"""


@migrations()
def m0023_job_histories(db: Database) -> None:
    """Keep what earlier jobs of one identity did."""
    _run(db, _JOB_HISTORIES)


_PAGES = """
-- A page of a history, a user's last jobs and a model's last verdicts are found by an index each,
-- however many there are before.
DROP INDEX IF EXISTS decisions_by_user;
DROP INDEX IF EXISTS outcomes_by_user;
DROP INDEX IF EXISTS outcomes_by_model;
CREATE INDEX decisions_by_user ON decisions (user, created_at);
CREATE INDEX outcomes_by_user ON outcomes (user, submitted_at);
CREATE INDEX outcomes_by_submission ON outcomes (submitted_at);
CREATE INDEX outcomes_by_model
    ON outcomes (json_extract(record, '$.judged_model'), user, submitted_at, job_id)
    WHERE verdict IN ('as-promised', 'better', 'worse');
CREATE INDEX observations_by_job ON observations (job_id) WHERE job_id <> '';
"""


@migrations()
def m0024_pages(db: Database) -> None:
    """Find the last of a user's or a model's jobs without reading those before."""
    _run(db, _PAGES)


_DAYS = """
-- Sums of the jobs submitted on one day (UTC): counts of all of them, and of each workload also
-- what reports compare (loop/job_sums.py). They count while the day is whole; whatever writes an
-- outcome otherwise takes the day away (loop/day_sums.py).
CREATE TABLE days (
    day     TEXT PRIMARY KEY,
    whole   INTEGER NOT NULL CHECK (whole IN (0, 1)),
    counts  TEXT NOT NULL CHECK (json_valid(counts))
) WITHOUT ROWID;

CREATE TABLE day_sums (
    day                 TEXT NOT NULL,
    application         TEXT NOT NULL,
    workload            TEXT NOT NULL,
    counts              TEXT NOT NULL CHECK (json_valid(counts)),
    energy_on_jobs      REAL NOT NULL,
    energy_on_sum       REAL NOT NULL,
    energy_on_squares   REAL NOT NULL,
    energy_off_jobs     REAL NOT NULL,
    energy_off_sum      REAL NOT NULL,
    energy_off_squares  REAL NOT NULL,
    time_on_jobs        REAL NOT NULL,
    time_on_sum         REAL NOT NULL,
    time_on_squares     REAL NOT NULL,
    time_off_jobs       REAL NOT NULL,
    time_off_sum        REAL NOT NULL,
    time_off_squares    REAL NOT NULL,
    coarse_jobs         REAL NOT NULL,
    coarse_sum          REAL NOT NULL,
    promised_j          REAL NOT NULL,
    promised_base_j     REAL NOT NULL,
    promised_s          REAL NOT NULL,
    promised_base_s     REAL NOT NULL,
    kwh                 REAL NOT NULL,
    node_hours          REAL NOT NULL,
    time_inside         REAL NOT NULL,
    time_promises       REAL NOT NULL,
    energy_inside       REAL NOT NULL,
    energy_promises     REAL NOT NULL,
    PRIMARY KEY (day, application, workload)
) WITHOUT ROWID;

CREATE TRIGGER outcome_added AFTER INSERT ON outcomes BEGIN
    DELETE FROM days WHERE day = substr(NEW.submitted_at, 1, 10);
END;
CREATE TRIGGER outcome_deleted AFTER DELETE ON outcomes BEGIN
    DELETE FROM days WHERE day = substr(OLD.submitted_at, 1, 10);
END;
CREATE TRIGGER outcome_changed AFTER UPDATE ON outcomes BEGIN
    DELETE FROM days
    WHERE day IN (substr(OLD.submitted_at, 1, 10), substr(NEW.submitted_at, 1, 10));
END;
"""


@migrations()
def m0025_days(db: Database) -> None:
    """Keep sums by day, so that reports need not read every job."""
    _run(db, _DAYS)


_CAP_TRIALS = """
-- Jobs of recurring scripts that try a frequency cap, one of a script at a time: the place is taken
-- while no job is known, and that one's outcome says what came of it.
CREATE TABLE cap_trials (
    decision_id   TEXT PRIMARY KEY,
    identity      TEXT NOT NULL,
    user          TEXT NOT NULL,
    created_at    TEXT NOT NULL,
    job_id        TEXT NOT NULL DEFAULT '',
    scheduler     TEXT NOT NULL DEFAULT '',
    submitted_at  TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;

CREATE INDEX cap_trials_by_identity ON cap_trials (identity, created_at);
CREATE UNIQUE INDEX one_cap_trial_at_a_time ON cap_trials (identity) WHERE job_id = '';
"""


@migrations()
def m0026_cap_trials(db: Database) -> None:
    """Let jobs of recurring scripts try frequency caps."""
    _run(db, _CAP_TRIALS)


_CLUSTERS = """
-- A job's id is its cluster's: every key that has one names the cluster, '' where nobody knew. The
-- first cluster of a scheduler that is collected takes over what has none (store/clusters.py).
CREATE TABLE clusters (
    name       TEXT NOT NULL CHECK (name <> ''),
    scheduler  TEXT NOT NULL,
    since      TEXT NOT NULL,
    PRIMARY KEY (name, scheduler)
) WITHOUT ROWID;

ALTER TABLE decisions ADD COLUMN cluster TEXT NOT NULL DEFAULT '';
ALTER TABLE observations ADD COLUMN cluster TEXT NOT NULL DEFAULT '';
ALTER TABLE signatures ADD COLUMN cluster TEXT NOT NULL DEFAULT '';
ALTER TABLE trials ADD COLUMN cluster TEXT NOT NULL DEFAULT '';
ALTER TABLE cap_trials ADD COLUMN cluster TEXT NOT NULL DEFAULT '';

DROP INDEX one_signature_of_a_job;
CREATE UNIQUE INDEX one_signature_of_a_job
    ON signatures (workload_id, node_type, source, contributor, job_id, cluster)
    WHERE job_id <> '';

-- Node types of a name are one type on all clusters, each with nodes of its own. hardware is what
-- the scheduler says of it, '' where it was not asked.
CREATE TABLE node_types_now (
    cluster      TEXT NOT NULL DEFAULT '',
    name         TEXT NOT NULL,
    spec         TEXT NOT NULL CHECK (json_valid(spec)),
    source       TEXT NOT NULL,
    updated_at   TEXT NOT NULL,
    hardware     TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (cluster, name)
);
INSERT INTO node_types_now SELECT '', name, spec, source, updated_at, '' FROM node_types;
DROP TABLE node_types;
ALTER TABLE node_types_now RENAME TO node_types;

CREATE TABLE outcomes_now (
    job_id             TEXT NOT NULL,
    scheduler          TEXT NOT NULL,
    cluster            TEXT NOT NULL DEFAULT '',
    submitted_at       TEXT NOT NULL DEFAULT '',
    decision_id        TEXT NOT NULL DEFAULT '',
    user               TEXT NOT NULL,
    account            TEXT NOT NULL DEFAULT '',
    state              TEXT NOT NULL,
    nodes              INTEGER NOT NULL,
    node_list          TEXT NOT NULL DEFAULT '',
    time_s             REAL,
    energy_j           REAL,
    energy_quality     TEXT NOT NULL,
    freq_requested_khz INTEGER,
    freq_observed_khz  INTEGER,
    verdict            TEXT NOT NULL DEFAULT '',
    record             TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(record)),
    collected_at       TEXT NOT NULL,
    PRIMARY KEY (job_id, scheduler, cluster, submitted_at)
);
INSERT INTO outcomes_now (rowid, job_id, scheduler, submitted_at, decision_id, user, account, state,
    nodes, node_list, time_s, energy_j, energy_quality, freq_requested_khz, freq_observed_khz,
    verdict, record, collected_at)
SELECT rowid, job_id, scheduler, submitted_at, decision_id, user, account, state,
    nodes, node_list, time_s, energy_j, energy_quality, freq_requested_khz, freq_observed_khz,
    verdict, record, collected_at FROM outcomes;
DROP TABLE outcomes;
ALTER TABLE outcomes_now RENAME TO outcomes;
CREATE INDEX outcomes_by_time ON outcomes (collected_at);
CREATE INDEX outcomes_by_user ON outcomes (user, submitted_at);
CREATE INDEX outcomes_by_submission ON outcomes (submitted_at);
CREATE INDEX outcomes_by_model
    ON outcomes (json_extract(record, '$.judged_model'), user, submitted_at, job_id)
    WHERE verdict IN ('as-promised', 'better', 'worse');
CREATE INDEX outcomes_by_identity
    ON outcomes (json_extract(record, '$.identity'), submitted_at)
    WHERE json_extract(record, '$.identity') IS NOT NULL;
CREATE TRIGGER outcome_added AFTER INSERT ON outcomes BEGIN
    DELETE FROM days WHERE day = substr(NEW.submitted_at, 1, 10);
END;
CREATE TRIGGER outcome_deleted AFTER DELETE ON outcomes BEGIN
    DELETE FROM days WHERE day = substr(OLD.submitted_at, 1, 10);
END;
CREATE TRIGGER outcome_changed AFTER UPDATE ON outcomes BEGIN
    DELETE FROM days
    WHERE day IN (substr(OLD.submitted_at, 1, 10), substr(NEW.submitted_at, 1, 10));
END;
"""

_SUMS_BY_CLUSTER = {
    "day_sums": ("day, cluster, application, workload", "day, application, workload"),
    "months": ("month, cluster, application, node_type", "month, application, node_type"),
}
"""The keys of the tables of sums, and what they were."""


@migrations()
def m0027_clusters(db: Database) -> None:
    """Make the cluster a part of every key that holds a job's id, of node types and of sums."""
    _run(db, _CLUSTERS)
    for table, (key, former) in _SUMS_BY_CLUSTER.items():
        made = str(
            db.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
        )
        columns = ", ".join(row[1] for row in db.execute(f"PRAGMA table_info({table})"))
        made = made.replace(
            "application ", "cluster TEXT NOT NULL DEFAULT '',\n    application ", 1
        )
        made = made.replace(f"PRIMARY KEY ({former})", f"PRIMARY KEY ({key})", 1)
        db.execute(made.replace(f"CREATE TABLE {table}", f"CREATE TABLE {table}_now", 1))
        db.execute(f"INSERT INTO {table}_now ({columns}) SELECT {columns} FROM {table}")
        db.execute(f"DROP TABLE {table}")
        db.execute(f"ALTER TABLE {table}_now RENAME TO {table}")
