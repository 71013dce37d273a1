-- Versioned configuration: the applied policy and the site file, as text and compiled.
CREATE TABLE config_versions (
    id          INTEGER PRIMARY KEY,
    kind        TEXT NOT NULL CHECK (kind IN ('policy', 'site')),
    version     INTEGER NOT NULL,
    path        TEXT NOT NULL,
    text        TEXT NOT NULL,
    compiled    TEXT NOT NULL CHECK (json_valid(compiled)),
    applied_by  TEXT NOT NULL,
    applied_at  TEXT NOT NULL,
    active      INTEGER NOT NULL DEFAULT 0 CHECK (active IN (0, 1)),
    UNIQUE (kind, version)
);
CREATE UNIQUE INDEX one_active_config ON config_versions (kind) WHERE active = 1;

-- The site's inventory: what may be written into a job, and nothing else.
CREATE TABLE node_types (
    name         TEXT PRIMARY KEY,
    spec         TEXT NOT NULL CHECK (json_valid(spec)),
    source       TEXT NOT NULL,
    updated_at   TEXT NOT NULL
);

CREATE TABLE workloads (
    id           INTEGER PRIMARY KEY,
    application  TEXT NOT NULL,
    name         TEXT NOT NULL DEFAULT 'default',
    created_at   TEXT NOT NULL,
    UNIQUE (application, name)
);

-- One file taken over by advisor import: where observations came from.
CREATE TABLE imports (
    id           INTEGER PRIMARY KEY,
    file         TEXT NOT NULL,
    sha256       TEXT NOT NULL,
    imported_by  TEXT NOT NULL,
    imported_at  TEXT NOT NULL
);

-- One measured run. energy_quality keeps measured, estimated and missing apart.
CREATE TABLE observations (
    id               INTEGER PRIMARY KEY,
    workload_id      INTEGER NOT NULL REFERENCES workloads (id),
    node_type        TEXT NOT NULL,
    nodes            INTEGER NOT NULL CHECK (nodes >= 1),
    ranks_per_node   INTEGER NOT NULL CHECK (ranks_per_node >= 1),
    threads_per_node INTEGER NOT NULL CHECK (threads_per_node >= 1),
    freq_khz         INTEGER NOT NULL CHECK (freq_khz >= 0),
    time_s           REAL NOT NULL CHECK (time_s > 0),
    energy_j         REAL CHECK (energy_j > 0),
    fom              REAL CHECK (fom > 0),
    energy_quality   TEXT NOT NULL CHECK (energy_quality IN ('measured', 'estimated', 'missing')),
    meter            TEXT NOT NULL DEFAULT '',
    source           TEXT NOT NULL
                     CHECK (source IN ('import', 'sweep', 'confirm', 'job', 'run')),
    contributor      TEXT NOT NULL,
    account          TEXT NOT NULL DEFAULT '',
    scope            TEXT NOT NULL CHECK (scope IN ('own', 'account', 'all')),
    job_id           TEXT NOT NULL DEFAULT '',
    extra            TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(extra)),
    import_id        INTEGER REFERENCES imports (id),
    created_at       TEXT NOT NULL,
    CHECK ((energy_j IS NULL) = (energy_quality = 'missing'))
);
CREATE INDEX observations_by_workload ON observations (workload_id, node_type);

-- One fitted model version. options: 100-byte records, see advisor/core/option.py; the last
-- column, so that nothing else has to be read past it.
CREATE TABLE models (
    id             INTEGER PRIMARY KEY,
    workload_id    INTEGER NOT NULL REFERENCES workloads (id),
    node_type      TEXT NOT NULL,
    scope          TEXT NOT NULL CHECK (scope IN ('own', 'account', 'all')),
    owner          TEXT NOT NULL DEFAULT '',
    version        INTEGER NOT NULL,
    name           TEXT NOT NULL,
    state          TEXT NOT NULL CHECK (state IN ('fitted', 'suspended', 'replaced')),
    state_reason   TEXT NOT NULL DEFAULT '',
    energy_quality TEXT NOT NULL CHECK (energy_quality IN ('measured', 'estimated', 'missing')),
    n_train        INTEGER NOT NULL,
    stats          TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(stats)),
    created_at     TEXT NOT NULL,
    updated_at     TEXT NOT NULL,
    options        BLOB NOT NULL,
    UNIQUE (workload_id, node_type, scope, owner, version)
);
CREATE UNIQUE INDEX one_current_model
    ON models (workload_id, node_type, scope, owner) WHERE state <> 'replaced';
CREATE INDEX model_stamps ON models (id, updated_at) WHERE state <> 'replaced';

-- What was decided for a job: request, alternatives, choice and reason codes (JSON).
CREATE TABLE decisions (
    id             TEXT PRIMARY KEY,
    created_at     TEXT NOT NULL,
    scheduler      TEXT NOT NULL,
    hook           TEXT NOT NULL,
    user           TEXT NOT NULL,
    account        TEXT NOT NULL DEFAULT '',
    application    TEXT NOT NULL DEFAULT '',
    workload       TEXT NOT NULL DEFAULT '',
    node_type      TEXT NOT NULL DEFAULT '',
    mode           TEXT NOT NULL,
    changed        INTEGER NOT NULL CHECK (changed IN (0, 1)),
    holdout        INTEGER NOT NULL CHECK (holdout IN (0, 1)),
    model_id       INTEGER,
    policy_version INTEGER NOT NULL,
    record         TEXT NOT NULL CHECK (json_valid(record)),
    job_id         TEXT NOT NULL DEFAULT ''
);
CREATE INDEX decisions_by_job ON decisions (job_id) WHERE job_id <> '';
CREATE INDEX decisions_by_time ON decisions (created_at);

-- How a job came out, from the scheduler's accounting.
CREATE TABLE outcomes (
    job_id             TEXT NOT NULL,
    scheduler          TEXT NOT NULL,
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
    PRIMARY KEY (job_id, scheduler, submitted_at)
);

-- A sweep: asked for by a user or the hook, planned, run, confirmed.
CREATE TABLE training_requests (
    id           TEXT PRIMARY KEY,
    workload_id  INTEGER NOT NULL REFERENCES workloads (id),
    node_type    TEXT NOT NULL,
    user         TEXT NOT NULL,
    scheduler    TEXT NOT NULL,
    state        TEXT NOT NULL CHECK
                 (state IN ('requested', 'running', 'fitted', 'confirmed', 'failed', 'stopped')),
    detail       TEXT NOT NULL DEFAULT '',
    plan         TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(plan)),
    created_at   TEXT NOT NULL,
    updated_at   TEXT NOT NULL
);

CREATE TABLE training_runs (
    request_id     TEXT NOT NULL REFERENCES training_requests (id),
    seq            INTEGER NOT NULL,
    role           TEXT NOT NULL CHECK (role IN ('baseline', 'design', 'confirm')),
    configuration  TEXT NOT NULL CHECK (json_valid(configuration)),
    state          TEXT NOT NULL CHECK (state IN ('planned', 'running', 'done', 'failed')),
    attempts       INTEGER NOT NULL DEFAULT 0,
    observation_id INTEGER REFERENCES observations (id),
    detail         TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (request_id, seq)
);
