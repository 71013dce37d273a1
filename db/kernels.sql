-- Profiles of the suite advise everybody and have no contributor; those of a user's own kernels
-- advise the jobs of their scope.
CREATE TABLE profiles_now (
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
INSERT INTO profiles_now SELECT *, '', 'all' FROM profiles;
DROP TABLE profiles;
ALTER TABLE profiles_now RENAME TO profiles;
