"""Who holds a table: asked of whatever this server has to tell it.

| source | where it is there | what it tells |
|---|---|---|
| `performance_schema.metadata_locks` | switched on; off by default on MariaDB | exactly who holds a lock on the table |
| `information_schema.METADATA_LOCK_INFO` | MariaDB with the plugin `metadata_lock_info` | the same |
| `information_schema.INNODB_TRX` | always | transactions that are open, whatever they have touched: told, never ended |
"""

from __future__ import annotations

from typing import Any

from tideshift.ddl.load import InTheWay
from tideshift.dialects.mysql.driver import dbapi_of
from tideshift.dialects.mysql.sessions import is_clustered
from tideshift.store.database import DatabaseFailed, Transaction

__all__ = ["end", "in_the_way"]

_TRX_SECONDS = "coalesce(timestampdiff(SECOND, x.trx_started, sysdate()), p.TIME)"
_ABOUT = f"""
p.ID, {_TRX_SECONDS}, p.USER, left(coalesce(p.INFO, p.COMMAND), 200), coalesce(x.trx_weight, 0)
"""
_JOINED = "JOIN information_schema.PROCESSLIST p ON p.ID = {number} LEFT JOIN information_schema.INNODB_TRX x ON x.trx_mysql_thread_id = p.ID"
_BY_PERFORMANCE_SCHEMA = f"""
SELECT DISTINCT {_ABOUT} FROM performance_schema.metadata_locks l JOIN performance_schema.threads t ON t.THREAD_ID = l.OWNER_THREAD_ID
 {_JOINED.format(number="t.PROCESSLIST_ID")}
 WHERE l.OBJECT_TYPE = 'TABLE' AND l.OBJECT_SCHEMA = ? AND l.OBJECT_NAME = ? AND l.LOCK_STATUS = 'GRANTED' AND p.ID <> connection_id() ORDER BY 2 DESC LIMIT 5
"""
_BY_PLUGIN = f"""
SELECT DISTINCT {_ABOUT} FROM information_schema.METADATA_LOCK_INFO l {_JOINED.format(number="l.THREAD_ID")}
 WHERE l.LOCK_TYPE = 'Table metadata lock' AND l.TABLE_SCHEMA = ? AND l.TABLE_NAME = ? AND p.ID <> connection_id() ORDER BY 2 DESC LIMIT 5
"""
_BY_TRANSACTIONS = f"""
SELECT {_ABOUT} FROM information_schema.INNODB_TRX x JOIN information_schema.PROCESSLIST p ON p.ID = x.trx_mysql_thread_id
 WHERE p.ID <> connection_id() AND x.trx_started < sysdate() - INTERVAL 1 SECOND ORDER BY 2 DESC LIMIT 5
"""
_WEIGHT_MAX = 1_000_000
"""Rolling a transaction of this weight back would keep the table for longer than waiting for it."""


def in_the_way(tx: Transaction, schema: str, name: str) -> list[InTheWay]:
    """Return who holds the table, as exactly as this server tells."""
    for sql, available in ((_BY_PERFORMANCE_SCHEMA, _sees_locks(tx)), (_BY_PLUGIN, _has_plugin(tx))):
        if available:
            return [_one(row) for row in tx.run_verbatim(sql, (schema, name)).rows]
    uncertain = "the server does not tell whether it holds this table"
    return [_one(row, kept=uncertain) for row in tx.run_verbatim(_BY_TRANSACTIONS).rows]


def end(tx: Transaction, session: InTheWay) -> str:
    """End a session that is in the way, if it is still the one that was seen."""
    found = "SELECT 1 FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id = ?"
    if not tx.run_verbatim("SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = ? AND USER = ?", (session.process, session.user)).rows:
        return "gone already"
    if not tx.run_verbatim(found, (session.process,)).rows:
        return "gone already"
    try:
        tx.run_verbatim(f"KILL CONNECTION {session.process}")
    except DatabaseFailed as error:
        if "1094" in error.message:
            return "gone already"
        return f"refused: {error.message} (it needs the privilege CONNECTION ADMIN or SUPER)"
    return "told to end"


def _one(row: tuple[Any, ...], *, kept: str = "") -> InTheWay:
    number, seconds, user, query, weight = row
    heavy = f"it has changed so much that rolling it back would take longer (weight {weight})" if int(weight) > _WEIGHT_MAX else ""
    system = "it is the server's own" if user in ("system user", "event_scheduler") else ""
    return InTheWay(process=int(number), started="", seconds=int(seconds or 0), user=str(user), query=str(query), kept=kept or system or heavy)


def _sees_locks(tx: Transaction) -> bool:
    if not tx.run_verbatim("SELECT @@performance_schema").scalar():
        return False
    sql = "SELECT 1 FROM performance_schema.setup_instruments WHERE NAME = 'wait/lock/metadata/sql/mdl' AND ENABLED = 'YES'"
    return bool(tx.run_verbatim(sql).rows) and not is_clustered(dbapi_of(tx.connection))


def _has_plugin(tx: Transaction) -> bool:
    return bool(tx.run_verbatim("SELECT 1 FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'METADATA_LOCK_INFO' AND PLUGIN_STATUS = 'ACTIVE'").rows)
