-- What a profiler said of the threads of one run, as it wrote it (text, compressed); scale: the
-- scaling parameters.
CREATE TABLE profiled_runs (
    id           INTEGER PRIMARY KEY,
    application  TEXT NOT NULL,
    role         TEXT NOT NULL CHECK (role IN ('train', 'test')),
    scale        TEXT NOT NULL CHECK (json_valid(scale)),
    file         TEXT NOT NULL,
    digest       TEXT NOT NULL,
    content      BLOB NOT NULL,
    contributor  TEXT NOT NULL,
    created_at   TEXT NOT NULL,
    UNIQUE (application, digest)
);

-- What was done with an application's profiles, step by step: with what, and what came out.
CREATE TABLE profile_steps (
    id           INTEGER PRIMARY KEY,
    application  TEXT NOT NULL,
    number       INTEGER NOT NULL CHECK (number >= 1),
    action       TEXT NOT NULL,
    arguments    TEXT NOT NULL CHECK (json_valid(arguments)),
    result       TEXT NOT NULL CHECK (json_valid(result)),
    made_by      TEXT NOT NULL,
    created_at   TEXT NOT NULL,
    UNIQUE (application, number)
);
