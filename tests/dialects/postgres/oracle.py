"""An application's statements on two databases, with a job on one of them: their outcomes and the rows at the end are equal.

All in one thread: after each step of the engine the application does something on both. At the end the server's own
statement is given to the database without a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import psycopg

from tests.dialects.postgres.stepping import application, on_engine, rows
from tideshift.ddl.machine import JOB, JobState
from tideshift.dialects.postgres import shadow
from tideshift.dialects.postgres.dialect import PostgresDialect

STEPS_MAX = 4_000
ACTS_MAX = 400
"""So much does the application write: a job that applies one row at a time would never catch up with one that never rests."""
SWAPPED = (JobState.DONE, JobState.SYNCED)
HOT = 40
ROWS = 300


@dataclass(frozen=True)
class KeyKind:
    """One kind of chunk key: its column's definition, and SQL that gives the n-th value."""

    definition: str
    value: Callable[[int], str]
    constraint: str = "PRIMARY KEY"


KEY_KINDS = {
    "int": KeyKind("int", str),
    "deferred": KeyKind("int", str, "PRIMARY KEY DEFERRABLE INITIALLY DEFERRED"),
    "smallint": KeyKind("smallint", str),
    "bigint": KeyKind("bigint", lambda n: str(n * 10**14 - 2 * 10**16)),
    "text": KeyKind('text COLLATE "C"', lambda n: f"'k''\\{n % 7}é{n}'"),
    "varchar": KeyKind("varchar(40)", lambda n: f"'{'Aab'[n % 3]}{n}'"),
    "char": KeyKind("char(9)", lambda n: f"'c{n}'"),
    "uuid": KeyKind("uuid", lambda n: f"md5('{n}')::uuid"),
    "bytea": KeyKind("bytea", lambda n: f"'\\x{n % 256:02x}{n:08x}'::bytea"),
    "numeric": KeyKind("numeric", lambda n: "'NaN'" if n == 5 else f"{n}.{'0' * (n % 4)}5"),
    "float": KeyKind("float8", lambda n: {5: "'NaN'", 6: "'-Infinity'", 7: "'-0'"}.get(n, f"{n}.1::float8 / 3")),
    "date": KeyKind("date", lambda n: "'infinity'" if n == 5 else f"'0002-01-01 BC'::date + {n * 1000}"),
    "timestamptz": KeyKind("timestamptz", lambda n: f"'2024-03-31 00:00+00'::timestamptz + {n} * interval '7 minutes'"),
    "inet": KeyKind("inet", lambda n: f"'10.0.{n % 250}.{n // 250}/{24 + n % 8}'::inet"),
    "interval": KeyKind("interval", lambda n: f"{n} * interval '25 hours'"),
    "enum": KeyKind("mood", lambda n: f"'m{n % 500}'"),
}
"""A value of a type that the server orders; where equal values have several texts, they are mixed."""
CHANGES = {
    "type": "ALTER TABLE t ALTER w TYPE bigint",
    "short": "ALTER TABLE t ALTER v TYPE varchar(9)",
    "using": "ALTER TABLE t ALTER x TYPE text USING coalesce(w::text, 'none') || v, ALTER x SET DEFAULT 'n', ADD COLUMN z int DEFAULT 3",
    "not null": "ALTER TABLE t ALTER w TYPE numeric, ALTER w SET NOT NULL",
    "unique": "ALTER TABLE t ADD CONSTRAINT wu UNIQUE (w), ALTER v TYPE varchar(60)",
    "another key": "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD CONSTRAINT up PRIMARY KEY (u), ADD COLUMN z uuid DEFAULT gen_random_uuid()",
    "order": "ALTER TABLE t MOVE COLUMN w FIRST",
    "dropped": "ALTER TABLE t DROP COLUMN x, ALTER v TYPE varchar(60)",
}
IN_PLACE = {
    "in place": "ALTER TABLE t ALTER w TYPE bigint",
    "in place, short": "ALTER TABLE t ALTER v TYPE varchar(9)",
    "in place, using": "ALTER TABLE t ALTER w TYPE text USING coalesce(w::text, 'none') || v",
    "in place, key": "ALTER TABLE t ALTER id TYPE bigint",
}
"""Those that are asked for in place: the columns stand in another order afterwards, and the application names its own."""
NATIVE = {"order": "SELECT 1"}
"""What the server has no statement for."""


class Application:
    """Draws statements and carries them out on both databases."""

    def __init__(self, random: Random, kind: KeyKind, urls: list[str], *, refusable: bool) -> None:
        self.random = random
        self.kind = kind
        self.refusable = refusable
        self.connections = [application(url) for url in urls]
        level = random.choice(("read committed", "repeatable read", "serializable"))
        for connection in self.connections:
            connection.execute(f"SET default_transaction_isolation = '{level}'".encode())
        self.done: list[str] = []
        self.calm = False
        """Whether no statement writes many rows."""

    def close(self) -> None:
        """Close."""
        for connection in self.connections:
            connection.close()

    def key(self) -> str:
        """A key, mostly a hot one."""
        return self.kind.value(self.random.randrange(HOT if self.random.random() < 0.7 else ROWS + 100))

    def row(self) -> str:
        """The values of a row but for its key; seldom one that a new shape may refuse."""
        random = self.random
        odd = self.refusable and random.random() < 0.02
        w = "NULL" if odd else str(random.randrange(10**6))
        v = f"'v{random.randrange(999)}'" if not odd else "'much too long for it'"
        return f"{random.randrange(10**6)}, {v}, {w}"

    def statement(self) -> list[str]:
        """One statement, or a transaction of several."""
        random, key = self.random, self.key()
        kinds: dict[str, Callable[[], list[str]]] = {
            "insert": lambda: [f"INSERT INTO t (id, u, v, w) VALUES ({key}, {self.row()})"],
            "nothing": lambda: [f"INSERT INTO t (id, u, v, w) VALUES ({key}, {self.row()}) ON CONFLICT (id) DO NOTHING"],
            "upsert": lambda: [f"INSERT INTO t (id, u, v, w) VALUES ({key}, {self.row()}) ON CONFLICT (id) DO UPDATE SET v = excluded.v, w = excluded.w"],
            "update": lambda: [f"UPDATE t SET (u, v, w) = ({self.row()}) WHERE id = {key}"],
            "many": lambda: [f"UPDATE t SET w = w + 1 WHERE id > {key} AND u % {300 if self.calm else 3} = 0"],
            "move": lambda: [f"UPDATE t SET id = {self.key()} WHERE id = {key}"],
            "delete": lambda: [f"DELETE FROM t WHERE id = {key}"],
            "hand on": self._hand_on,
            "swap": lambda: ["UPDATE t a SET u = b.u FROM t b WHERE (a.u, b.u) IN ((SELECT min(u), max(u) FROM t), (SELECT max(u), min(u) FROM t))"],
            "undone": lambda: ["BEGIN", f"DELETE FROM t WHERE id = {key}", f"UPDATE t SET w = 0 WHERE id = {self.key()}", "ROLLBACK"],
            "partly": lambda: ["BEGIN", f"UPDATE t SET w = 1 WHERE id = {key}", "SAVEPOINT s", "DELETE FROM t", "ROLLBACK TO s", f"DELETE FROM t WHERE id = {self.key()}", "COMMIT"],
            "refused": lambda: [f"INSERT INTO t (id, u, v, w) VALUES ({key}, -1, 'x', 1)"],
        }
        chosen = random.choice(list(kinds))
        if random.random() < 0.004:
            return ["TRUNCATE t", *kinds["insert"]()]
        return kinds[chosen]()

    def _hand_on(self) -> list[str]:
        """A unique value goes from one row to another within a transaction."""
        one, other = self.key(), self.key()
        return ["BEGIN", f"UPDATE t SET u = u + 5000000 WHERE id = {one}", f"UPDATE t SET u = (SELECT u - 5000000 FROM t WHERE id = {one}) WHERE id = {other}", "COMMIT"]

    def act(self) -> None:
        """Do one thing on both databases and compare what came of it."""
        statements = self.statement()
        outcomes = [[self._outcome(connection, one) for one in statements] for connection in self.connections]
        self.done.append(f"{statements} -> {outcomes[0]}")
        assert outcomes[0] == outcomes[1], f"{statements}: {outcomes[0]} with the job, {outcomes[1]} without"

    @staticmethod
    def _outcome(connection: psycopg.Connection[Any], statement: str) -> str:
        try:
            cursor = connection.execute(statement.encode())
        except psycopg.Error as error:
            if connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR and statement == "COMMIT":
                connection.execute("ROLLBACK")
            return f"{error.sqlstate}"
        return f"{cursor.statusmessage} {cursor.rowcount}"


@contextmanager
def log_is_long_from(log_rows: int | None) -> Iterator[None]:
    """Let the copy get its key's index, and the log be applied beside it, from so many log rows on; None: as it is."""
    kept, capabilities = shadow.COPY_LOG_ROWS, PostgresDialect.capabilities
    if log_rows is not None:
        shadow.COPY_LOG_ROWS = log_rows
        PostgresDialect.capabilities = replace(capabilities, copy_log_rows=log_rows)
    try:
        yield
    finally:
        shadow.COPY_LOG_ROWS, PostgresDialect.capabilities = kept, capabilities


def set_up(url: str, kind: KeyKind, random: Random, *, in_place: bool) -> None:
    """Make the table and its rows; the same for the same seed. A column that is changed in place is in no exclusion constraint."""
    with application(url) as connection:
        labels = ", ".join(f"'m{n}'" for n in range(500))
        connection.execute(f"CREATE TYPE mood AS ENUM ({labels})".encode())
        excluded = random.choice(("", ", EXCLUDE USING gist (int4range(u, u + 1) WITH &&) DEFERRABLE", f", EXCLUDE USING btree (u WITH =) WHERE ({'u' if in_place else 'w'} > 0)"))
        columns = f"id {kind.definition} {kind.constraint}, u int NOT NULL UNIQUE DEFERRABLE CHECK (u >= 0), x date DEFAULT '2024-01-01', v text, w int"
        connection.execute(f"CREATE TABLE t ({columns}{excluded})".encode())
        connection.execute("CREATE INDEX vi ON t (v)")
        for n in sorted(random.sample(range(ROWS), ROWS - 40)):
            connection.execute(f"INSERT INTO t (id, u, v, w) SELECT {kind.value(n)}, {1_000_000 + n}, 'v{n}', {n} WHERE NOT EXISTS (SELECT 1 FROM t WHERE id = {kind.value(n)})".encode())
        connection.execute("ANALYZE t")


def compare(urls: list[str], name: str, kind: KeyKind, random: Random) -> JobState:
    """Carry a change out beside an application; return how the job ended."""
    change = (CHANGES | IN_PLACE)[name]
    way: dict[str, Any] = {"strategy": "in_place", "allow_column_order_change": True} if name in IN_PLACE else {"strategy": "shadow_table"}
    seed = random.random()
    for url in urls:
        set_up(url, kind, Random(seed), in_place=name in IN_PLACE)
    app = Application(random, kind, urls, refusable=random.random() < 0.5)
    batch_size = random.choice((1, 7, 50))
    per_step = 0.2 if batch_size == 1 else random.choice((0.2, 0.6, 2.0))
    app.calm = batch_size == 1
    long_log = random.choice((None, None, 30))
    try:
        with on_engine(urls[0], seed=random.randrange(10**6), nodes=random.choice((1, 2))) as engine, log_is_long_from(long_log):
            parameters = {"batch_size": batch_size, "threads": 2}
            job_id = engine.ddl.submit(change, keep_old_seconds=0, parameters=parameters, **way).id
            swapped = False
            for _ in range(STEPS_MAX):
                engine.cluster.step()
                state = engine.ddl.job(job_id).state
                if state in SWAPPED and not swapped:  # from here on the application meets the new shape
                    swapped = True
                    with application(urls[1]) as connection:
                        connection.execute(NATIVE.get(name, change).encode())
                if state in JOB.final:
                    break
                for _ in range(int(per_step + random.random()) if len(app.done) < ACTS_MAX else 0):
                    app.act()
            job = engine.ddl.job(job_id)
            assert job.state in JOB.final, engine.ddl.show(job_id)
            for _ in range(20):
                app.act()
            engine.until(job_id, lambda _: engine.left_behind() == set())
    finally:
        app.close()
    return _same(urls, name, job, app)


def _same(urls: list[str], name: str, job: Any, app: Application) -> JobState:
    if job.state is JobState.SYNCED:
        assert job.warnings == list(job.current_plan.reshaping.warnings), job.warnings
    else:
        assert job.error is not None
        assert job.error["code"] == "value_refused", (job.error, app.done[-10:])
    columns = [name for (name,) in rows(urls[1], "SELECT attname::text FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 AND NOT attisdropped")]
    listed = ", ".join(f"{column}::text" for column in columns if not (name == "another key" and column == "z"))
    found, expected = (rows(url, f"SELECT {listed} FROM t ORDER BY {listed}") for url in urls)
    assert found == expected, [set(found) ^ set(expected), app.done[-30:]]
    return job.state
