"""Types written by their authors: the page's program on real databases, live parameters, cursors, and what an author may leave out."""

import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.cli.programs import RUN_SECONDS, environment
from tests.databases import opened
from tideshift import dxf
from tideshift.dxf.commands import Verdict
from tideshift.dxf.machine import SubtaskState, TaskState
from tideshift.errors import InvalidParameter

PAGE = Path(__file__).parents[2] / "docs" / "dxf-authoring.md"
CUSTOMERS = 900
ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For what no database decides."""


def test_the_program_of_the_page_encrypts_every_row(database_url, database, tmp_path):
    """Each row once, with the batch size that was modified on the way; submitted again it is refused."""
    with database.transaction() as tx:
        table = "public.customer" if database.driver.name == "postgres" else "customer"
        tx.run_verbatim(f"DROP TABLE IF EXISTS {table}")
        tx.run_verbatim(f"CREATE TABLE {table} (id integer PRIMARY KEY, secret text)")
        count = f"WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {CUSTOMERS})"
        tx.run_verbatim(f"INSERT INTO {table} {count} SELECT i, 'secret' FROM c")
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    program = program.replace('"customer"', f'"{table}"')

    ran = subprocess.run(
        [sys.executable, "-c", program, database_url], cwd=tmp_path, env=environment(None, None), capture_output=True, text=True, timeout=RUN_SECONDS,
        check=False,
    )  # fmt: skip

    assert (ran.returncode, ran.stdout) == (0, "succeed 100\n"), ran.stderr
    with opened(database_url) as fresh, fresh.transaction(write=False) as tx:
        assert tx.run_verbatim(f"SELECT count(*), count(DISTINCT secret), min(length(secret)) FROM {table}").rows == [(CUSTOMERS, 1, 67)]
    again = subprocess.run(
        [sys.executable, "-c", program, database_url], cwd=tmp_path, env=environment(None, None), capture_output=True, text=True, timeout=RUN_SECONDS,
        check=False,
    )  # fmt: skip
    assert "belongs to task" in again.stderr


def test_the_page_tells_of_everything_that_is_public():
    """Whatever `tideshift.dxf` offers an author can be imported, and the makers are on the page."""
    text = PAGE.read_text(encoding="utf-8")

    assert all(getattr(dxf, name) is not None for name in dxf.__all__)
    assert all(f"dxf.{name}" in text for name in ("live", "submit", "task_type"))
    with pytest.raises(AttributeError):
        _ = dxf.nothing


class Weather(Exception):
    """Passes by itself."""


@dataclass(frozen=True)
class Parameters:
    source: str
    target: str
    step_rows: int = dxf.live(2, minimum=1, maximum=10)
    title: str = "plain"

    def __post_init__(self):
        if self.step_rows == 7:
            raise ValueError("seven is unlucky")


class CopyAll:
    """Copies sixty rows in one piece, and keeps what its hooks were told."""

    name = "author.copy"
    parameters = Parameters
    steps = ("copy", "nothing", "end")

    def __init__(self):
        self.storms = 0
        self.cleaned = []
        self.seen = []

    def plan(self, context, step):
        return {"copy": [{"to": 60}], "nothing": [], "end": [{"to": 0}]}[step]

    def run(self, context, piece):
        done = context.cursor or 0
        while done < piece["to"]:
            upto = min(done + context.parameters.step_rows, piece["to"])
            self.seen.append(context.parameters.step_rows)
            with context.commit(cursor=upto) as tx:
                sql = f"INSERT INTO {context.parameters.target} SELECT id, n FROM {context.parameters.source} WHERE id > {done} AND id <= {upto}"
                context.count(rows=tx.run_verbatim(sql).affected)
                if self.storms:
                    self.storms -= 1
                    raise Weather
            done = upto
            yield

    def is_retryable(self, error):
        return isinstance(error, Weather)

    def clean(self, context):
        self.cleaned.append((context.task.id, context.parameters.title))


@pytest.fixture
def author(registry):
    """A type in the registry of the cluster."""
    author = CopyAll()
    registry.add(dxf.task_type(author))
    return author


def submitted(cluster, rows, author, **options):
    return dxf.submit(cluster.dxf, author, Parameters(rows.source, rows.target), key="authors", **options)


def test_a_body_goes_on_from_its_cursor_after_an_error_that_passes(cluster, rows, author):
    """A storm in the middle rolls its chunk back and costs a try; every row is there once."""
    author.storms = 3

    task = submitted(cluster, rows, author)
    cluster.run_until(lambda: cluster.ended(task.id))

    assert cluster.dxf.show(task.id).state is TaskState.SUCCEED
    assert rows.exactly_once()
    assert cluster.dxf.subtasks(task.id)[0].summary["row_count"] == rows.number
    assert author.cleaned == [(task.id, "plain")]


def test_an_error_that_does_not_pass_fails_at_once(cluster, rows, author, monkeypatch):
    """With no word of the author's an error is fatal, and stands on the row with its trace."""
    monkeypatch.setattr(author, "is_retryable", lambda error: False)
    author.storms = 1

    task = submitted(cluster, rows, author)
    cluster.run_until(lambda: cluster.ended(task.id))

    ended = cluster.dxf.show(task.id)
    assert ended.state is TaskState.REVERTED
    assert "Weather" in ended.error["message"]


def test_a_storm_that_never_ends_uses_the_budget_up(cluster, rows, author, database, monkeypatch):
    """An error that passes is tried again as often as the budget says, and then fails the subtask; the tries stand on its row."""
    monkeypatch.setattr(database, "profile", replace(database.profile, error_count_limit=4))
    author.storms = 1_000

    task = submitted(cluster, rows, author)
    cluster.run_until(lambda: cluster.ended(task.id))

    (failed,) = cluster.dxf.subtasks(task.id)
    assert (failed.state, failed.retries, author.storms) == (SubtaskState.FAILED, 4, 996)
    assert cluster.dxf.show(task.id).state is TaskState.REVERTED


@ON_SQLITE
def test_a_live_parameter_reaches_the_running_body(cluster, rows, author, outcomes):
    """The chunk after the next look obeys; what is out of its bounds, unknown or not live is refused at once."""
    task = submitted(cluster, rows, author)
    cluster.dxf.registry = cluster.registry
    cluster.run_until(lambda: rows.copied()[0] > 4)

    for wrong in ({"step_rows": 11}, {"step_rows": "many"}, {"title": "x"}, {"speed": 1}):
        with pytest.raises(InvalidParameter):
            cluster.dxf.modify(task.id, **wrong)
    answer = cluster.dxf.modify(task.id, step_rows="5", priority=9)
    cluster.run_until(lambda: cluster.ended(task.id))

    assert answer.verdict is Verdict.APPLIED
    assert author.seen[0] == 2
    assert author.seen[-1] == 5
    assert cluster.dxf.show(task.id).priority == 9
    assert outcomes(task.id) == [("modify", ["applied"])]
    assert rows.exactly_once()


@ON_SQLITE
def test_what_the_class_refuses_is_the_outcome_of_the_request(cluster, rows, author, outcomes):
    """Parameters that cannot be made fail the one request, and the task goes on as it was."""
    task = submitted(cluster, rows, author)
    cluster.dxf.registry = cluster.registry
    cluster.run_until(lambda: rows.copied()[0] > 4)

    cluster.dxf.modify(task.id, step_rows=7)
    cluster.run_until(lambda: cluster.ended(task.id))

    assert outcomes(task.id) == [("modify", ["failed"])]
    assert set(author.seen) == {2}
    assert rows.exactly_once()


def test_a_type_that_is_none_is_refused_when_it_is_made():
    """Parameters that are no dataclass, or no step at all."""

    class Odd(CopyAll):
        parameters = dict

    class Stepless(CopyAll):
        steps = ()

    for wrong in (Odd, Stepless):
        with pytest.raises(TypeError):
            dxf.task_type(wrong())


def test_a_task_is_part_of_its_callers_transaction(cluster, rows, author, database):
    """Rolled back it was never there; committed it is there with what else was written."""
    with suppress(ZeroDivisionError), database.transaction() as tx:
        submitted(cluster, rows, author, tx=tx)
        raise ZeroDivisionError
    none = cluster.dxf.tasks()

    with database.transaction() as tx:
        task = submitted(cluster, rows, author, tx=tx)
        tx.run_verbatim(f"DELETE FROM {rows.source} WHERE id > 50")

    assert none == []
    cluster.run_until(lambda: cluster.ended(task.id))
    assert rows.copied() == (50, 50)
