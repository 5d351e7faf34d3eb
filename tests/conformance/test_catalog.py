"""What a dialect's catalogue tells, and what its designs are: the protocol Catalog and `Dialect.design`, on each dialect."""

import json

import pytest

from tests.conformance.planned import JOB_ID, TO_TEXT
from tideshift.ddl.change import TableName
from tideshift.ddl.dialect import DoctorFinding, Reshaping, Strategy
from tideshift.ddl.statement import parse_statement
from tideshift.errors import BadStatement, NotFound, PlanRefused
from tideshift.store import bootstrap
from tideshift.store.tables import METADATA

MANY = 60_000
FILL = (
    f"INSERT INTO {{table}} (k, c, d) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MANY})"
    " SELECT i, i, 'row ' || i FROM n"
)
T = TableName(None, "t")


# ── row estimates ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rows", [0, 1, 12])
def test_an_estimate_that_is_called_exact_is(plan, rows):
    """A number of rows is only called exact when the table has just that many."""
    change = plan(rows=rows)
    with change.reading() as tx:
        estimate, exact = change.catalog.row_estimate(tx, T)

    assert estimate >= 0
    assert not exact or estimate == rows


def test_a_long_table_is_not_counted(plan):
    """The answer is fast whatever the table's size: nobody counts tens of thousands of rows for it, and it says so."""
    change = plan(rows=0)
    change.run(FILL)
    with change.reading() as tx:
        estimate, exact = change.catalog.row_estimate(tx, T)

    assert not exact
    assert estimate >= 0


def test_a_table_that_is_not_there_has_no_estimate(plan):
    """It is not found, instead of empty."""
    change = plan()
    with change.reading() as tx, pytest.raises(NotFound):
        change.catalog.row_estimate(tx, TableName(None, "nowhere"))


# ── objects ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_table_of_the_users_and_no_system_table_is_an_object(plan):
    """What is not a job's is not listed, though its name begin like a job's."""
    change = plan(around=("CREATE TABLE tideshift_notes (id integer)",))
    bootstrap.bootstrap(change.database)

    assert change.objects() == set()


def test_objects_are_what_a_job_made(installed):
    """Everything listed is an artifact; every table and trigger of the job is listed, until it is dropped."""
    made = {artifact.name for artifact in installed.artifacts}
    tables = {artifact.name for artifact in installed.artifacts if artifact.kind in ("shadow", "log", "trigger")}

    found = installed.objects()

    assert tables <= found <= made
    for artifact in reversed(installed.artifacts):
        with installed.writing() as tx:
            installed.dialect.remains.drop(tx, artifact)
        assert artifact.name not in installed.objects()
    assert installed.objects() == set()


def test_objects_of_two_jobs_are_told_apart(plan):
    """The names have the job in them, so that none is taken for another job's."""
    change = plan()
    one = {artifact.name for artifact in change.artifacts}
    other = {artifact.name for artifact in change.shadow.artifacts(type(change.reorg)(JOB_ID + 1, change.stored))}

    assert len(one) == len(change.artifacts)
    assert not one & other


# ── findings ──────────────────────────────────────────────────────────────────────────────────────────────────────


def assert_well_said(findings):
    assert all(isinstance(finding, DoctorFinding) and finding.code and finding.message for finding in findings)
    assert len({finding.code for finding in findings}) == len(findings)


def test_findings_never_raise(plan):
    """Whatever the state of the database: new, with system tables, in the middle of a job, and while somebody writes."""
    change = plan()
    assert_well_said(change.catalog.findings(change.database))
    bootstrap.bootstrap(change.database)
    assert_well_said(change.catalog.findings(change.database))
    change.install()
    with change.writing() as tx:
        tx.run_verbatim(change.in_t("UPDATE {table} SET c = c + 1"))

        assert_well_said(change.catalog.findings(change.database))


def test_durability_is_told_in_sentences(plan):
    """Before there are system tables too: the setting that decides, and what each kind of commit can lose by it."""
    change = plan()
    with change.reading() as tx:
        told = change.catalog.durability(tx)

    assert all(getattr(told, part) for part in ("setting", "commands", "rows", "application"))


# ── designs ───────────────────────────────────────────────────────────────────────────────────────────────────────

STRATEGIES = {
    "ALTER TABLE t ADD COLUMN e integer": Strategy.INSTANT,
    "CREATE INDEX t_c ON t (c)": Strategy.DIRECT,
    TO_TEXT: Strategy.SHADOW_TABLE,
}


@pytest.mark.parametrize(("statement", "strategy"), STRATEGIES.items(), ids=[str(strategy) for strategy in STRATEGIES.values()])
def test_a_design_goes_the_way_that_was_asked_for(plan, statement, strategy):
    """It names the table, what it touches, its SQL with each lock, and the way; where rows are copied also the key."""
    design = plan(statement=statement, strategy=strategy).designed

    assert (design.table.name, design.strategy) == ("t", strategy)
    assert [claim.name for claim in design.claims if claim.mode == "exclusive"]
    assert design.sql_steps
    assert all(step.phase and step.sql and step.lock and step.hold for step in design.sql_steps)
    assert bool(design.key_columns) == (strategy is Strategy.SHADOW_TABLE)


@pytest.mark.parametrize("statement", STRATEGIES)
def test_a_design_makes_nothing_and_is_the_same_again(plan, statement):
    """It only reads, so that a plan costs nothing, and a table that stays as it is leads to the same design."""
    change = plan()
    before = change.tables(), change.columns(), change.rows()
    with change.reading() as tx:
        first, second = (change.dialect.design(tx, parse_statement(statement)) for _ in range(2))

    assert first == second
    assert (change.tables(), change.columns(), change.rows()) == before
    assert change.objects() == set()


@pytest.mark.parametrize("statement", STRATEGIES)
def test_a_design_survives_being_stored(plan, statement):
    """Everything that the work needs is in the record, which is JSON; the SQL steps are for reading only."""
    change = plan()
    with change.reading() as tx:
        design = change.dialect.design(tx, parse_statement(statement))

    written = json.dumps(design.as_record())

    assert json.dumps(Reshaping.from_record(json.loads(written)).as_record()) == written


@pytest.mark.parametrize("statement", ["ALTER TABLE nowhere ALTER COLUMN c TYPE text", "ALTER TABLE t ALTER COLUMN nothing TYPE text", "DROP INDEX none"])
def test_what_is_not_there_is_not_found(plan, statement):
    """An unknown table, column or index is said to be unknown, before anything is made."""
    change = plan()

    with change.reading() as tx, pytest.raises(NotFound):
        change.dialect.design(tx, parse_statement(statement))


def test_a_refusal_gives_every_reason(plan):
    """Who corrects one mistake need not come back for the next one."""
    change = plan()

    with change.reading() as tx, pytest.raises(PlanRefused) as refused:
        change.dialect.design(tx, parse_statement("ALTER TABLE t ADD COLUMN c integer, ADD COLUMN d integer"))

    reasons = refused.value.fields["reasons"]
    assert len(reasons) == 2
    assert all(word in reason for word, reason in zip(("'c'", "'d'"), reasons, strict=True))
    assert all(reason in refused.value.message for reason in reasons)


def test_a_text_that_is_wrong_by_itself_is_pointed_at(plan):
    """The error has the text of the user's and the place in it, so that a person is shown where."""
    change = plan()

    with change.reading() as tx, pytest.raises(BadStatement) as refused:
        change.dialect.design(tx, parse_statement("ALTER TABLE t ALTER COLUMN c TYPE text USING d || nothing"))

    assert (refused.value.fields["fragment"], refused.value.fields["offset"]) == ("d || nothing", 5)


def test_a_system_table_is_no_table_to_change(plan):
    """What tideshift lives on cannot be changed by it."""
    change = plan()
    bootstrap.bootstrap(change.database)
    (name, *_) = sorted(table.name for table in METADATA.sorted_tables)

    with change.reading() as tx, pytest.raises((NotFound, PlanRefused)):
        change.dialect.design(tx, parse_statement(f"ALTER TABLE tideshift_{name} ADD COLUMN e integer"))


def test_capabilities_can_be_kept(dialect):
    """The times are positive, and nothing is kept for less than no time."""
    assert dialect.capabilities.chunk_target_seconds > 0
    assert dialect.capabilities.keep_old_seconds >= 0
