"""What about a server is worth a person's attention: its version, settings that hinder jobs or lose something, long transactions, privileges."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tideshift.ddl.dialect import DoctorFinding, Weight
from tideshift.dialects.mysql.driver import dbapi_of, is_mariadb
from tideshift.dialects.mysql.sessions import sees_all
from tideshift.store.database import Transaction

__all__ = ["findings"]

LONG_SECONDS = 300
_PROVEN = (10, 11)
_LEAST = {True: (10, 11), False: (8, 0)}
_PARSING = ("ANSI_QUOTES", "PIPES_AS_CONCAT", "NO_BACKSLASH_ESCAPES", "IGNORE_SPACE", "HIGH_NOT_PRECEDENCE", "REAL_AS_FLOAT")
_LONG = f"""
SELECT x.trx_mysql_thread_id, coalesce(p.USER, '?'), timestampdiff(SECOND, x.trx_started, sysdate()), left(coalesce(x.trx_query, ''), 80)
FROM information_schema.INNODB_TRX x LEFT JOIN information_schema.PROCESSLIST p ON p.ID = x.trx_mysql_thread_id
WHERE x.trx_started < sysdate() - INTERVAL {LONG_SECONDS} SECOND AND x.trx_mysql_thread_id <> connection_id() ORDER BY x.trx_started LIMIT 10
"""


def findings(tx: Transaction) -> list[DoctorFinding]:
    """Look at everything once."""
    return [*_version(tx), *_settings(tx), *_transactions(tx), *_privileges(tx)]


def _version(tx: Transaction) -> Iterator[DoctorFinding]:
    text = str(tx.run_verbatim("SELECT version()").scalar())
    mariadb = is_mariadb(dbapi_of(tx.connection))
    numbers = tuple(int(part) for part in re.findall(r"\d+", text)[:2])
    server = "MariaDB" if mariadb else "MySQL"
    if numbers < _LEAST[mariadb]:
        least = ".".join(map(str, _LEAST[mariadb]))
        yield DoctorFinding(code="server_too_old", message=f"this is {server} {text}, and tideshift needs {least}", hint=f"Upgrade to {server} {least} or later.")
    elif (mariadb, numbers) != (True, _PROVEN):
        message = f"this is {server} {text}: tideshift is proven on MariaDB {'.'.join(map(str, _PROVEN))} only"
        yield DoctorFinding(code="server_not_proven", message=message, hint="Try your changes on a copy first.", weight=Weight.NOTE)


def _settings(tx: Transaction) -> Iterator[DoctorFinding]:
    row = tx.run_verbatim("SELECT @@GLOBAL.innodb_flush_log_at_trx_commit, @@GLOBAL.log_bin, @@GLOBAL.binlog_format, @@GLOBAL.sql_mode, @@GLOBAL.read_only").rows[0]
    flush, binlog, binlog_format, mode, read_only = row
    if int(flush) not in (1, 3):
        message = f"innodb_flush_log_at_trx_commit is {flush}: a crash may take the last second of commits, our commands and the application's alike"
        yield DoctorFinding(code="setting_innodb_flush_log_at_trx_commit", message=message, hint="innodb_flush_log_at_trx_commit = 1", weight=Weight.NOTE)
    if binlog and binlog_format == "STATEMENT":
        message = "binlog_format is STATEMENT: InnoDB refuses every write of ours, which is READ COMMITTED"
        yield DoctorFinding(code="setting_binlog_format", message=message, hint="binlog_format = ROW, or MIXED")
    if reading := [one for one in _PARSING if one in str(mode).split(",")]:
        message = f"sql_mode of the server holds {', '.join(reading)}: statements given to tideshift are read without"
        yield DoctorFinding(code="setting_sql_mode", message=message, hint="Write names between backticks and strings in single quotes.", weight=Weight.NOTE)
    if read_only:
        yield DoctorFinding(code="server_read_only", message="the server is read-only: no job can go on here", hint="Give the URL of the primary.")


def _transactions(tx: Transaction) -> Iterator[DoctorFinding]:
    found = [f"session {number} of {user} for {seconds} s: {query}".rstrip(": ") for number, user, seconds, query in tx.run_verbatim(_LONG).rows]
    if found:
        hint = "A change of a table waits for each transaction that has touched it, and gives way; purge cannot clean up behind them."
        yield DoctorFinding(code="long_transaction", message=f"transactions are open for long: {'; '.join(found)}", hint=hint, weight=Weight.NOTE)


def _privileges(tx: Transaction) -> Iterator[DoctorFinding]:
    if not sees_all(dbapi_of(tx.connection)):
        message = "this account does not see the sessions of others: a session of another account counts as there until its server says otherwise, and blockers are not named"
        account = tx.run_verbatim("SELECT current_user()").scalar()
        yield DoctorFinding(code="sees_no_others", message=message, hint=f"GRANT PROCESS ON *.* TO {account}", weight=Weight.NOTE)
