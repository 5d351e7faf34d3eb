"""The trigger that gives the new column its value whenever a row is written, and the list of rows whose value has none.

It fires last of all that may still change the row, and always: for a session that applies replication too. A value that
the new column refuses never fails the statement that writes it: the row is listed by its key, and the job fails.

A plain conversion that refuses nothing names nothing, so its function needs no search path and no privileges of its own.
Any other runs as the table's owner by a fixed search path and with the settings that a text may hang on, so that whoever may write the table need not be allowed to
call what the expression calls. Where somebody took the list away, a refused value is let be, and the job sees that. Only where a value can be refused there is a handler, which costs a subtransaction per row.
"""

from __future__ import annotations

from tideshift.dialects.postgres.capture import nobodys
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.in_place_layout import ColumnLayout, ColumnNames
from tideshift.errors import SchemaChanged
from tideshift.store.database import Transaction

__all__ = ["LISTED_BYTES_MAX", "check", "later_triggers", "texts"]

LISTED_BYTES_MAX = 1 << 20
"""How long the list of refused rows may get: from there on nothing is added to it, and the job fails for that alone."""
_PINNED = " SET extra_float_digits = 3 SET bytea_output = hex"
"""What texts of immutable conversions hang on all the same; our own sessions have it so."""
_LATER = """
SELECT tgname::text FROM pg_catalog.pg_trigger
 WHERE tgrelid = $1 AND NOT tgisinternal AND tgtype & 3 = 3 AND tgtype & 20 <> 0 AND tgname::text COLLATE "C" > $2 ORDER BY 1
"""
"""BEFORE, for each row, INSERT or UPDATE; those that are switched off now may be switched on any time."""
_CHECK = """
SELECT pg_catalog.to_regclass($1)::oid::bigint,
       (SELECT count(*) FROM pg_catalog.pg_trigger g JOIN pg_catalog.pg_attribute a ON a.attrelid = pg_catalog.to_regclass($2) AND a.attnum = 1
         WHERE g.tgrelid = $4 AND g.tgname = $3 AND g.tgfoid = pg_catalog.to_regproc($5) AND g.tgenabled = 'A' AND g.xmin = a.xmin),
       (SELECT count(*) FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_attribute a ON a.attrelid = pg_catalog.to_regclass($2) AND a.attnum = 1
         WHERE p.oid = pg_catalog.to_regproc($5) AND p.xmin = a.xmin),
       (SELECT array_agg(attname::text || ' ' || pg_catalog.format_type(atttypid, atttypmod) ORDER BY attnum) FROM pg_catalog.pg_attribute
         WHERE attrelid = $4 AND attname::text IN ($6, $7) AND NOT attisdropped)
"""
"""What was changed since it was made has another xmin than the first column of the list, which was made with it."""


def later_triggers(tx: Transaction, oid: int, name: str) -> list[str]:
    """Name the triggers that may change a row after the one of this name has seen it."""
    return [one for (one,) in tx.run_verbatim(_LATER, (oid, name)).rows]


def texts(layout: ColumnLayout, names: ColumnNames, settings: list[str], definition: str) -> list[str]:
    """Return the statements that make column, list, function and trigger, all of them in one transaction."""
    key = ", ".join(f"k{number} text NOT NULL" for number, _ in enumerate(layout.key, start=1))
    function, trigger = f"{names.function}()", quote(names.trigger)
    safe = "" if layout.plain else f" SECURITY DEFINER SET search_path = pg_catalog, pg_temp{_PINNED}"
    body = _body(layout, names)
    assert "$tideshift$" not in body
    alter = ", ".join([f"ADD COLUMN {definition}", *settings])
    return [
        f"ALTER TABLE {layout.source} {alter}",
        f"CREATE TABLE {names.refused} ({key}, message text)",
        f"ALTER TABLE {names.refused} OWNER TO {quote(layout.owner)}",
        nobodys(names.refused),
        f"CREATE FUNCTION {function} RETURNS trigger LANGUAGE plpgsql{safe} AS $tideshift${body}$tideshift$",
        *([] if layout.plain else [f"ALTER FUNCTION {function} OWNER TO {quote(layout.owner)}"]),
        f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC",
        f"CREATE TRIGGER {trigger} BEFORE INSERT OR UPDATE ON {layout.source} FOR EACH ROW {_with_column(names)} EXECUTE FUNCTION {function}",
        f"ALTER TABLE {layout.source} ENABLE ALWAYS TRIGGER {trigger}",
    ]


def _with_column(names: ColumnNames) -> str:
    """Write a condition that always holds and names the new column, so that whoever drops that must drop the trigger too, and no statement fails of it."""
    return f"WHEN ((NEW.{quote(names.column)} IS NULL) IS NOT NULL)"


def _body(layout: ColumnLayout, names: ColumnNames) -> str:
    column = f"NEW.{quote(names.column)}"
    if layout.plain:
        return f" BEGIN {column} := NEW.{quote(layout.column)}; RETURN NEW; END "
    alias = "" if layout.table == "new" else f"{layout.alias} ALIAS FOR NEW;"
    demands = [f"({one}) IS FALSE" for one in layout.checks]
    tests = []
    if layout.not_null:
        tests.append((f"{column} IS NULL", "the new value is NULL, and the column is NOT NULL"))
    tests += [(demand, f"the new value violates a check: {text}") for demand, text in zip(demands, layout.checks, strict=True)]
    looked = "".join(f"\n      IF {condition} THEN tideshift_why := {_literal(why)}; END IF;" for condition, why in tests)
    keys = ", ".join(f"NEW.{quote(one.name)}::text" for one in layout.key)
    held = "NULL" if layout.placeholder is None else layout.placeholder
    return f"""
DECLARE
  {alias}
  tideshift_why text;
BEGIN
  BEGIN
    {column} := {layout.value};{looked}
  EXCEPTION WHEN OTHERS THEN tideshift_why := SQLERRM;
  END;
  IF tideshift_why IS NOT NULL THEN
    {column} := {held};
    IF pg_catalog.pg_relation_size(pg_catalog.to_regclass({_literal(names.refused)})) < {LISTED_BYTES_MAX} THEN
      INSERT INTO {names.refused} VALUES ({keys}, pg_catalog.left(tideshift_why, 500));
    END IF;
  END IF;
  RETURN NEW;
END
"""


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"


def check(tx: Transaction, layout: ColumnLayout, names: ColumnNames) -> None:
    """See that table, columns and trigger are the recorded ones, and that nothing fires after it; raise `SchemaChanged` if not."""
    binds = (layout.source, names.refused, names.trigger, layout.oid, names.function, layout.column, names.column)
    oid, triggers, functions, columns = tx.run_verbatim(_CHECK, binds).rows[0]
    later = later_triggers(tx, layout.oid, names.trigger)
    expected = (
        (oid == layout.oid, f"{layout.source} is no longer the table that was planned for"),
        (triggers == 1 and functions == 1, "the trigger that fills the new column is gone, or was changed or switched off for a time"),
        (columns == [f"{layout.column} {layout.old_type}", f"{names.column} {layout.type_text}"], "the column or the new one is gone or has another type"),
        (not later, f"the trigger {', '.join(later)} would change a row after the new column got its value: its name sorts behind {names.trigger}"),
    )
    wrong = [what for right, what in expected if not right]
    if wrong:
        raise SchemaChanged("; ".join(wrong), table=layout.table)
