"""Wrong input of every kind: the exit code, one error, and nothing written."""

import hashlib

import pytest

from tests.cli.programs import TO_INTEGER, TO_NUMERIC, ask, make_shop, run
from tests.cli.schema_check import check

USAGE = [
    (["alter"], "give one statement"),
    (["alter", ""], "the statement is empty"),
    (["alter", "-"], "the statement is empty"),
    (["alter", TO_NUMERIC, "-f", "-"], "give one statement"),
    (["alter", TO_NUMERIC, "--threads", "0"], "--threads"),
    (["alter", TO_NUMERIC, "--threads", "many"], "--threads"),
    (["alter", TO_NUMERIC, "--batch-size", "-5"], "--batch-size"),
    (["alter", TO_NUMERIC, "--lock-share", "101"], "--lock-share"),
    (["alter", TO_NUMERIC, "--max-write-speed", "fast"], "20MiB"),
    (["alter", TO_NUMERIC, "--max-write-speed", "9999999GiB"], "more than 1 PiB"),
    (["alter", TO_NUMERIC, "--max-write-speed", "5ib"], "20MiB"),
    (["alter", TO_NUMERIC, "--max-write-speed", "9" * 310], "more than 1 PiB"),
    (["alter", TO_NUMERIC, "--max-write-speed", "9" * 310 + "rows"], "rows per second"),
    (["alter", TO_NUMERIC, "--max-write-speed", "0.4rows"], "less than one of the rows"),
    (["alter", TO_NUMERIC, "--keep-old", "soon"], "is not a duration"),
    (["alter", TO_NUMERIC, "--keep-old", "-5s"], "is not a duration"),
    (["alter", TO_NUMERIC, "--timeout", "99999999d"], "hundred years"),
    (["alter", TO_NUMERIC, "--detach", "--node"], "--detach only submits"),
    (["alter", TO_NUMERIC, "--detach", "--timeout", "5s"], "--detach only submits"),
    (["alter", TO_INTEGER], "confirm it with --yes"),
    (["alter", "-f", "/nowhere/change.sql"], "No such file"),
    (["plan"], "give one statement"),
    (["job"], "ID"),
    (["job", "first"], "first"),
    (["job", "0"], "ID"),
    (["job", "99999999999999999999"], "ID"),
    (["jobs", "-n", "-1"], "-n"),
    (["pause"], "ID"),
    (["pause", "1", "--timeout", "5s"], "--timeout goes with --wait"),
    (["set", "1"], "NAME=VALUE"),
    (["set", "1", "threads"], "is not name=value"),
    (["set", "1", "threads=2", "threads=3"], "given twice"),
    (["set", "1", "speed=2"], "there is no parameter 'speed'"),
    (["set", "1", "threads=0"], "outside 1 to 256"),
    (["set", "1", "max_write_speed=quick"], "20MiB"),
    (["set", "1", "max_write_speed=0.001"], "less than one of the bytes"),
    (["--url", "", "jobs"], "--url is given and empty"),
    (["jobs", "--url", ""], "--url is given and empty"),
    (["jobs", "--log-file", ""], "--log-file is given and empty"),
    (["node", "--slots", "0"], "--slots"),
    (["demo", "--rows", "0"], "--rows"),
    (["uninstall", "now"], "now"),
    (["altr", TO_NUMERIC], "Did you mean alter"),
    (["jobs", "--nonsense"], "--nonsense"),
    (["--log-file", "/nowhere/log", "jobs"], "the log cannot be written"),
]


@pytest.mark.parametrize(("arguments", "text"), USAGE, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_usage_is_2_and_writes_nothing(shop, arguments, text, inside):
    """A command that is not understood is exit code 2, says why and how to get help, and leaves the database alone."""
    before = hashlib.sha256(shop.read_bytes()).hexdigest()

    ran = inside(*arguments, url=shop)

    assert (ran.code, ran.out) == (2, "")
    assert text in ran.err
    assert "Traceback" not in ran.err
    assert ask(shop, "SELECT count(*) FROM sqlite_master WHERE name LIKE 'tideshift%'") == [(0,)]
    assert hashlib.sha256(shop.read_bytes()).hexdigest() == before


def test_no_database_named(inside):
    """Without --url and TIDESHIFT_URL the command says which of them to give."""
    ran = inside("jobs")

    assert ran.code == 2
    assert "TIDESHIFT_URL" in ran.err


def test_statement_that_is_no_text(shop, inside):
    """A statement that is not UTF-8 is an error of usage that names the byte."""
    ran = inside("plan", "-", url=shop, stdin=b"ALTER TABLE goods \xff")

    assert ran.code == 2
    assert "not UTF-8 text" in ran.err
    assert "at byte 18" in ran.err


MISSING = [["plan", TO_NUMERIC], ["alter", TO_NUMERIC], ["jobs"], ["job", "1"], ["watch", "1"], ["cancel", "1"], ["node", "--until-idle"], ["nodes"], ["init"], ["doctor"]]


@pytest.mark.parametrize("arguments", MISSING, ids=lambda arguments: arguments[0])
def test_path_that_does_not_exist_is_7(tmp_path, arguments, inside):
    """A database that is not there is exit code 7, and no command makes one."""
    path = tmp_path / "nowhere.db"

    ran = inside(*arguments, "--json" if arguments[0] not in ("node", "init") else "-v", url=path)

    assert ran.code == 7
    assert "cannot open" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_file_that_is_no_database_is_7(tmp_path, inside):
    """A file that is no database is exit code 7, and stays as it is."""
    path = tmp_path / "notes.txt"
    path.write_text("just some notes, more than a header long " * 10)

    ran = inside("jobs", "--json", url=path)

    assert ran.code == 7
    check("error", {"version": 1, "error": ran.error})
    assert ran.error["code"] == "cannot_reach"


def test_a_server_that_is_not_there_is_7(inside):
    """It is said that it cannot be reached, and its password is not shown."""
    ran = inside("plan", TO_NUMERIC, url="mysql://me:s3cret@localhost/shop?unix_socket=/no/such/socket")

    assert ran.code == 7
    assert "cannot reach the database" in ran.err
    assert "s3cret" not in ran.err + ran.out


def test_unknown_scheme_is_2(inside):
    """A URL that nobody understands is an error of usage."""
    assert inside("plan", TO_NUMERIC, url="redis://localhost").code == 2


@pytest.mark.parametrize("url", ["postgresql://me:s3cret@localhost/shop", "postgresql://localhost/shop?user=me&password=s3cret"])
def test_password_on_the_command_line_is_refused(inside, url):
    """A password where everybody can read it is refused, and not shown again."""
    ran = inside("plan", TO_NUMERIC, "--url", url)

    assert ran.code == 2
    assert "TIDESHIFT_URL" in ran.err
    assert "s3cret" not in ran.err


def test_error_of_usage_as_json(shop, inside):
    """With --json, an error of usage is a document too."""
    ran = inside("alter", TO_NUMERIC, "--threads", "0", "--json", url=shop)

    check("error", {"version": 1, "error": ran.error})
    assert ran.error["code"] == "usage"


REFUSED = [
    ("DROP TABLE goods", "bad_statement", 5),
    ("ALTER TABLE goods ALTER COLUMN price TYPE", "bad_statement", 5),
    ("nonsense", "bad_statement", 5),
    ("ALTER TABLE nobody ALTER COLUMN price TYPE NUMERIC", "not_found", 4),
    ("ALTER TABLE goods ALTER COLUMN nothing TYPE NUMERIC", "not_found", 4),
    ("ALTER TABLE tideshift_ddl_job ALTER COLUMN state TYPE NUMERIC", "plan_refused", 5),
    ("ALTER TABLE a_view ALTER COLUMN price TYPE NUMERIC", "plan_refused", 5),
]


@pytest.mark.parametrize("command", ["plan", "alter"])
@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: refused[0])
def test_refused_before_anything_is_made(tmp_path, command, refused, inside):
    """A statement that cannot be done is refused with its code, and no table of ours is made for it."""
    statement, code, exit_code = refused
    path = make_shop(tmp_path / "shop.db")
    ask(path, "CREATE VIEW a_view AS SELECT * FROM goods")
    if "tideshift_" in statement:
        inside("init", url=path)
    before = ask(path, "SELECT count(*) FROM sqlite_master")

    ran = inside(command, statement, "--json", url=path)

    assert (ran.code, ran.error["code"]) == (exit_code, code)
    assert ran.out == ""
    assert ask(path, "SELECT count(*) FROM sqlite_master") == before


def test_bad_statement_points_at_the_token(shop, inside):
    """A statement that is not understood is shown with a caret under the place."""
    ran = inside("plan", "ALTER TABLE goods ALTER COLUMN price TYPO NUMERIC", url=shop)

    assert "TYPE, SET or DROP is expected here" in ran.err
    assert " ^" in ran.err


@pytest.mark.parametrize("arguments", [["jobs"], ["job", "1"], ["watch", "1"], ["wait", "1"], ["pause", "1"], ["set", "1", "threads=2"], ["nodes"], ["upgrade"]], ids=" ".join)
def test_without_system_tables_is_8(shop, arguments, inside):
    """A command that needs the system tables says how to make them, and makes none."""
    ran = inside(*arguments, url=shop)

    assert ran.code == 8
    assert "tideshift init" in ran.err
    assert ask(shop, "SELECT count(*) FROM sqlite_master WHERE name LIKE 'tideshift%'") == [(0,)]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["jobs", "--nonsense"], 2), (["job", "1"], 8), (["plan", "DROP TABLE goods"], 5), (["plan", "ALTER TABLE a ALTER COLUMN b TYPE c"], 4), ([], 2)],
)
def test_code_is_what_the_process_leaves_with(shop, arguments, code):
    """The code that a command returns is what the shell sees."""
    ran = run(*arguments, url=shop)

    assert ran.code == code
    assert "Traceback" not in ran.err
