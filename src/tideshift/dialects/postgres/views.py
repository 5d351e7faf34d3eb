"""The views over a table, carried over when the table or one of its columns is replaced by another one of the same name.

A view holds on to what it reads by identity, not by name. So its text is read before the names change hands
(`Views.read`) and given to the server again afterwards (`Views.point`):

- by `CREATE OR REPLACE VIEW` where its columns stay as they are: everything on the view and over it stays untouched;
- by dropping and making it anew where the type of one of its columns changes, and with it every view over it: owner,
  privileges with their grantors, options, defaults, triggers, rules and comments come from the catalogue.

A materialized view cannot be pointed anew, and its rows are what it held at its last refresh: nothing gives those back.
One that only reads views that are replaced in place keeps its rows; any other is an obstacle (`Views.obstacles`).
Nothing is ever dropped with CASCADE.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.view_attachments import attachments_of, obstacles_of
from tideshift.errors import SchemaChanged
from tideshift.store.database import DatabaseFailed, Transaction

__all__ = ["Rule", "View", "Views"]

_OTHER_COLUMNS = "42P16"
"""What the server says of CREATE OR REPLACE VIEW when a column would change its name, type or collation."""


@dataclass(frozen=True)
class View:
    """A view that reads the table, or another view that does."""

    oid: int
    schema: str
    bare: str
    kind: str
    """By the catalogue's letter: v, m for a materialized one."""
    owner: str
    temporary: bool
    direct: bool
    """Whether it reads the table (the columns in question) itself."""
    changed: bool
    """Whether it hangs on a column that changes, or on a key of the table, so that the server may refuse its text afterwards."""
    reads: frozenset[int]
    """What it reads itself: the table and other views over it, by their oids."""
    text: str
    options: str

    @property
    def name(self) -> str:
        """Return its name behind its schema, quoted."""
        return f"{quote(self.schema)}.{quote(self.bare)}"

    @property
    def shown(self) -> str:
        """Return its name for a person."""
        return f"{'materialized ' if self.kind == 'm' else ''}view {self.schema}.{self.bare}"


@dataclass(frozen=True)
class Rule:
    """A rule of a view, beside the one that makes it a view."""

    oid: int
    name: str
    view: int
    view_name: str
    owner: str
    uses: frozenset[int]
    """What it reads or writes: the table and the views over it, by their oids."""
    text: str
    comment: str | None
    """Its comment, as a statement; a view's rules and triggers cannot be switched off."""


class Views:
    """All views over a table, each behind those that it reads."""

    def __init__(self, table: int, views: list[View], rules: list[Rule]) -> None:
        self.table = table
        self.views = views
        self.rules = rules

    @classmethod
    def read(cls, tx: Transaction, table: int, *, changed: Collection[int], moves: bool) -> Views:
        """Read the views over a table, as long as the names mean what they read now.

        `changed` are the numbers of columns that get another type. `moves`: the table itself is replaced, so that every view
        of it must be pointed anew; otherwise only views that use one of these columns (they are replaced by other columns).
        """
        binds = (table, list(changed), moves)
        views = [
            View(oid, schema, bare, kind, owner, temporary, direct, changes, frozenset(reads), text, options)
            for oid, schema, bare, kind, owner, temporary, direct, changes, reads, text, options in tx.run_verbatim(_VIEWS, binds).rows
        ]
        ordered = _in_order(views)
        oids = [one.oid for one in ordered]
        rules = [
            Rule(oid, name, view, view_name, owner, frozenset(uses), text, comment)
            for oid, name, view, view_name, owner, uses, text, comment in tx.run_verbatim(_RULES, (*binds, oids)).rows
        ]
        return cls(table, ordered, rules)

    @property
    def followed(self) -> list[int]:
        """Return the oids of all that is taken care of here."""
        return [one.oid for one in self.views] + [one.view for one in self.rules]

    def over(self, views: Iterable[View]) -> list[View]:
        """Return these and every view over them, each behind those that it reads."""
        found = {one.oid for one in views}
        for one in self.views:
            if one.reads & found:
                found.add(one.oid)
        return [one for one in self.views if one.oid in found]

    @property
    def touched(self) -> list[View]:
        """Return those that will be replaced, or may have to be made anew: nobody may use them meanwhile."""
        wanted = {one.oid for one in self.views if one.direct} | {one.oid for one in self.over(one for one in self.views if one.changed)}
        return [one for one in self.views if one.oid in wanted]

    def locks(self) -> dict[int, str]:
        """Return a statement for each touched view, by its oid, that takes its ACCESS EXCLUSIVE lock and changes nothing.

        `LOCK TABLE` would lock every table that the view reads too, and want privileges on them.
        """
        lasting = [one for one in self.touched if one.kind == "v" and not one.temporary]
        found = {one.oid: f"ALTER VIEW {one.name} OWNER TO {quote(one.owner)}" for one in lasting}
        touched = {self.table, *(one.oid for one in self.touched)}
        return found | {one.view: f"ALTER VIEW {one.view_name} OWNER TO {quote(one.owner)}" for one in self.rules if one.uses & touched}

    def passing(self) -> list[str]:
        """Name the temporary views of other sessions in the way: they go with their sessions, and nobody else can make them again."""
        return [one.bare for one in self.touched if one.temporary]

    def obstacles(self, tx: Transaction, anew: Collection[int]) -> list[str]:
        """Say why these views could not be made anew, or materialized ones not be pointed at another table."""
        reasons = [
            f"the {one.shown} reads it, cannot be pointed anew, and would lose what it holds since its last refresh: drop it before and make it again afterwards"
            for one in self.views if one.kind == "m" and (one.direct or one.oid in anew)
        ]  # fmt: skip
        known = [one.oid for one in self.views]
        made = [one for one in self.views if one.oid in anew and one.kind == "v" and not one.temporary]
        return reasons + [reason for one in made for reason in obstacles_of(tx, one.oid, known)]

    def owned_by_others(self, tx: Transaction) -> list[str]:
        """Say which views belong to roles that this one may not act for."""
        return [reason for (reason,) in tx.run_verbatim(_OWNERS, ([one.oid for one in self.touched] + [one.view for one in self.rules],)).rows]

    def point(self, tx: Transaction) -> list[View]:
        """Give the server every text again, now that the names mean something else; return which views were made anew.

        Raises `SchemaChanged` naming the view whose text the server no longer takes, with its words.
        """
        anew: set[int] = set()
        for one in self.views:
            if one.direct and one.kind == "v" and one.oid not in anew and not self._replace(tx, one):
                anew |= {view.oid for view in self.over([one])}
        reasons = self.obstacles(tx, anew)
        if reasons:
            raise SchemaChanged("; ".join(reasons))
        self.make_anew(tx, self.set_aside(tx, anew))
        return [one for one in self.views if one.oid in anew]

    def set_all_aside(self, tx: Transaction) -> list[tuple[str, str]]:
        """Drop every touched view, since the server changes no column's type and drops no column under one; return what makes them again."""
        anew = {one.oid for one in self.over(self.touched)}
        reasons = [*self.obstacles(tx, anew), *(f"a temporary view of another session is in the way: {name}" for name in self.passing())]
        if reasons:
            raise SchemaChanged("; ".join(reasons))
        return self.set_aside(tx, anew)

    def set_aside(self, tx: Transaction, anew: Collection[int]) -> list[tuple[str, str]]:
        """Drop these views and the rules that use them or the table; return what makes them again, each text with what it is about."""
        made = [one for one in self.views if one.oid in anew]
        rules = [one for one in self.rules if one.view in anew or one.uses & {*anew, self.table}]
        back = [(one.shown, text) for one in made for text in (f"CREATE VIEW {one.name}{one.options} AS {one.text}", *attachments_of(tx, one.oid, one.name))]
        for rule in rules:
            tx.run_verbatim(f"DROP RULE {quote(rule.name)} ON {rule.view_name}")
        for one in reversed(made):
            tx.run_verbatim(f"DROP VIEW {one.name}")
        return back + [(f"rule {rule.name} of {rule.view_name}", text) for rule in rules for text in (rule.text, rule.comment) if text is not None]

    def make_anew(self, tx: Transaction, texts: list[tuple[str, str]]) -> None:
        """Make what was set aside again; raise `SchemaChanged` naming the view that the server does not take any more."""
        for what, text in texts:
            try:
                tx.run_verbatim(text)
            except DatabaseFailed as error:
                raise _no_longer(what, error) from error

    def _replace(self, tx: Transaction, view: View) -> bool:
        """Give a view its text again as it stands; return False where its columns are no longer the same."""
        tx.run_verbatim("SAVEPOINT tideshift_view")
        try:
            tx.run_verbatim(f"CREATE OR REPLACE VIEW {view.name}{view.options} AS {view.text}")
        except DatabaseFailed as error:
            if getattr(error.__cause__, "sqlstate", None) != _OTHER_COLUMNS:
                raise _no_longer(view.shown, error) from error
            tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_view")
            return False
        tx.run_verbatim("RELEASE SAVEPOINT tideshift_view")
        return True


def _no_longer(what: str, error: DatabaseFailed) -> SchemaChanged:
    first = error.message.partition("\n")[0]
    return SchemaChanged(f"the {what} does not go with the new shape: {first}")


def _in_order(views: list[View]) -> list[View]:
    """Put each view behind those that it reads; views never read one another in a circle."""
    left = {one.oid: one for one in views}
    ordered: list[View] = []
    while left:
        ready = [one for one in left.values() if not (one.reads & left.keys())]
        assert ready, "views that read one another in a circle"
        ordered += ready
        for one in ready:
            del left[one.oid]
    return ordered


_EDGES = """
WITH RECURSIVE tree (oid) AS (
    SELECT r.ev_class FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid AND r.rulename = '_RETURN'
     WHERE d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = $1 AND r.ev_class <> $1
       AND (d.refobjsubid = ANY ($2) OR $3)
    UNION SELECT r.ev_class FROM tree JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = tree.oid
            AND d.classid = 'pg_catalog.pg_rewrite'::regclass JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid AND r.rulename = '_RETURN' AND r.ev_class <> tree.oid
), edge AS (
    SELECT r.ev_class AS reader, d.refobjid AS read, bool_or(d.refobjsubid = ANY ($2)) AS uses FROM tree JOIN pg_catalog.pg_rewrite r ON r.ev_class = tree.oid
      JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_catalog.pg_class'::regclass
     WHERE r.rulename = '_RETURN' AND d.refobjid <> r.ev_class GROUP BY 1, 2
), direct AS (SELECT reader, uses FROM edge WHERE read = $1 AND (uses OR $3))
"""
"""By the indexes of the catalogue, since it is asked under the lock of a swap, and a database may have thousands of views."""
_VIEWS = f"""
{_EDGES}
SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relkind::text, pg_catalog.pg_get_userbyid(c.relowner)::text, c.relpersistence = 't',
       EXISTS (SELECT 1 FROM direct WHERE reader = c.oid),
       EXISTS (SELECT 1 FROM direct WHERE reader = c.oid AND uses)
       OR EXISTS (SELECT 1 FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
                    JOIN pg_catalog.pg_constraint k ON d.refclassid = 'pg_catalog.pg_constraint'::regclass AND k.oid = d.refobjid
                   WHERE r.ev_class = c.oid AND k.conrelid = $1),
       (SELECT coalesce(array_agg(read::bigint), '{{}}') FROM edge WHERE reader = c.oid AND (read = $1 OR read IN (SELECT oid FROM tree))),
       pg_catalog.pg_get_viewdef(c.oid), CASE WHEN c.reloptions IS NULL THEN '' ELSE ' WITH (' || array_to_string(c.reloptions, ', ') || ')' END
FROM tree one JOIN pg_catalog.pg_class c ON c.oid = one.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace ORDER BY c.oid
"""
_RULES = """
SELECT r.oid::bigint, r.rulename::text, c.oid::bigint, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname), pg_catalog.pg_get_userbyid(c.relowner)::text,
       (SELECT coalesce(array_agg(DISTINCT d.refobjid::bigint), '{}') FROM pg_catalog.pg_depend d
         WHERE d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid <> c.oid
           AND (d.refobjid = ANY ($4::bigint[]) OR (d.refobjid = $1 AND ($3 OR d.refobjsubid = ANY ($2))))),
       pg_catalog.pg_get_ruledef(r.oid),
       'COMMENT ON RULE ' || pg_catalog.quote_ident(r.rulename) || ' ON ' || pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname)
           || ' IS ' || pg_catalog.quote_literal(pg_catalog.obj_description(r.oid, 'pg_rewrite'))
FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class c ON c.oid = r.ev_class JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE r.rulename <> '_RETURN' AND c.relkind = 'v' AND c.relpersistence <> 't'
  AND (c.oid = ANY ($4::bigint[])
       OR EXISTS (SELECT 1 FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
                     AND d.refclassid = 'pg_catalog.pg_class'::regclass
                     AND (d.refobjid = ANY ($4::bigint[]) OR (d.refobjid = $1 AND ($3 OR d.refobjsubid = ANY ($2))))))
ORDER BY r.oid
"""
_OWNERS = """
SELECT 'the view ' || c.oid::regclass::text || ' reads it and belongs to ' || pg_catalog.pg_get_userbyid(c.relowner)::text || ': GRANT '
       || pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(c.relowner)) || ' TO ' || pg_catalog.quote_ident(current_user)
  FROM pg_catalog.pg_class c WHERE c.oid = ANY ($1::bigint[]) AND c.relkind = 'v' AND c.relpersistence <> 't' AND NOT pg_catalog.pg_has_role(c.relowner, 'USAGE')
 ORDER BY c.oid
"""
