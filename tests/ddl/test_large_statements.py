"""Jobs that are too large: a statement of megabytes, or thousands of actions, is stored whole or refused; nothing is half stored."""

import pytest
from sqlalchemy import func, select

from tideshift.ddl import tables
from tideshift.ddl.validity import ACTIONS_MAX
from tideshift.errors import BadStatement, PlanRefused
from tideshift.store import points
from tideshift.store.tables import event

MEGABYTE = 1 << 20
PARAMETERS = {"batch_size": 10, "lock_share": 100}
COMMENT = f"ALTER TABLE t /* {'why ' * MEGABYTE} */ ALTER COLUMN c TYPE TEXT"
LARGE = {
    "a comment": COMMENT,
    "an expression": f"ALTER TABLE t ALTER COLUMN c TYPE TEXT USING CASE c WHEN '{'x' * 2 * MEGABYTE}' THEN 'never' ELSE c END",
}


def stored(engine):
    """How many jobs, live and finished, and how many events there are."""
    with engine.database.transaction(write=False) as tx:
        return [tx.execute(select(func.count()).select_from(table)).scalar_one() for table in (tables.job, tables.job_history, event)]


def added(count):
    """A statement that adds so many columns."""
    return f"ALTER TABLE t {', '.join(f'ADD COLUMN added_{n} INTEGER DEFAULT {n}' for n in range(count))}"


@pytest.mark.parametrize("statement", LARGE.values(), ids=LARGE)
def test_a_statement_of_megabytes_is_stored_whole_and_carried_out(engine, statement):
    """The job's row has every letter of it, live and in the history, and the job ends as any other."""
    job = engine.ddl.submit(statement, parameters=PARAMETERS, strategy="shadow_table")

    assert engine.job(job.id).query == statement
    assert engine.ddl.show(job.id)["query"] == statement
    engine.run_to(job.id)
    assert engine.job(job.id).query == statement
    engine.assert_changed(job.id)


def test_as_many_actions_as_may_be_are_stored_whole_and_carried_out(engine):
    """All of them are in the job, and all of them are done."""
    job = engine.ddl.submit(added(ACTIONS_MAX), parameters=PARAMETERS)

    engine.run_to(job.id)

    assert len(engine.job(job.id).change["actions"]) == ACTIONS_MAX
    assert str(engine.job(job.id).state) == "synced"
    assert engine.user_sql("SELECT count(*) FROM pragma_table_info('t')") == [(3 + ACTIONS_MAX,)]


TOO_MUCH = {
    "one action too many": (added(ACTIONS_MAX + 1), BadStatement, f"this has {ACTIONS_MAX + 1}"),
    "thousands of rules": (f"ALTER TABLE t {', '.join(f'ADD CHECK (c <> -{n})' for n in range(1, 20_001))}", BadStatement, "this has 20000"),
    "an expression too deep": (f"ALTER TABLE t ALTER COLUMN c TYPE TEXT USING c{' + 1' * 5_000}", PlanRefused, "Expression tree is too large"),
}


@pytest.mark.parametrize(("statement", "error", "reason"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_what_is_too_much_is_refused_with_its_reason(engine, statement, error, reason):
    """Before anything is written, and at once: no job, no event, and the table is as it was."""
    before = stored(engine)

    with pytest.raises(error) as refused:
        engine.ddl.submit(statement)

    assert reason in refused.value.message
    assert stored(engine) == before
    assert engine.catalogue() == engine.before


def test_nothing_of_a_large_job_is_half_stored(engine, failpoints):
    """Whichever statement of its submission fails, there is no job and no event; at last it is stored whole."""
    before, statement = stored(engine), COMMENT.replace("why " * MEGABYTE, "why " * 10_000)
    for number in range(100):
        failpoints.enable(points.AFTER_STATEMENT, f"skip({number}) 1*raise(RuntimeError)", may_miss=True)
        try:
            job = engine.ddl.submit(statement, parameters=PARAMETERS, strategy="shadow_table")
        except RuntimeError:
            failpoints.disable(points.AFTER_STATEMENT)
            assert stored(engine) == before, f"statement {number + 1}"
        else:
            break
    failpoints.disable(points.AFTER_STATEMENT)

    assert number > 3
    assert engine.job(job.id).query == statement
    assert stored(engine)[0] == 1
