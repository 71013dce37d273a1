-- Generated from db/migrations.py: python -m advisor.store.schema > db/schema.sql

CREATE TABLE "_sqlite_migrations" (
   "id" INTEGER PRIMARY KEY,
   "migration_set" TEXT,
   "name" TEXT,
   "applied_at" TEXT
);

CREATE UNIQUE INDEX "idx__sqlite_migrations_migration_set_name"
    ON "_sqlite_migrations" ("migration_set", "name");

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

CREATE TABLE workloads (
    id           INTEGER PRIMARY KEY,
    application  TEXT NOT NULL,
    name         TEXT NOT NULL DEFAULT 'default',
    created_at   TEXT NOT NULL, hidden INTEGER NOT NULL DEFAULT 0 CHECK (hidden IN (0, 1)),
    UNIQUE (application, name)
);

CREATE TABLE imports (
    id           INTEGER PRIMARY KEY,
    file         TEXT NOT NULL,
    sha256       TEXT NOT NULL,
    imported_by  TEXT NOT NULL,
    imported_at  TEXT NOT NULL
);

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
    created_at       TEXT NOT NULL, method TEXT NOT NULL DEFAULT ''
    CHECK (method IN ('', 'variables', 'request')), space TEXT NOT NULL DEFAULT ''
    CHECK (space = '' OR json_valid(space)), cluster TEXT NOT NULL DEFAULT '',
    CHECK ((energy_j IS NULL) = (energy_quality = 'missing'))
);

CREATE INDEX observations_by_workload ON observations (workload_id, node_type);

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
    options        BLOB NOT NULL, sizes BLOB NOT NULL DEFAULT x'',
    UNIQUE (workload_id, node_type, scope, owner, version)
);

CREATE UNIQUE INDEX one_current_model
    ON models (workload_id, node_type, scope, owner) WHERE state <> 'replaced';

CREATE INDEX model_stamps ON models (id, updated_at) WHERE state <> 'replaced';

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
, cluster TEXT NOT NULL DEFAULT '');

CREATE INDEX decisions_by_job ON decisions (job_id) WHERE job_id <> '';

CREATE INDEX decisions_by_time ON decisions (created_at);

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

CREATE TABLE bench_requests (
    id              INTEGER PRIMARY KEY,
    microbenchmark  TEXT NOT NULL,
    streams         TEXT NOT NULL CHECK (json_valid(streams)),
    wanted_for      TEXT NOT NULL,
    created_at      TEXT NOT NULL,
    UNIQUE (microbenchmark, streams)
);

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
    created_at        TEXT NOT NULL, by_hand INTEGER NOT NULL DEFAULT 0 CHECK (by_hand IN (0, 1)),
    UNIQUE (workload_id, base, node_type, contributor),
    CHECK ((energy_ratio IS NULL) = (energy_error_pct IS NULL)),
    CHECK ((energy_ratio IS NULL) = (energy_source IS NULL)),
    CHECK ((similarity IS NULL) = (similarity_max IS NULL))
);

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
, cluster TEXT NOT NULL DEFAULT '');

CREATE INDEX signatures_by_workload ON signatures (workload_id, node_type);

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
, cluster TEXT NOT NULL DEFAULT '');

CREATE UNIQUE INDEX one_trial_at_a_time
    ON trials (workload_id, node_type, scope, owner) WHERE state = 'pending';

CREATE TABLE "forgotten" (
    id            INTEGER PRIMARY KEY,
    workload_id   INTEGER NOT NULL REFERENCES workloads (id),
    forgotten_at  TEXT NOT NULL,
    forgotten_by  TEXT NOT NULL,
    kind          TEXT NOT NULL CHECK (kind IN ('models', 'observations', 'characterisations',
                  'rankings', 'signatures', 'trials')),
    record        TEXT NOT NULL CHECK (json_valid(record))
);

CREATE TABLE summed (
    key TEXT PRIMARY KEY,
    at  TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX signatures_by_job ON signatures (job_id) WHERE job_id <> '';

CREATE TABLE "profiles" (
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
    contributor         TEXT NOT NULL DEFAULT '',
    scope               TEXT NOT NULL DEFAULT 'all' CHECK (scope IN ('own', 'account', 'all')),
    UNIQUE (node_type, microbenchmark, streams, threads, contributor)
);

CREATE TABLE file_systems (
    id              INTEGER PRIMARY KEY,
    node_type       TEXT NOT NULL,
    file_system     TEXT NOT NULL,
    kind            TEXT NOT NULL,
    operation       TEXT NOT NULL CHECK (operation IN ('read', 'write')),
    random          INTEGER NOT NULL CHECK (random IN (0, 1)),
    block_b         INTEGER NOT NULL CHECK (block_b >= 1),
    time_per_op_us  REAL NOT NULL CHECK (time_per_op_us > 0),
    direct          INTEGER NOT NULL CHECK (direct IN (0, 1)),
    spread          REAL NOT NULL CHECK (spread >= 0),
    repeats         INTEGER NOT NULL CHECK (repeats >= 1),
    bench_id        INTEGER NOT NULL REFERENCES benches (id), cached_us REAL CHECK (cached_us > 0),
    UNIQUE (node_type, file_system, operation, random, block_b)
);

CREATE TABLE pruned_rows (
    id         INTEGER PRIMARY KEY,
    pruned_at  TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('decisions', 'outcomes', 'observations', 'horizon')),
    record     TEXT NOT NULL CHECK (json_valid(record))
);

CREATE INDEX pruned_rows_by_time ON pruned_rows (pruned_at);

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

CREATE TABLE count_laws (
    application  TEXT PRIMARY KEY,
    laws         TEXT NOT NULL CHECK (json_valid(laws)),
    created_at   TEXT NOT NULL
) WITHOUT ROWID;

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

CREATE INDEX decisions_by_user ON decisions (user, created_at);

CREATE INDEX observations_by_job ON observations (job_id) WHERE job_id <> '';

CREATE TABLE days (
    day     TEXT PRIMARY KEY,
    whole   INTEGER NOT NULL CHECK (whole IN (0, 1)),
    counts  TEXT NOT NULL CHECK (json_valid(counts))
) WITHOUT ROWID;

CREATE TABLE cap_trials (
    decision_id   TEXT PRIMARY KEY,
    identity      TEXT NOT NULL,
    user          TEXT NOT NULL,
    created_at    TEXT NOT NULL,
    job_id        TEXT NOT NULL DEFAULT '',
    scheduler     TEXT NOT NULL DEFAULT '',
    submitted_at  TEXT NOT NULL DEFAULT ''
, cluster TEXT NOT NULL DEFAULT '') WITHOUT ROWID;

CREATE INDEX cap_trials_by_identity ON cap_trials (identity, created_at);

CREATE UNIQUE INDEX one_cap_trial_at_a_time ON cap_trials (identity) WHERE job_id = '';

CREATE TABLE clusters (
    name       TEXT NOT NULL CHECK (name <> ''),
    scheduler  TEXT NOT NULL,
    since      TEXT NOT NULL,
    PRIMARY KEY (name, scheduler)
) WITHOUT ROWID;

CREATE UNIQUE INDEX one_signature_of_a_job
    ON signatures (workload_id, node_type, source, contributor, job_id, cluster)
    WHERE job_id <> '';

CREATE TABLE "node_types" (
    cluster      TEXT NOT NULL DEFAULT '',
    name         TEXT NOT NULL,
    spec         TEXT NOT NULL CHECK (json_valid(spec)),
    source       TEXT NOT NULL,
    updated_at   TEXT NOT NULL,
    hardware     TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (cluster, name)
);

CREATE TABLE "outcomes" (
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

CREATE TABLE "day_sums" (
    day                 TEXT NOT NULL,
    cluster TEXT NOT NULL DEFAULT '',
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
    PRIMARY KEY (day, cluster, application, workload)
) WITHOUT ROWID;

CREATE TABLE "months" (
    month        TEXT NOT NULL,
    cluster TEXT NOT NULL DEFAULT '',
    application  TEXT NOT NULL,
    node_type    TEXT NOT NULL,
    decisions    INTEGER NOT NULL DEFAULT 0,
    changed      INTEGER NOT NULL DEFAULT 0,
    outcomes     INTEGER NOT NULL DEFAULT 0,
    worse        INTEGER NOT NULL DEFAULT 0,
    node_s       REAL NOT NULL DEFAULT 0,
    energy_j     REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (month, cluster, application, node_type)
);
