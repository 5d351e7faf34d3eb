"""What the catalogue, the doctor and the load say about a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.dialects.sqlite.reshaping import changing
from tests.servers import sqlite_module
from tideshift.ddl.change import TableName
from tideshift.dialects.sqlite.driver import SqliteDriver
from tideshift.dialects.sqlite.scratch import schema_can_be_written
from tideshift.errors import NotFound

TABLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT)"
CORRECTED = (((3, 44, 6), (3, 45, 0)), ((3, 50, 7), (3, 51, 0)), ((3, 51, 3), (4, 0, 0)))
"""The versions in which SQLite's own page on the write-ahead log says that the reset bug is corrected: from, and before."""
MANY = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000) INSERT INTO t SELECT i * 10, 'x' FROM n"


def test_a_small_table_is_counted(sqlite_path: Path) -> None:
    """Exact up to some thousand rows."""
    with changing(sqlite_path, TABLE, "INSERT INTO t VALUES (5, 'a'), (700000, 'b')") as change, change.reading() as tx:
        assert change.dialect.catalog.row_estimate(tx, TableName(None, "T")) == (2, True)


@pytest.mark.parametrize(
    ("schema", "low", "high"),
    [
        ((TABLE, MANY), 20_000, 300_000),
        ((TABLE, MANY, "CREATE INDEX i ON t (c)", "ANALYZE"), 30_000, 30_000),
        ((TABLE.replace("INTEGER PRIMARY KEY, c TEXT", "INT PRIMARY KEY, c TEXT") + " WITHOUT ROWID", MANY), 20_000, 120_000),
    ],
    ids=["by keys", "analyzed", "by size"],
)
def test_a_big_table_is_estimated(schema: tuple[str, ...], low: int, high: int, sqlite_path: Path) -> None:
    """By ANALYZE's figure where there is one, else by the span of keys and the file's size."""
    with changing(sqlite_path, *schema, statement="ALTER TABLE t ALTER c TYPE varchar(9)") as change, change.reading() as tx:
        rows, exact = change.dialect.catalog.row_estimate(tx, TableName(None, "t"))

    assert not exact
    assert low <= rows <= high


def test_an_unknown_table_has_no_estimate(sqlite_path: Path) -> None:
    """It is not found, instead of empty."""
    with changing(sqlite_path, TABLE) as change, change.reading() as tx, pytest.raises(NotFound):
        change.dialect.catalog.row_estimate(tx, TableName(None, "u"))


def test_objects_are_what_jobs_make_and_nothing_else(sqlite_path: Path) -> None:
    """Every artifact is listed but for indexes, which go with their tables; system tables and a user's look-alikes are not."""
    look_alikes = ("CREATE TABLE tideshift_ddl_job (a)", "CREATE TABLE tideshift_7 (a)", "CREATE TABLE tideshift_7_x_shadow (a)")
    with changing(sqlite_path, "CREATE TABLE t (c UNIQUE)", "CREATE INDEX i ON t (c)", *look_alikes) as change:
        change.install()

        made = {(made.kind, made.name) for made in change.shadow.artifacts(change.reorg)}
        with_tables = {(kind, name) for kind, name in made if kind in ("index", "shadow index")}
        assert ("shadow index", change.named("shadow index")[0]) in with_tables
        assert {(kind if kind == "trigger" else "table", name) for kind, name in made - with_tables} == change.objects()


def test_dropping_twice_is_fine(sqlite_path: Path) -> None:
    """What is gone already, by us or with its table, is no error."""
    with changing(sqlite_path, "CREATE TABLE t (c UNIQUE)", "CREATE INDEX i ON t (c)") as change:
        change.install()

        for _ in range(2):
            with change.writing() as tx:
                for artifact in change.shadow.artifacts(change.reorg):
                    assert change.dialect.remains.empty_chunk(tx, artifact, rows_max=10) in (0, 1, 2)
                    change.dialect.remains.drop(tx, artifact)

        assert change.objects() == set()


def test_the_doctor_speaks_of_the_journal_and_of_the_library(sqlite_path: Path) -> None:
    """A rollback journal is worth a word; so is a library with the bug, in WAL mode only."""
    with changing(sqlite_path, TABLE) as change:
        in_wal = {finding.code for finding in change.dialect.catalog.findings(change.database)}
        version = sqlite_module().sqlite_version_info
        corrected = any(first <= version < end for first, end in CORRECTED)
        assert ("sqlite_library" in in_wal) is not corrected
        assert "rollback_journal" not in in_wal

    with changing(sqlite_path.with_name("other.db"), "PRAGMA journal_mode = delete", TABLE) as change:
        found = [finding for finding in change.dialect.catalog.findings(change.database) if finding.code != "secure_delete"]  # on by default in some builds
        assert [finding.code for finding in found] == ["sqlite_version", "rollback_journal"]
        assert found[0].hint
        assert any("not WAL" in warning for warning in change.reshaping.warnings)


def test_the_doctor_speaks_of_a_file_that_is_mostly_free(sqlite_path: Path) -> None:
    """Most of a thousand pages and more."""
    with changing(sqlite_path, TABLE, "INSERT INTO t VALUES (1, zeroblob(5000000))", "DELETE FROM t") as change:
        assert "free_pages" in {finding.code for finding in change.dialect.catalog.findings(change.database)}


def test_load_measures_the_disk(sqlite_path: Path) -> None:
    """As the file system tells it to any user; what is left alone is a small part of it."""
    with changing(sqlite_path, TABLE, MANY) as change:
        room, disk = change.dialect.load.room(), os.statvfs(sqlite_path)

        assert 0 < room.free_bytes <= disk.f_blocks * disk.f_frsize
        assert 8 << 20 <= room.reserve_bytes <= 256 << 20
        assert room.least_bytes == room.reserve_bytes // 4


def test_this_library_offers_the_change(sqlite_path: Path) -> None:
    """Its schema table can be written."""
    assert schema_can_be_written(SqliteDriver(sqlite_path))
