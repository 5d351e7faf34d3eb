"""What `doctor` finds on a server: each thing by its code, and nothing where nothing is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.postgres.stepping import application, on_engine
from tideshift.dialects.postgres import health

ALWAYS = {"setting_fsync", "setting_full_page_writes"}
"""The tests' servers are private and may lose everything."""


def found(engine: Any) -> dict[str, str]:
    """The findings by their codes."""
    return {one.code: f"{one.message} {one.hint}" for one in engine.connected.dialect.catalog.findings(engine.connected.database)}


def test_settings_that_lose_something_are_named(postgres_url: str) -> None:
    """And nothing else where nothing else is."""
    with on_engine(postgres_url) as engine:
        assert found(engine).keys() == ALWAYS
        with application(postgres_url) as connection:
            connection.execute(f"ALTER DATABASE {postgres_url.partition('@/')[2].partition('?')[0]} SET synchronous_commit = off".encode())
    with on_engine(postgres_url) as engine:
        assert found(engine).keys() == {*ALWAYS, "setting_synchronous_commit"}


def test_an_invalid_index_of_anybodys_is_found(postgres_url: str) -> None:
    """It costs every write something and serves nobody."""
    with on_engine(postgres_url) as engine, application(postgres_url) as connection:
        connection.execute("CREATE TABLE public.t (id int); INSERT INTO public.t VALUES (1), (1)")
        with pytest.raises(Exception, match="could not create unique index"):
            connection.execute("CREATE UNIQUE INDEX CONCURRENTLY bad ON public.t (id)")

        assert "REINDEX INDEX CONCURRENTLY public.bad" in found(engine)["invalid_index"]


def test_a_trigger_of_ours_that_is_switched_off_is_found(postgres_url: str) -> None:
    """As long as it is."""
    with on_engine(postgres_url) as engine, application(postgres_url) as connection:
        connection.execute("CREATE TABLE public.t (id int PRIMARY KEY); INSERT INTO public.t SELECT generate_series(1, 50)")
        job_id = engine.ddl.submit("ALTER TABLE public.t ALTER id TYPE bigint", strategy="shadow_table").id
        engine.until(job_id, lambda job: job.stage >= 1)
        assert "capture_disabled" not in found(engine)
        connection.execute("ALTER TABLE public.t DISABLE TRIGGER ALL")

        assert "public.t" in found(engine)["capture_disabled"]


def test_long_and_prepared_transactions_are_found(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By process, by name, and with what they hold up."""
    monkeypatch.setattr(health, "LONG_SECONDS", -1)
    with on_engine(postgres_url) as engine, application(postgres_url) as old, application(postgres_url) as other:
        old.execute("BEGIN; SELECT 'what it runs'")
        other.execute("BEGIN; CREATE TABLE t (id int); PREPARE TRANSACTION 'in two'")
        seen = found(engine)
        other.execute("ROLLBACK PREPARED 'in two'")
        pid = old.info.backend_pid

    assert f"process {pid} of tideshift" in seen["long_transaction"]
    assert "what it runs" in seen["long_transaction"]
    assert "'in two' of tideshift" in seen["prepared_transaction"]


def test_a_slot_that_nobody_reads_is_found(postgres_url: str) -> None:
    """It keeps the log, and with it the disk."""
    with on_engine(postgres_url) as engine, application(postgres_url) as connection:
        connection.execute("SELECT pg_create_physical_replication_slot('forgotten', true)")
        try:
            assert "forgotten (used by nobody)" in found(engine)["slot_holds_back"]
        finally:
            connection.execute("SELECT pg_drop_replication_slot('forgotten')")


def test_the_plan_says_that_a_crash_empties_an_unlogged_table(postgres_url: str) -> None:
    """And its copy with it."""
    with application(postgres_url) as connection:
        connection.execute("CREATE UNLOGGED TABLE t (id int PRIMARY KEY)")
    with on_engine(postgres_url) as engine:
        warnings = engine.ddl.plan("ALTER TABLE t ALTER id TYPE bigint", strategy="shadow_table").warnings

    assert any("t is unlogged: a crash of the server empties it" in one for one in warnings)


def test_what_a_plain_role_does_not_see_is_said(postgres_server: Any, postgres_url: str) -> None:
    """As the grants that show it, here and in the plan of a change."""
    postgres_server.execute("CREATE ROLE plain_seer LOGIN")
    name = postgres_url.partition("@/")[2].partition("?")[0]
    postgres_server.execute(f"GRANT CREATE ON DATABASE {name} TO plain_seer")
    try:
        with application(postgres_url) as connection:
            connection.execute("CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t OWNER TO plain_seer; GRANT CREATE ON SCHEMA public TO plain_seer")
        with on_engine(postgres_url.replace("tideshift@", "plain_seer@")) as engine:
            seen = found(engine)
            steps = engine.ddl.plan("ALTER TABLE t ALTER id TYPE bigint", strategy="shadow_table").plan.reshaping.sql_steps
        with application(postgres_url) as connection:
            connection.execute("DROP OWNED BY plain_seer CASCADE")
    finally:
        postgres_server.execute(f"REVOKE ALL ON DATABASE {name} FROM plain_seer; DROP ROLE plain_seer")

    assert "GRANT pg_read_all_stats TO plain_seer" in seen["sees_no_others"]
    assert "GRANT pg_signal_backend TO plain_seer" in seen["ends_no_others"]
    (locks,) = (step.lock for step in steps if step.phase == "cut over")
    assert "GRANT pg_signal_backend TO plain_seer" in locks
