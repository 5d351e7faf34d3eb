"""A swap beside logical replication: what was not read yet stays readable, and nothing is sent twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.conftest import give_up
from tests.dialects.postgres.verbs import Begin, by_verbs
from tests.servers import PostgresServer, Unavailable

MAJORS = (15,)
TABLE = "CREATE TABLE t (id int PRIMARY KEY, c text, d int); INSERT INTO t SELECT i, 'c' || i, i FROM generate_series(1, 20) i; CREATE PUBLICATION news FOR TABLE t"
MESSAGES = (
    "SELECT chr(get_byte(data, 0)) || CASE WHEN get_byte(data, 0) = ascii('R') THEN split_part(encode(substr(data, 6), 'escape'), '\\000', 2) ELSE '' END"
    " FROM pg_logical_slot_get_binary_changes('slot', NULL, NULL, 'proto_version', '1', 'publication_names', 'news')"
)


@pytest.fixture
def begin_replicated(postgres_server: PostgresServer) -> Iterator[Begin]:
    """What begins a change in a database of a server that keeps enough for logical replication."""
    server = None
    try:
        server = PostgresServer(major=postgres_server.major, settings=("wal_level = logical",))
        server.start()
        with by_verbs(server.url(server.create_database())) as given:
            yield given
    except Unavailable as reason:
        give_up(f"postgres{postgres_server.major}", str(reason))
    finally:
        if server is not None:
            server.remove()


def test_what_a_subscriber_has_not_read_yet_can_be_read_after_a_swap(begin_replicated: Begin) -> None:
    """Changes from before, during and after it, under the same name; the copied rows are nobody's change."""
    change = begin_replicated(TABLE, "ALTER TABLE t ALTER d TYPE bigint")
    change.execute("SELECT pg_create_logical_replication_slot('slot', 'pgoutput')")
    change.execute("UPDATE t SET c = 'before' WHERE id = 1")
    change.carry_out(lambda: change.execute("UPDATE t SET c = 'during' WHERE id = 2; DELETE FROM t WHERE id = 3"))
    change.execute("INSERT INTO t VALUES (100, 'after', 5000000000)")
    seen = Counter(message for (message,) in change.execute(MESSAGES))

    assert {name: seen[name] for name in ("I", "U", "D", "T")} == {"I": 1, "U": 2, "D": 1, "T": 0}
    assert {name for name in seen if name.startswith("R")} == {"Rt"}
