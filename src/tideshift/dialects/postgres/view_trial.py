"""Views tried on the empty copy of a changed table, before anything is made: each text that hangs on what changes is read by the server again.

The copies are temporary, so they have schemas of their own nowhere. A text is therefore written by a search path on which the
relations that it reads stand, and read by the same path with the temporary schema in front, while the copies bear the real names;
that it found the copies and not the real ones is seen in the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.source import SourceTable
from tideshift.dialects.postgres.views import Rule, View, Views
from tideshift.store.database import ConstraintViolated, DatabaseFailed, Transaction

__all__ = ["ViewTrial", "try_views"]


@dataclass
class ViewTrial:
    """What became of the views: those that would be made anew, what is worth telling, and what speaks against the change."""

    anew: set[int] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def try_views(tx: Transaction, views: Views, source: SourceTable, *, copy: str, columns: list[tuple[str, str]]) -> ViewTrial:
    """Try every view that hangs on what changes.

    `copy` is the bare name of the temporary table that has the new shape; `columns` pairs the names of the source's columns that
    go on with their names in it. Everything is taken back at the end.
    """
    tx.run_verbatim("SAVEPOINT tideshift_views")
    trying = _Trying(tx, views, source, copy)
    try:
        trying.give_old_names(columns)
        trying.run()
    finally:
        tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_views")
        tx.run_verbatim("RELEASE SAVEPOINT tideshift_views")
    found = trying.found
    found.reasons += views.obstacles(tx, found.anew)
    return found


_COPY = "tideshift_copy"


class _Trying:
    def __init__(self, tx: Transaction, views: Views, source: SourceTable, copy: str) -> None:
        self.tx = tx
        self.views = views
        self.source = source
        self.found = ViewTrial()
        self.copies = {source.oid: _COPY}
        """The temporary relations by the oids of the real ones."""
        tx.run_verbatim(f"ALTER TABLE pg_temp.{quote(copy)} RENAME TO {_COPY}")  # a view over it may have its name, in another schema
        self.real = {source.oid: (source.schema, source.name), **{one.oid: (one.schema, one.bare) for one in views.views}}

    def give_old_names(self, columns: list[tuple[str, str]]) -> None:
        """Call the copy's columns what the texts of the views call them."""
        table = f"pg_temp.{quote(self.copies[self.source.oid])}"
        if all(old == new for old, new in columns):
            return
        olds = {new: old for old, new in columns}
        names = [name for (name,) in self.tx.run_verbatim(
            "SELECT attname::text FROM pg_catalog.pg_attribute WHERE attrelid = pg_catalog.to_regclass($1) AND attnum > 0 AND NOT attisdropped", (table,)).rows]  # fmt: skip
        for number, name in enumerate(names):
            self.tx.run_verbatim(f"ALTER TABLE {table} RENAME COLUMN {quote(name)} TO {quote(f'tideshift_column_{number}')}")
        for number, name in enumerate(names):
            if name in olds:
                self.tx.run_verbatim(f"ALTER TABLE {table} RENAME COLUMN {quote(f'tideshift_column_{number}')} TO {quote(olds[name])}")

    def run(self) -> None:
        """Try them in their order."""
        for one in self.views.views:
            if one.temporary or not (one.changed or one.reads & self.found.anew):
                continue
            refused = self._make(one)
            if refused is not None:
                self.found.reasons.append(f"the {one.shown} does not go with the new shape: {refused}")
                continue
            self._compare(one)
            for rule in self.views.rules:
                if rule.view == one.oid:
                    self._try_rule(one, rule)

    def _make(self, view: View) -> str | None:
        """Make the copy of a view; return the server's words when it refuses it."""
        reads = sorted(view.reads & self.copies.keys())
        name = f"tideshift_view_{len(self.copies)}"
        path = self._path(reads)
        text = str(self._by_path(f"{path}, pg_temp", "SELECT pg_catalog.pg_get_viewdef($1::oid)", view.oid)).rstrip().rstrip(";")
        refused = self._try(reads, path, f"CREATE TEMPORARY VIEW {quote(name)} AS {text}")
        if refused is not None:
            return refused
        if self.tx.run_verbatim(_READS_REAL, (f"pg_temp.{quote(name)}", reads)).scalar():
            return "it reads two relations of one name, and cannot be tried"
        self.copies[view.oid] = name
        return None

    def _path(self, reads: list[int]) -> str:
        return ", ".join(dict.fromkeys(quote(self.real[oid][0]) for oid in reads))

    def _by_path(self, path: str, query: str, oid: int) -> object:
        self.tx.run_verbatim("SELECT pg_catalog.set_config('search_path', $1, true)", (path,))
        value = self.tx.run_verbatim(query, (oid,)).scalar()
        self.tx.run_verbatim("SELECT pg_catalog.set_config('search_path', '', true)")
        return value

    def _try(self, reads: list[int], path: str, sql: str) -> str | None:
        """Run a text while the copies of what it reads bear the real names; return the server's words when it refuses it."""
        renamed = [(self.copies[oid], self.real[oid][1]) for oid in reads]
        tx = self.tx
        tx.run_verbatim("SAVEPOINT tideshift_view")
        try:
            for number, (copy, _) in enumerate(renamed):
                tx.run_verbatim(f"ALTER TABLE pg_temp.{quote(copy)} RENAME TO {quote(f'tideshift_between_{number}')}")
            for number, (_, real) in enumerate(renamed):
                tx.run_verbatim(f"ALTER TABLE pg_temp.{quote(f'tideshift_between_{number}')} RENAME TO {quote(real)}")
            tx.run_verbatim("SELECT pg_catalog.set_config('search_path', $1, true)", (f"pg_temp, {path}",))
            tx.run_verbatim(sql)
            tx.run_verbatim("SELECT pg_catalog.set_config('search_path', '', true)")
            for number, (_, real) in enumerate(renamed):
                tx.run_verbatim(f"ALTER TABLE pg_temp.{quote(real)} RENAME TO {quote(f'tideshift_between_{number}')}")
            for number, (copy, _) in enumerate(renamed):
                tx.run_verbatim(f"ALTER TABLE pg_temp.{quote(f'tideshift_between_{number}')} RENAME TO {quote(copy)}")
        except (DatabaseFailed, ConstraintViolated) as error:
            tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_view")
            return error.message.partition("\n")[0]
        tx.run_verbatim("RELEASE SAVEPOINT tideshift_view")
        return None

    def _compare(self, view: View) -> None:
        """See what the view gives afterwards, and that it computes it by the same functions."""
        copy = f"pg_temp.{quote(self.copies[view.oid])}"
        anew = bool(view.reads & self.found.anew)
        for name, before, after in self.tx.run_verbatim(_OUTPUT, (view.oid, copy)).rows:
            anew = True
            self.found.warnings.append(f"the {view.shown} is made anew, and its column {name} is {after} instead of {before}")
        if anew:
            self.found.anew.add(view.oid)
        others = [(kind, what) for kind, what in self.tx.run_verbatim(_OTHER_MEANING, (view.oid, copy)).rows]
        if others:
            listed = ", ".join(sorted({what for _, what in others}))
            self.found.reasons.append(f"the {view.shown} would no longer mean the same: by the new types its text uses other functions or operators ({listed})")
        divides = [self.tx.run_verbatim(_DIVISIONS, (oid,)).scalar() for oid in (view.oid, self._oid(copy))]
        if divides[0] != divides[1]:
            self.found.reasons.append(f"the {view.shown} would no longer mean the same: it divides whole numbers, and would divide others: drop it and make it again as it shall be")

    def _oid(self, name: str) -> int:
        return int(self.tx.run_verbatim("SELECT pg_catalog.to_regclass($1)::oid::bigint", (name,)).scalar())

    def _try_rule(self, view: View, rule: Rule) -> None:
        reads = sorted((rule.uses | {view.oid}) & self.copies.keys())
        path = self._path(reads)
        text = str(self._by_path(f"{path}, pg_temp", "SELECT pg_catalog.pg_get_ruledef($1::oid, true)", rule.oid))
        refused = self._try(reads, path, text)
        if refused is not None:
            self.found.reasons.append(f"the rule {rule.name} of the {view.shown} does not go with the new shape: {refused}")


_READS_REAL = """
SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
               WHERE r.ev_class = pg_catalog.to_regclass($1) AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = ANY ($2::bigint[]))
"""
_OUTPUT = """
SELECT o.attname::text, pg_catalog.format_type(o.atttypid, o.atttypmod) || CASE WHEN o.attcollation <> n.attcollation THEN ' COLLATE ' || o.attcollation::regcollation::text ELSE '' END,
       pg_catalog.format_type(n.atttypid, n.atttypmod) || CASE WHEN o.attcollation <> n.attcollation THEN ' COLLATE ' || n.attcollation::regcollation::text ELSE '' END
FROM pg_catalog.pg_attribute o JOIN pg_catalog.pg_attribute n ON n.attrelid = pg_catalog.to_regclass($2) AND n.attnum = o.attnum
WHERE o.attrelid = $1 AND o.attnum > 0 AND (o.atttypid, o.atttypmod, o.attcollation) <> (n.atttypid, n.atttypmod, n.attcollation) ORDER BY o.attnum
"""
_OTHER_MEANING = """
WITH used AS (SELECT r.ev_class, d.refclassid, d.refobjid FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
               WHERE r.rulename = '_RETURN' AND r.ev_class IN ($1, pg_catalog.to_regclass($2)::oid)
                 AND d.refclassid IN ('pg_catalog.pg_proc'::regclass, 'pg_catalog.pg_operator'::regclass))
SELECT refclassid::regclass::text, pg_catalog.pg_describe_object(refclassid, refobjid, 0) FROM used GROUP BY refclassid, refobjid HAVING count(DISTINCT ev_class) = 1
"""
"""What the server itself brings is not recorded; its operators of one name mean the same for all types, but for division."""
_DIVISIONS = """
SELECT count(*) FROM pg_catalog.pg_rewrite r, LATERAL regexp_matches(r.ev_action::text, ':opno (\\d+)', 'g') one (found)
  JOIN pg_catalog.pg_operator o ON o.oid = found[1]::oid
 WHERE r.ev_class = $1 AND r.rulename = '_RETURN' AND o.oprname = '/' AND o.oprresult IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)
"""
