"""What is printed for people: one line, numbers, tables; no terminal is needed to try it."""

import fcntl
import io
import json
import logging
import os
import pty
import struct
import termios

import pytest

from tideshift.frontends.cli.follow import live_line, plain_line
from tideshift.frontends.cli.logs import JsonLines, begin_logging
from tideshift.frontends.cli.opening import masked_url, secrets_in
from tideshift.frontends.cli.output import Screen, count_text, duration_text, first_failure, print_table, printable
from tideshift.frontends.cli.seeing import kept_line

JOB = {
    "id": 17, "state": "running", "schema_state": "write reorganization", "stage": "reorganize: copy", "percent": 45.25, "row_count": 90_000,
    "row_total": 200_000, "row_total_exact": False, "rows_per_second": 25_310.4, "eta_seconds": 83.0, "error": None, "pause_reason": None,
    "throttle": {"reason": "lock_share", "limit": 20, "value": None},
}  # fmt: skip


def test_live_line_tells_all():
    """The live line shows schema state, rows, percent, rows/s, ETA and what slows the job."""
    line = live_line(JOB, width=200)

    for part in ("job 17", "write reorganization", "90,000/~200,000", "45.2 %", "25,310 rows/s", "ETA 1 min 23 s", "slowed by lock_share 20"):
        assert part in line
    assert "\n" not in line


@pytest.mark.parametrize(("width", "left_out"), [(150, "reorganize"), (130, "█"), (118, "running")])
def test_live_line_leaves_out_what_does_not_fit(width, left_out):
    """On a narrow terminal stage, bar and state go, in this order; the numbers stay."""
    line = live_line(JOB, width=width)

    assert len(line) <= width
    assert left_out not in line.replace("write reorganization", "")
    assert "ETA 1 min 23 s" in line


def test_plain_line_tells_the_same():
    """The line for a log shows the same in words, without a bar."""
    line = plain_line(JOB)

    assert line == (
        "job 17: running, schema state write reorganization, reorganize: copy, 45.2 %, 90,000/~200,000 rows, 25,310 rows/s, 1 min 23 s left,"
        " slowed by lock_share 20"
    )


def test_unknown_numbers_are_dashes():
    """What is not measured yet is a dash, and no guess."""
    line = live_line({**JOB, "rows_per_second": None, "eta_seconds": None, "throttle": None}, width=200)

    assert "- rows/s" in line
    assert "ETA -" in line


def test_passing_error_is_said():
    """A job that tries again after an error says so in its line."""
    assert "tries again after lock_timeout" in plain_line({**JOB, "error": {"code": "lock_timeout"}})


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.04, "0.0 s"), (9.94, "9.9 s"), (10, "10 s"), (59.6, "1 min 0 s"), (83, "1 min 23 s"), (7322, "2 h 2 min"), (90_000, "1 d 1 h")],
)
def test_durations(seconds, text):
    """A duration is written in its two greatest units."""
    assert duration_text(seconds) == text


def test_counts():
    """A count has separators."""
    assert [count_text(n) for n in (None, 0, 999.6, 1234567)] == ["-", "0", "1,000", "1,234,567"]


@pytest.mark.parametrize(
    ("codes", "code"),
    [([], 0), ([0, 0], 0), ([0, 8, 4], 4), ([8, 7, 4], 7), ([8, 0], 8), ([3, 1], 1), ([6, 3], 6), ([1, 8], 8), ([5], 5)],
)
def test_code_of_several_ids(codes, code):
    """The exit code for several ids is that of the first failure in the documented order."""
    assert first_failure(codes) == code


def test_message_stands_above_the_live_line():
    """A message is written where the live line was, and the line again below it."""
    stream = io.StringIO()
    screen = Screen(stream, live=True)

    screen.show("45 %")
    screen.message("hello")
    screen.clear()

    assert stream.getvalue() == "45 %\r\x1b[Khello\n45 %\r\x1b[K"


def test_live_line_is_cut_to_the_terminal(monkeypatch):
    """The live line never wraps, which could not be rewritten."""
    monkeypatch.setenv("COLUMNS", "20")
    stream = io.StringIO()

    Screen(stream, live=True).show("x" * 50)

    assert stream.getvalue() == "x" * 18 + "…"


def test_without_terminal_nothing_is_rewritten():
    """A stream that is no terminal gets whole lines only."""
    stream = io.StringIO()
    screen = Screen(stream)

    screen.message("hello")
    screen.clear()

    assert not screen.is_live
    assert stream.getvalue() == "hello\n"


def test_names_cannot_steer_the_terminal():
    """Control characters in other people's names are escaped."""
    assert printable("a\x1b[31mb\u202e\n") == "a\\x1b[31mb\\u202e\\n"
    assert printable("naïve 表") == "naïve 表"


def test_table_without_terminal_is_plain():
    """Rows are aligned under their headings, without any frame or colour."""
    stream = io.StringIO()

    print_table(("id", "state"), [["1", "running"], ["20", "syn\x1bced"]], stream=stream)

    assert stream.getvalue() == "ID  STATE\n1   running\n20  syn\\x1bced\n"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize("no_color", [False, True])
def test_table_on_a_terminal_honours_no_color(monkeypatch, no_color):
    """States have a colour on a terminal, unless NO_COLOR is set."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()

    print_table(("id", "state"), [["1", "running"]], stream=stream)

    assert "running" in stream.getvalue()
    assert ("\x1b[36m" in stream.getvalue()) is not no_color


@pytest.mark.parametrize(
    ("url", "secrets", "masked"),
    [
        ("shop.db", (), "shop.db"),
        ("shop.db?password=x", (), "shop.db?password=x"),
        ("sqlite:///shop.db", (), "sqlite:///shop.db"),
        ("postgresql://me@host/db", (), "postgresql://me@host/db"),
        ("postgresql://me:s3cret@host/db", ("s3cret",), "postgresql://me:***@host/db"),
        ("postgresql://me:s3%40cret@host/db", ("s3%40cret", "s3@cret"), "postgresql://me:***@host/db"),
        ("postgresql://host/db?user=me&password=s3cret", ("s3cret",), "postgresql://host/db?user=me&password=***"),
        ("postgresql://host/db?password=s3%26c+ret", ("s3%26c+ret", "s3&c+ret", "s3&c ret"), "postgresql://host/db?password=***"),
        ("postgresql://[bad", (), "postgresql://[bad"),
    ],
)
def test_passwords_are_masked(url, secrets, masked):
    """A URL is shown without its password, wherever and however it is written."""
    assert set(secrets_in(url)) == set(secrets)
    assert masked_url(url) == masked


def record(message, *arguments, **extra):
    made = logging.LogRecord("tideshift.ddl.worker", logging.INFO, "worker.py", 1, message, arguments, None)
    made.__dict__.update(extra)
    return made


@pytest.mark.parametrize(
    ("made", "ids"),
    [
        (record("job %s: a step failed", 17), {"job": 17}),
        (record("subtask %s: rescued for task 4", 9), {"subtask": 9, "task": 4}),
        (record("job 3 waits for job 2"), {"job": 3}),
        (record("nothing of that", job=5, task=6), {"job": 5, "task": 6}),
        (record("job 1", job=2), {"job": 2}),
    ],
)
def test_log_lines_carry_ids(made, ids):
    """A line of the log file is JSON and names the job, task and subtask that it speaks of."""
    line = json.loads(JsonLines().format(made))

    assert {kind: line[kind] for kind in ("job", "task", "subtask") if kind in line} == ids
    assert {"at", "level", "logger", "pid", "thread", "message"} <= set(line)
    assert line["at"].endswith("Z")


@pytest.fixture
def project_logger():
    """The project's logger, put back afterwards."""
    logger = logging.getLogger("tideshift")
    before = logger.handlers[:], logger.level, logger.propagate
    yield logger
    for output in logger.handlers:
        output.close()
    logger.handlers[:], logger.level, logger.propagate = before


def test_password_reaches_neither_screen_nor_file(tmp_path, project_logger):
    """Whatever is logged, the URL's password is taken out of it."""
    stream, secret = io.StringIO(), 's3"cret'
    begin_logging(Screen(stream), verbosity=2, log_file=str(tmp_path / "log"), secrets=(secret,))

    project_logger.warning("cannot reach %s", f"postgresql://me:{secret}@host/db")
    try:
        raise ConnectionError(f"password {secret} is wrong")
    except ConnectionError:
        project_logger.exception("not reached")

    written = (tmp_path / "log").read_text()
    assert "me:***@host" in written
    assert "me:***@host" in stream.getvalue()
    assert "ConnectionError: password *** is wrong" in written
    assert "ConnectionError: password *** is wrong" in stream.getvalue()
    assert secret not in stream.getvalue()
    assert secret not in written
    assert json.dumps(secret)[1:-1] not in written


def test_live_line_fits_the_terminal_that_it_is_on(monkeypatch):
    """The width is that of the terminal behind the stream, whatever stdout or COLUMNS say."""
    monkeypatch.setenv("COLUMNS", "300")
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 44, 0, 0))

    with os.fdopen(inside, "w") as stream:
        width = Screen(stream).width
    os.close(terminal)

    assert width == 43
    assert Screen(io.StringIO()).width == 299


@pytest.mark.parametrize(
    ("drop_after", "said"),
    [
        (None, "old is kept until a person drops it"),
        ("2026-01-02T00:00:00.000Z", "old is kept until 2026-01-02T00:00:00.000Z"),
        ("2026-01-01T00:00:00.000Z", "old is still to be emptied and dropped"),
    ],
)
def test_kept_table_is_said_to_be_kept_only_while_it_is(drop_after, said):
    """A replaced table that is due when its job ends is not said to be kept until that moment."""
    artifact = {"kind": "old table", "name": "old", "drop_after": drop_after}

    assert kept_line(artifact, ended_at="2026-01-01T00:00:00.500Z") == said
