-- What reads and writes of files take on a file system, as a node of one type sees it.
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
    bench_id        INTEGER NOT NULL REFERENCES benches (id),
    UNIQUE (node_type, file_system, operation, random, block_b)
);
