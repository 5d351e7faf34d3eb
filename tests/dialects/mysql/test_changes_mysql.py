"""Changes that MariaDB makes by itself: the way is found by trying, the outcome is what the server's own statement gives."""

import pytest

from tests.dialects.mysql.stepping import execute, on_engine, shape
from tideshift.ddl.machine import JobState
from tideshift.dialects.mysql import estimate
from tideshift.dialects.mysql.names import own_name
from tideshift.errors import BadStatement, NotFound, PlanRefused

TABLE = """
CREATE TABLE {name} (id int AUTO_INCREMENT PRIMARY KEY, a int NOT NULL DEFAULT 3 COMMENT 'it''s', v varchar(30) CHECK (length(v) > 0), e enum('x','y'),
  d datetime DEFAULT current_timestamp(), w varchar(20) CHARACTER SET latin1, `order` int, `g``x` int, j json, KEY ka (a), KEY kd (d, a), UNIQUE ku (v),
  CONSTRAINT positive CHECK (a > 0)) COMMENT='rows; of all kinds'
"""
ROWS = "INSERT INTO {name} (a, d, v, e, w, `order`) SELECT 1 + seq, '2024-05-06 07:08:09' + INTERVAL seq HOUR, concat('v', seq), if(seq % 2, 'x', 'y'), 'é', seq FROM seq_1_to_50"
INSTANT = [
    "ADD COLUMN z int DEFAULT 5", "ADD COLUMN z int FIRST", "ADD COLUMN z varchar(9) NOT NULL DEFAULT 'it''s' AFTER a", "ADD COLUMN (y int, z int)",
    "DROP COLUMN e", "RENAME COLUMN a TO b", "CHANGE v w2 varchar(30)", "MODIFY v varchar(40)", "MODIFY e enum('x','y','z')", "ALTER COLUMN a SET DEFAULT 7",
    "ALTER a DROP DEFAULT", "RENAME INDEX ka TO kb", "COMMENT='now; this'", "ADD COLUMN z int AS (a + 1) VIRTUAL", "DROP INDEX ka", "DROP KEY ka, DROP INDEX ku",
    "ADD COLUMN y int, DROP COLUMN e, ALTER COLUMN a SET DEFAULT 1", "MODIFY a int NOT NULL DEFAULT 3 COMMENT 'other' FIRST", "MOVE COLUMN e FIRST",
    "ALTER INDEX ka IGNORED", "DROP COLUMN `g``x`", "MODIFY `order` int DEFAULT 4", "DEFAULT CHARACTER SET latin1", "RENAME COLUMN `g``x` TO `it's`",
    "DROP CONSTRAINT positive", "MODIFY v varchar(300)", "ALTER COLUMN v SET DEFAULT 'a,b; -- c'",
]  # fmt: skip
BUILT = [
    "ADD INDEX ki (a, v)", "ADD UNIQUE KEY (e, id)", "ADD KEY k1 (d), ADD UNIQUE k2 (v(5), id) COMMENT 'two'", "ADD CONSTRAINT uu UNIQUE (a)",
    "ADD INDEX (`g``x`, `order` DESC)",
]  # fmt: skip
DIRECT = [
    "MODIFY a bigint NOT NULL DEFAULT 3", "CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci", "ADD CHECK (a < 1000)", "FORCE",
    "DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)", "ADD COLUMN z int AS (a * 2) STORED", "ADD FULLTEXT INDEX f (v)",
    "ALTER COLUMN w TYPE text", "ALTER COLUMN e SET NOT NULL", "ADD COLUMN z int DEFAULT (a + 1)", "MODIFY e enum('y','x')", "ROW_FORMAT=COMPRESSED",
    "ADD INDEX ki (a), ADD COLUMN z int", "DROP COLUMN d", "MODIFY w varchar(20) CHARACTER SET utf8mb4", "ADD UNIQUE (v), MODIFY a smallint NOT NULL DEFAULT 3",
]  # fmt: skip
PORTABLE = {
    "MOVE COLUMN e FIRST": "MODIFY e enum('x','y') FIRST", "ALTER COLUMN w TYPE text": "MODIFY w text",
    "ALTER COLUMN e SET NOT NULL": "MODIFY e enum('x','y') NOT NULL",
}  # fmt: skip
CASES = {"instant": INSTANT[::2], "instant too": INSTANT[1::2], "native_online": BUILT, "direct": DIRECT}


def make(url, name):
    execute(url, TABLE.format(name=name), ROWS.format(name=name))


@pytest.fixture
def engine(mariadb_url):
    """The engine on a database with the table and a twin of it."""
    make(mariadb_url, "t")
    make(mariadb_url, "twin")
    with on_engine(mariadb_url) as engine:
        yield engine


def contents(url, name):
    columns = [row[0] for row in execute(url, f"SHOW COLUMNS FROM {name}")]
    return columns, execute(url, f"SELECT * FROM {name} ORDER BY id")


@pytest.mark.parametrize("cases", CASES)
def test_every_clause_goes_the_cheapest_way_and_gives_what_the_server_gives(engine, mariadb_url, cases):
    """INSTANT where the server can, an index beside the traffic, else at once while the table is small: shape and rows equal those of a twin."""
    way = cases.removesuffix(" too")
    for clause in CASES[cases]:
        for name in ("t", "twin"):
            execute(mariadb_url, f"DROP TABLE {name}")
            make(mariadb_url, name)
        before = execute(mariadb_url, "SHOW CREATE TABLE t")
        proposal = engine.ddl.plan(f"ALTER TABLE t {clause}")
        assert (clause, str(proposal.plan.strategy)) == (clause, way)
        assert execute(mariadb_url, "SHOW CREATE TABLE t") == before
        assert engine.left_behind() == set()

        job = engine.run(f"ALTER TABLE t {clause}")

        execute(mariadb_url, f"ALTER TABLE twin {PORTABLE.get(clause, clause)}")
        assert (clause, job.state, job.warnings) == (clause, JobState.SYNCED, [])
        assert (clause, shape(mariadb_url, "t")) == (clause, shape(mariadb_url, "twin"))
        assert contents(mariadb_url, "t") == contents(mariadb_url, "twin"), clause
        assert (engine.left_behind(), engine.artifacts(job.id)) == (set(), [])


def test_indexes_are_made_and_dropped_by_their_own_statements(engine, mariadb_url):
    """CREATE and DROP INDEX, each with the table that the index is of."""
    for statement in ("CREATE UNIQUE INDEX i ON t (a, e)", "DROP INDEX ka ON t", f"CREATE INDEX j ON {mariadb_url.partition('@/')[2].partition('?')[0]}.t (v) COMMENT 'x'"):
        assert engine.run(statement).state is JobState.SYNCED
    execute(mariadb_url, "CREATE UNIQUE INDEX i ON twin (a, e)", "DROP INDEX ka ON twin", "CREATE INDEX j ON twin (v) COMMENT 'x'")

    assert shape(mariadb_url, "t") == shape(mariadb_url, "twin")


def test_a_table_gets_another_name(engine, mariadb_url):
    """With its rows, its triggers and what refers to it."""
    execute(mariadb_url, "CREATE TABLE child (t int, FOREIGN KEY (t) REFERENCES t (id))", "CREATE TRIGGER noted BEFORE INSERT ON t FOR EACH ROW SET NEW.e = 'x'")

    job = engine.run("ALTER TABLE t RENAME TO `new name`")

    assert job.state is JobState.SYNCED
    assert shape(mariadb_url, "new name") == shape(mariadb_url, "twin")
    assert "REFERENCES `new name`" in shape(mariadb_url, "child").foreign_keys[0]
    assert execute(mariadb_url, "INSERT INTO `new name` (v, e) VALUES ('z', 'y')", "SELECT e FROM `new name` WHERE v = 'z'") == [("x",)]


def test_foreign_keys_stay_and_one_is_dropped(engine, mariadb_url):
    """A change of the table keeps its foreign keys, and one of them can be dropped by its name."""
    execute(mariadb_url, "CREATE TABLE parent (id int PRIMARY KEY)", "ALTER TABLE t ADD p int, ADD CONSTRAINT fk FOREIGN KEY (p) REFERENCES parent (id)")

    assert engine.run("ALTER TABLE t ADD COLUMN z int").state is JobState.SYNCED
    assert len(shape(mariadb_url, "t").foreign_keys) == 1
    assert engine.run("ALTER TABLE t DROP FOREIGN KEY fk").state is JobState.SYNCED
    assert shape(mariadb_url, "t").foreign_keys == ()


REFUSED = {
    "ADD COLUMN z int, ALGORITHM=COPY": "ALGORITHM is left out",
    "ADD COLUMN z int, LOCK=SHARED": "LOCK is left out",
    "WAIT 5": "WAIT is left out",
    "ADD PARTITION (PARTITION p VALUES LESS THAN (5))": "partitions",
    "PARTITION BY HASH (id)": "partitions",
    "ADD FOREIGN KEY (a) REFERENCES twin (id)": "foreign key",
    "ADD COLUMN z int REFERENCES twin (id)": "foreign key",
    "DISCARD TABLESPACE": "every row",
    "ORDER BY a": "ORDER BY",
    "DROP COLUMN nothing": "nothing",
    "MODIFY nothing int": "'nothing' in 't'",
    "ADD COLUMN a int": "Duplicate column name",
    "ADD INDEX ku (a)": "Duplicate key name",
    "ENGINE=NoSuchEngine": "storage engine",
    "ADD COLUMN z nonsense(": None,
    "ALTER COLUMN v TYPE text USING upper(v)": "USING",
    "RENAME TO twin": "already",
    "SET STRICT": "SetOption",
}


@pytest.mark.parametrize("clause", REFUSED)
def test_what_cannot_be_done_right_is_refused_before_anything_is_made(engine, mariadb_url, clause):
    """The reason is told, and neither a job nor an object is made; a clause about algorithm or lock would be overruled or overrule ours (D7)."""
    before = execute(mariadb_url, "SHOW TABLES")

    with pytest.raises((PlanRefused, BadStatement)) as refused:
        engine.ddl.submit(f"ALTER TABLE t {clause}")

    assert (REFUSED[clause] or "") in refused.value.message
    assert (execute(mariadb_url, "SHOW TABLES"), engine.left_behind(), engine.ddl.jobs()[0]) == (before, set(), [])


@pytest.mark.parametrize(
    "statement", ["ALTER TABLE nowhere ADD x int", "DROP INDEX nothing ON t", "ALTER TABLE t ALTER COLUMN nothing TYPE text", "ALTER TABLE t DROP FOREIGN KEY nothing"]
)
def test_what_is_not_there_is_not_found(engine, statement):
    """An unknown table, index, column or foreign key is said to be unknown."""
    with pytest.raises(NotFound):
        engine.ddl.plan(statement)


@pytest.mark.parametrize(
    ("clause", "of"), [("ENGINE=MyISAM", "its engine is MyISAM"), ("", "not a table but a view"), ("read only", "read-only")]
)
def test_tables_that_cannot_be_changed_are_refused(engine, mariadb_server, mariadb_url, clause, of):
    """Another engine, a view, and a server that takes no writes."""
    if clause == "read only":
        mariadb_server.execute("SET GLOBAL read_only = 1")
    elif clause:
        execute(mariadb_url, f"ALTER TABLE t {clause}")
    else:
        execute(mariadb_url, "DROP TABLE t", "CREATE VIEW t AS SELECT * FROM twin")
    try:
        with pytest.raises((PlanRefused, NotFound)) as refused:
            engine.ddl.plan("ALTER TABLE t ADD COLUMN z int")
    finally:
        mariadb_server.execute("SET GLOBAL read_only = 0")

    assert of in refused.value.message


def test_a_large_table_is_not_written_again_under_a_lock(engine, monkeypatch):
    """What would take longer than the budget is refused, and done when it is asked for, up to a limit; an index is built beside the traffic all the same."""
    monkeypatch.setattr(estimate, "LOCK_BUDGET_SECONDS", 0.0)

    with pytest.raises(PlanRefused, match="written again under a lock"):
        engine.ddl.plan("ALTER TABLE t MODIFY a bigint NOT NULL")
    assert str(engine.ddl.plan("ALTER TABLE t MODIFY a bigint NOT NULL", strategy="direct").plan.strategy) == "direct"
    assert str(engine.ddl.plan("ALTER TABLE t ADD INDEX ki (a)").plan.strategy) == "native_online"
    with pytest.raises(PlanRefused) as refused:
        engine.ddl.plan("ALTER TABLE t ADD INDEX ki (a, v), DROP INDEX kd")
    assert "statements of their own" in refused.value.hint
    with pytest.raises(PlanRefused, match="must be written"):
        engine.ddl.plan("ALTER TABLE t ADD INDEX ki (a)", strategy="instant")
    monkeypatch.setattr(estimate, "ASKED_SECONDS_MAX", 0.0)
    with pytest.raises(PlanRefused, match="written again under a lock"):
        engine.ddl.plan("ALTER TABLE t MODIFY a bigint NOT NULL", strategy="direct")


@pytest.mark.parametrize(
    ("clause", "word"), [("MODIFY v varchar(2)", "'v' at row"), ("ADD UNIQUE (e)", "Duplicate entry 'x'"), ("MODIFY a tinyint NOT NULL CHECK (a < 5)", "a")]
)
def test_a_row_that_does_not_fit_ends_the_job_and_changes_nothing(engine, mariadb_url, clause, word):
    """The server's own words name the row or the value (A1, C9), and neither the table nor the catalogue keeps anything of it."""
    job = engine.run(f"ALTER TABLE t {clause}")

    assert job.state in (JobState.CANCELLED, JobState.ROLLBACK_DONE)
    assert job.error["code"] == "value_refused"
    assert word in job.error["message"]
    assert shape(mariadb_url, "t") == shape(mariadb_url, "twin")
    assert (engine.left_behind(), contents(mariadb_url, "t")) == (set(), contents(mariadb_url, "twin"))


def test_names_as_long_as_the_server_takes_them(engine, mariadb_url):
    """64 characters for the table, the column and the index (D6); two tables that begin alike do not meet."""
    long = "x" * 63
    execute(mariadb_url, *(f"CREATE TABLE {long}{end} (id int PRIMARY KEY, {'c' * 64} int)" for end in "yz"))

    for end in "yz":
        assert engine.run(f"CREATE INDEX {'i' * 64} ON {long}{end} ({'c' * 64})").state is JobState.SYNCED
        assert shape(mariadb_url, long + end).key_named(f"`{'i' * 64}`")


def test_a_copy_that_a_killed_plan_left_is_taken_away_by_the_next(engine, mariadb_url):
    """It is named as left behind meanwhile; one whose session still lives stays alone."""
    database = mariadb_url.partition("@/")[2].partition("?")[0]
    stale = own_name(0, f"`{database}`.`t`", "trial_999999999")
    execute(mariadb_url, f"CREATE TABLE {stale} LIKE t")
    assert engine.left_behind() == {("table", f"`{database}`.`{stale}`")}

    engine.ddl.plan("ALTER TABLE t ADD COLUMN z int")

    assert engine.left_behind() == set()


def test_a_table_that_changed_meanwhile_ends_the_job(engine, mariadb_url):
    """What was planned for another shape is not carried out on this one."""
    job = engine.ddl.submit("ALTER TABLE t ADD INDEX ki (a), ADD INDEX kj (v)")
    engine.until(job.id, lambda job: job.stage == 1)
    execute(mariadb_url, "ALTER TABLE t ADD COLUMN theirs int")

    job = engine.finish(job.id)

    assert (job.state, job.error["code"]) == (JobState.ROLLBACK_DONE, "schema_changed")
    assert [column[0] for column in execute(mariadb_url, "SHOW COLUMNS FROM t")][-1] == "theirs"
    assert shape(mariadb_url, "t").keys == shape(mariadb_url, "twin").keys
