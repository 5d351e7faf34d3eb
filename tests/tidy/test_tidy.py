"""The house rules hold in every file, and each rule is shown to go red."""

from __future__ import annotations

import pytest

from tests.tidy import reviewed, rules
from tests.tidy.sources import Module, modules

SOURCE = modules("src")
TESTS = modules("tests", "bench", "scripts")
EVERYTHING = SOURCE + TESTS
PRODUCT_CODE = "src/tideshift/x/y.py"


def findings(rule, files, exceptions):
    """What a rule finds in these files, and what of it has been reviewed."""
    found = [line for module in files for line in rule(module)]
    used = {key for key in exceptions for line in found if _matches(key, line)}
    return [line for line in found if not any(_matches(key, line) for key in exceptions)], set(exceptions) - used


def _matches(key, line):
    path, _, fragment = key.partition(" ")
    return line.startswith(path) and fragment in line


RULES = [
    (rules.too_long, EVERYTHING, reviewed.LENGTHS),
    (rules.banned_words, EVERYTHING, reviewed.BANNED_WORDS),
    (rules.database_names, SOURCE, reviewed.DATABASE_NAMES),
    (rules.uses_text, SOURCE, reviewed.TEXT),
    (rules.writes_state, SOURCE, reviewed.STATE_WRITES),
    (rules.swallows, EVERYTHING, reviewed.SWALLOWS),
    (rules.sleeps, EVERYTHING, reviewed.SLEEPS),
    (rules.waits_for_nothing, modules("tests"), reviewed.WAITS),
    (rules.points_elsewhere, SOURCE, {}),
    (rules.unguarded_points, SOURCE, {}),
    (rules.unexplained_tests, TESTS, {}),
]
CHECKS = {rule.__name__: (rule, files, exceptions) for rule, files, exceptions in RULES}


@pytest.mark.parametrize("name", CHECKS)
def test_rule_holds(name):
    """Nothing in the project breaks the rule, but for what was reviewed."""
    rule, files, exceptions = CHECKS[name]
    assert files, "nothing was looked at"

    left, _ = findings(rule, files, exceptions)

    assert not left, f"{rule.__doc__}\n" + "\n".join(left)


@pytest.mark.parametrize("name", CHECKS)
def test_no_exception_is_left_over(name):
    """Each reviewed exception is still needed, and says why."""
    rule, files, exceptions = CHECKS[name]

    _, unused = findings(rule, files, exceptions)

    assert not unused
    assert all(len(reason.split()) > 3 for reason in exceptions.values())


RED = [
    (rules.too_long, "x = 1\n" * 401),
    (rules.too_long, "def f():\n" + "    x = 1\n" * 60),
    (rules.banned_words, "class JobManager: pass"),
    (rules.banned_words, "def f(row_data): pass"),
    (rules.banned_words, "for info in (): pass"),
    (rules.banned_words, "self.base_url = 1"),
    (rules.banned_words, "def process_rows(): pass"),
    (rules.banned_words, "def do_it(): pass"),
    (rules.banned_words, "import x as utils"),
    (rules.database_names, "if kind == 'postgres15': pass"),
    (rules.database_names, "import sqlite3"),
    (rules.database_names, "from sqlalchemy.dialects import mysql"),
    (rules.database_names, "from sqlalchemy.dialects.postgresql import insert"),
    (rules.database_names, "f(is_mariadb=True)"),
    (rules.database_names, "x.sqlite_file"),
    (rules.uses_text, "from sqlalchemy import select, text"),
    (rules.uses_text, "from sqlalchemy.sql import text as t"),
    (rules.uses_text, "import sqlalchemy as sa\nsa.text('x')"),
    (rules.writes_state, "def move_job(): update(t).where(a).values(state=1)"),  # not in a tables.py
    (rules.writes_state, "def f(): t.update().values({'state': 1})"),
    (rules.writes_state, "def f(): t.update().values({t.c.state: 1})"),
    (rules.writes_state, "def f(s): s.values(state=1)"),
    (rules.writes_state, "SQL = 'UPDATE t SET rev = 1, state = 2'"),
    (rules.writes_state, "def f(t): return f'update {t} set state = 2'"),
    (rules.swallows, "try: f()\nexcept Exception: pass"),
    (rules.swallows, "try: f()\nexcept Exception:\n    ..."),
    (rules.swallows, "with contextlib.suppress(Exception): f()"),
    (rules.sleeps, "import time\ntime.sleep(1)"),
    (rules.sleeps, "from time import sleep"),
    (rules.waits_for_nothing, "threading.Event().wait(1)"),
    (rules.waits_for_nothing, "NEVER = threading.Event()\ndef f(): NEVER.wait(0.1)"),
    (rules.waits_for_nothing, "class A:\n    def f(self):\n        self.pause = Event()\n        self.pause.wait(1)"),
    (rules.points_elsewhere, "A = failpoint.point('a', 'b')"),
    (rules.unguarded_points, "points.A.fire()"),
    (rules.unguarded_points, "if points.B.on: points.A.fire()"),
    (rules.unguarded_points, "if P:\n    P.fire()"),
    (rules.unguarded_points, "if P.on:\n    f()\nelse:\n    P.fire()"),
    (rules.unguarded_points, "x = 1 if P.on else P.fire()"),
    (rules.unguarded_points, "P.on or P.fire()"),
    (rules.unguarded_points, "if P.on or other: P.fire()"),
    (rules.unguarded_points, "if not P.on: P.fire()"),
    (rules.unexplained_tests, "def test_it(): pass"),
    (rules.unexplained_tests, "def test_it():\n    '''no sentence'''"),
]


@pytest.mark.parametrize(("rule", "source"), RED)
def test_rule_goes_red(rule, source):
    """A sample that breaks the rule is found."""
    assert list(rule(Module(PRODUCT_CODE, source)))


GREEN = [
    (rules.too_long, "x = 1\n" * 400),
    (rules.too_long, "def f():\n" + "    x = 1\n" * 59),
    (rules.banned_words, "def open_database(metadata, process_id): logging.info('x')"),
    (rules.banned_words, "def process_gone(): return done()"),
    (rules.database_names, "'''As SQLite does.'''\nx = 1  # as in MySQL"),
    (rules.uses_text, "text = 'x'\nrow.text"),
    (rules.writes_state, "def f(): insert(t).values(state=1)"),
    (rules.writes_state, "def f(): update(t).values(rev=1)"),
    (rules.swallows, "try: f()\nexcept ValueError:\n    log()"),
    (rules.sleeps, "clock.sleep(1)"),
    (rules.waits_for_nothing, "ended = threading.Event()\nsignal(lambda: ended.set())\nended.wait(1)"),
    (rules.waits_for_nothing, "ended = threading.Event()\nThread(target=f, args=ended)\nrun(ended)\nended.wait(1)"),
    (rules.unguarded_points, "if points.A.on: points.A.fire(job=1)"),
    (rules.unguarded_points, "x = points.A.fire() if points.A.on else 1"),
    (rules.unguarded_points, "if P.on and (v := P.fire()) is not NOT_FIRED: use(v)"),
    (rules.unguarded_points, "P.on and P.fire()"),
    (rules.unguarded_points, "rocket.fire()"),
    (rules.unexplained_tests, "def test_it():\n    '''It is so.'''"),
]


@pytest.mark.parametrize(("rule", "source"), GREEN)
def test_rule_lets_pass(rule, source):
    """A sample that keeps the rule is left alone."""
    assert not list(rule(Module(PRODUCT_CODE, source)))


DECLARATIONS = [
    ('P = point("a.b", "doc")', []),
    ('P: Point = failpoint.point("a.b", "doc")', []),
    ('def f():\n    P = failpoint.point("a.b", "doc")', [2]),
    ('P = failpoint.point(f"a.{b}", "doc")', [1]),
    ('failpoint.point("a.b", "doc")', [1]),
]


@pytest.mark.parametrize(("source", "lines"), DECLARATIONS)
def test_a_declaration_can_be_read_off(source, lines):
    """In a points.py too a failpoint is declared at module level under a literal name only."""
    found = rules.points_elsewhere(Module("src/tideshift/x/points.py", source))

    assert [int(line.split(":")[1]) for line in found] == lines


def test_moves_may_write_state():
    """A function move_… in a tables.py is the place for a state to be written."""
    module = Module("src/tideshift/x/tables.py", "def move_job(): update(t).values(state=1)")

    assert not list(rules.writes_state(module))
