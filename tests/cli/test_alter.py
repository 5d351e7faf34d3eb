"""`alter` and `plan`, on real files."""

import json
import re

import pytest

from tests.cli.programs import TO_INTEGER, TO_NUMERIC, Started, ask, make_shop, run
from tests.cli.schema_check import check

NO_SPEED = ("--strategy", "shadow_table", "--max-write-speed", "1rows", "--batch-size", "2")


def test_done_is_0(altered):
    """A change is carried out by the process itself where no node is alive, and the document says synced."""
    path, ran = altered

    assert ran.code == 0, ran.err
    check("job", ran.document)
    job = ran.document["job"]
    assert (job["state"], job["schema_state"], job["percent"], job["row_count"]) == ("synced", "public", 100, 60)
    assert job["strategy"] == "shadow_table"
    assert ask(path, "SELECT type FROM pragma_table_info('goods') WHERE name = 'price'") == [("NUMERIC",)]
    assert ask(path, "SELECT count(*), sum(price) FROM goods WHERE typeof(price) = 'integer'") == [(60, 1830)]


def test_replaced_table_is_purged_before_it_returns(altered):
    """The process that ran the job also empties and drops the replaced table, and says so."""
    path, ran = altered

    assert "the replaced table is emptied and dropped" in ran.err
    assert ran.document["job"]["artifacts"] == []
    assert ask(path, "SELECT name FROM sqlite_master WHERE name GLOB 'tideshift_[0-9]*'") == []


def test_nothing_is_said_of_a_replaced_table_where_there_was_none(tmp_path):
    """A change at once replaces no table."""
    path = make_shop(tmp_path / "shop.db", rows=3)

    ran = run("alter", "ALTER TABLE goods RENAME TO wares", url=path)

    assert ran.code == 0, ran.err
    assert "replaced table" not in ran.err


def test_progress_without_terminal_is_plain_lines(altered):
    """Without a terminal each change of state or stage is one plain line on stderr, and nothing is rewritten."""
    _, ran = altered

    assert "created the system tables" in ran.err
    states = re.findall(r"^job 1: (\w+), schema state ([\w ]+)", ran.err, re.MULTILINE)
    assert states[-1] == ("synced", "public")
    assert ("running", "write reorganization") in states
    assert "\r" not in ran.err
    assert "\x1b" not in ran.err


def test_second_run_is_a_new_job(tmp_path):
    """The same change once more is planned and carried out again; the tables are there already."""
    path = make_shop(tmp_path / "shop.db", rows=3)
    first = run("alter", TO_NUMERIC, url=path)

    second = run("alter", TO_NUMERIC, url=path)

    assert (first.code, second.code) == (0, 0), second.err
    assert first.out.startswith("job 1 synced")
    assert second.out.startswith("job 2 synced")
    assert "created the system tables" not in second.err


def test_refused_value_is_1(tmp_path):
    """A row that the new type refuses ends the job with code 1 and its key; the table is as it was, nothing is left."""
    path = make_shop(tmp_path / "shop.db", rows=10, bad_row=True)

    ran = run("alter", TO_INTEGER, "--yes", "--json", url=path)

    assert ran.code == 1
    check("job", ran.document)
    check("error", {"version": 1, "error": ran.error})
    assert ran.document["job"]["error"]["code"] == ran.error["code"] == "value_refused"
    assert "id = 5" in ran.error["message"]
    assert ask(path, "SELECT price FROM strict_goods WHERE id = 5") == [("dear",)]
    assert ask(path, "SELECT name FROM sqlite_master WHERE name GLOB 'tideshift_[0-9]*'") == []


def test_timeout_is_6_and_the_job_goes_on(tmp_path):
    """After --timeout the command stops its node and leaves; the job is kept, and its document shows where it stands."""
    path = make_shop(tmp_path / "shop.db")

    ran = run("alter", TO_NUMERIC, *NO_SPEED, "--timeout", "3s", "--json", url=path)

    assert ran.code == 6
    check("job", ran.document)
    assert ran.document["job"]["state"] in ("queueing", "running")
    assert ran.error["code"] == "wait_timeout"
    assert ran.error["hint"] == "job 1 is kept; go on with: tideshift watch 1 --node"
    assert json.loads(run("nodes", "--json", url=path).out)["nodes"] == []


def test_detach_only_submits(shop, inside):
    """--detach prints the id, ends with 0, and says that nobody is there to begin."""
    ran = inside("alter", TO_NUMERIC, "--detach", "--keep-old", "2h", "--threads", "3", "--lock-share", "50", url=shop)

    assert (ran.code, ran.out) == (0, "1\n")
    assert "no node is alive" in ran.err
    job = inside("job", "1", "--json", url=shop).document["job"]
    assert job["state"] == "queueing"
    assert {name: value["wished"] for name, value in job["parameters"].items()} == {
        "threads": 3, "batch_size": 10_000, "max_write_speed": None, "lock_share": 50, "adaptive": "off", "old_snapshots": "wait 30s", "end_blockers": "off",
    }  # fmt: skip
    assert ask(shop, "SELECT keep_old_seconds FROM tideshift_ddl_job") == [(7200.0,)]


def test_detach_as_json(shop, inside):
    """--detach --json prints the job's document."""
    ran = inside("alter", TO_INTEGER, "--detach", "--yes", "--json", url=shop)

    check("job", ran.document)
    assert ran.document["job"]["query"] == TO_INTEGER


@pytest.mark.parametrize("how", ["file", "dash", "stdin file"])
def test_statement_from_elsewhere(tmp_path, shop, how, inside):
    """The statement may stand in a file or come by standard input."""
    source = tmp_path / "change.sql"
    source.write_text(TO_NUMERIC + ";\n")
    arguments = {"file": ["-f", source], "dash": ["-"], "stdin file": ["-f", "-"]}[how]

    ran = inside("plan", *arguments, "--json", url=shop, stdin=source.read_text())

    assert ran.code == 0, ran.err
    assert ran.document["plan"]["table"] == "goods"


def test_plan_for_people_and_programs(shop, inside):
    """`plan` shows strategy, rows, stages, locks and the exact SQL; it writes nothing."""
    text = inside("plan", TO_NUMERIC, "--strategy", "shadow_table", url=shop)
    ran = inside("plan", TO_NUMERIC, "--strategy", "shadow_table", "--json", url=shop)

    check("plan", ran.document)
    plan = ran.document["plan"]
    assert (text.code, ran.code) == (0, 0)
    assert (plan["strategy"], plan["row_total"], plan["may_refuse_rows"]) == ("shadow_table", 60, False)
    assert [stage["name"] for stage in plan["stages"]] == ["capture", "reorganize", "cut over", "inspect"]
    for part in ("strategy  shadow_table", "rows      60", "lock:", "CREATE TRIGGER", "disk ", "time "):
        assert part in text.out
    assert ask(shop, "SELECT count(*) FROM sqlite_master WHERE name LIKE 'tideshift%'") == [(0,)]


def test_plan_says_what_happens_to_rows_and_disk(shop, inside):
    """A scan is no rewrite, the database's own rewrite replaces nothing, and each has its own room."""
    told = {
        "ALTER TABLE goods ADD COLUMN z INT": ("none", "none is read or written", "no room beyond the catalogue"),
        "CREATE INDEX by_price ON goods (price)": ("scan", "each is read, none is written", "the index"),
        "ALTER TABLE goods DROP COLUMN name": ("rewrite", "each is written again in its place", "the rows in the journal"),
        TO_NUMERIC: ("copy", "each is copied, and the replaced one purged", "the table again"),
    }
    for statement, (row_work, rows, room) in told.items():
        text = inside("plan", statement, "--fast", url=shop)
        plan = inside("plan", statement, "--fast", "--json", url=shop).document["plan"]

        check("plan", {"version": 1, "plan": plan})
        assert (plan["row_work"], plan["rewrites_rows"], room in plan["disk"]) == (row_work, row_work in ("rewrite", "copy"), True), statement
        assert (plan["disk_bytes"] > 0) is (row_work != "none")
        assert rows in text.out
        assert ("  key       " in text.out) is (row_work == "copy")


def test_plan_and_question_name_what_goes_unnamed(tmp_path, inside):
    """A counter that goes with its key is in the plan, and wants a yes."""
    path = make_shop(tmp_path / "shop.db", rows=3)
    ask(path, "CREATE TABLE counted (id INTEGER PRIMARY KEY AUTOINCREMENT, a)")
    statement = "ALTER TABLE counted DROP PRIMARY KEY"

    text, ran = inside("plan", statement, url=path), inside("alter", statement, url=path)

    assert "  drops     AUTOINCREMENT of counted is dropped" in text.out
    assert inside("plan", statement, "--json", url=path).document["plan"]["drops"][0].startswith("AUTOINCREMENT of counted")
    assert ran.code == 2
    assert "AUTOINCREMENT of counted is dropped with its row in sqlite_sequence" in ran.err


def test_what_no_row_can_be_refused_for_wants_no_yes(tmp_path):
    """A column with a constant is there at once, without a terminal to ask on."""
    path = make_shop(tmp_path / "shop.db", rows=3)

    ran = run("alter", "ALTER TABLE goods ADD COLUMN z INT NOT NULL DEFAULT 3", url=path)

    assert ran.code == 0, ran.err
    assert ask(path, "SELECT DISTINCT z FROM goods") == [(3,)]


def test_plan_says_what_a_power_failure_can_take(tmp_path, inside):
    """By the journal mode: what of ours is synced, what is done again, and what is the application's own choice."""
    path = make_shop(tmp_path / "shop.db", rows=3)
    in_wal = inside("plan", TO_NUMERIC, "--json", url=path).document["plan"]["durability"]
    ask(path, "PRAGMA journal_mode = DELETE")

    text = inside("plan", TO_NUMERIC, url=path)
    plan = inside("plan", TO_NUMERIC, "--json", url=path).document["plan"]

    assert [in_wal["setting"], plan["durability"]["setting"]] == ["journal mode wal", "journal mode delete"]
    assert "synchronous = FULL" in in_wal["commands"]
    assert "synchronous = EXTRA" in plan["durability"]["commands"]
    assert "checkpoint" in in_wal["rows"]
    assert all(sentence in text.out for sentence in plan["durability"].values())


def test_plan_takes_the_cheapest_way(shop, inside):
    """A small table is changed in one transaction; a shadow is made when it is asked for."""
    plan = inside("plan", TO_NUMERIC, "--json", url=shop).document["plan"]

    assert (plan["strategy"], [stage["name"] for stage in plan["stages"]]) == ("direct", ["change", "inspect"])


def test_follows_when_a_node_is_alive(tmp_path):
    """With a node alive `alter` only follows: the job is carried out by that node."""
    path = make_shop(tmp_path / "shop.db", rows=5)
    with Started("node", url=path) as node:
        node.until("runs with 4 slots")

        ran = run("alter", TO_NUMERIC, "--strategy", "shadow_table", url=path)

    assert ran.code == 0, ran.err
    assert "the replaced table" not in ran.err
    assert str(node.process.pid) in ask(path, "SELECT DISTINCT exec_id FROM tideshift_dxf_background_subtask_history")[0][0]


def test_url_before_and_after_the_command(shop, inside):
    """--url is taken before and after the command's name, and wins over the variable."""
    assert inside("--url", shop, "plan", TO_NUMERIC).code == 0
    assert inside("plan", TO_NUMERIC, "--url", f"sqlite:///{shop}", url="/nowhere.db").code == 0


def test_log_file_tells_the_jobs_story(tmp_path):
    """--log-file appends JSON lines, from which one job's story can be selected."""
    path = make_shop(tmp_path / "shop.db", rows=3, bad_row=True)
    log = tmp_path / "log.jsonl"

    run("alter", TO_INTEGER, "--yes", "--log-file", log, url=path)

    lines = [json.loads(line) for line in log.read_text().splitlines()]
    story = [line["message"] for line in lines if line.get("job") == 1]
    assert any("job 1: " in message for message in story)
    assert any("failed" in message for message in story)


def test_failpoints_need_the_flag(shop):
    """TIDESHIFT_FAILPOINTS does nothing without the flag, and with it one line warns of what it does."""
    faults = {"TIDESHIFT_FAILPOINTS": "ddl.after_submit=exit(9)"}

    ignored = run("alter", TO_NUMERIC, "--detach", url=shop, variables=faults)
    injected = run("--enable-failpoints", "alter", TO_NUMERIC, "--detach", url=shop, variables=faults)
    unknown = run("--enable-failpoints", "jobs", url=shop, variables={"TIDESHIFT_FAILPOINTS": "ddl.after_submitt=exit(9)"})

    assert ignored.code == 0
    assert "is set but ignored" in ignored.err
    assert injected.code == 9
    assert injected.err.count("fault injection is on") == 1
    assert unknown.code == 2
    assert "ddl.after_submit" in unknown.err
    assert ask(shop, "SELECT count(*) FROM tideshift_ddl_job") == [(2,)]


def test_warning_is_printed_once(tmp_path, inside):
    """What was warned of before the job was submitted is not said again at its end."""
    path = make_shop(tmp_path / "shop.db", rows=3)
    ask(path, "CREATE TABLE pictures (id INTEGER PRIMARY KEY, price TEXT, picture BLOB)")
    statement = "ALTER TABLE pictures ALTER COLUMN price TYPE NUMERIC"
    warnings = inside("plan", statement, "--strategy", "shadow_table", "--json", url=path).document["plan"]["warnings"]

    ran = run("alter", statement, "--strategy", "shadow_table", url=path)

    assert ran.code == 0, ran.err
    assert warnings
    assert [ran.err.count(f"warning: {warning}") for warning in warnings] == [1] * len(warnings)
