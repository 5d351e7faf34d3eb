"""Changes of indexes: the database's own statement where it is over in a moment, else a shadow table that has the index."""

from __future__ import annotations

from dataclasses import replace

from tideshift.ddl.change import CreateIndex, DropIndex, Reindex, TableName
from tideshift.ddl.dialect import Reshaping, RowWork, Strategy
from tideshift.ddl.tokens import same_name
from tideshift.dialects.sqlite import estimate
from tideshift.dialects.sqlite.catalog import SourceTable, SqliteCatalog, columns_of, find_table, near, shape_of
from tideshift.dialects.sqlite.create_index import parse_index
from tideshift.dialects.sqlite.driver import quote
from tideshift.dialects.sqlite.foreign_keys import foreign_key_reasons
from tideshift.dialects.sqlite.fragments import see_index
from tideshift.dialects.sqlite.layout import SourceIndex
from tideshift.dialects.sqlite.native import NativeChange
from tideshift.dialects.sqlite.rehearsal import rehearsal, schema_rows
from tideshift.dialects.sqlite.reshape import Reshape, refused
from tideshift.dialects.sqlite.scratch import TextRefused
from tideshift.dialects.sqlite.using import without_double_quotes
from tideshift.dialects.sqlite.ways import Own, Ways, see_name
from tideshift.errors import NotFound

__all__ = ["IndexDesigner"]


class IndexDesigner:
    """Works one change of an index out."""

    def __init__(self, ways: Ways, catalog: SqliteCatalog) -> None:
        self.ways = ways
        self.tx, self.driver, self.wished = ways.tx, ways.driver, ways.wished
        self.catalog = catalog

    def create(self, change: CreateIndex) -> Reshaping:
        """CREATE INDEX."""
        source = find_table(self.tx, change.table)
        see_name(source, change.name)
        see_index(self.driver, source.name, columns_of(self.tx, source), change)
        taken = self.tx.run_verbatim("SELECT type FROM sqlite_master WHERE name = ? COLLATE NOCASE", (change.name,)).scalar()
        if taken is not None:
            raise refused(source, [f"there is {'an' if taken == 'index' else 'a'} {taken} {change.name!r} already"])
        rows = self.catalog.rows_at_most(self.tx, change.table)
        with rehearsal(self.tx, self.driver, filled=source.name if rows else None) as trial:
            try:
                rehearsed = trial.run([change.text])
                trial.run([f"DROP INDEX {quote(change.name)}", without_double_quotes(change.text)])
            except TextRefused as error:
                raise refused(source, [f"the library refuses the index: {error}"]) from error
        ((_, made),) = rehearsed.changed.items()
        assert made is not None
        assert made.text is not None
        text = parse_index(made.text)
        entry_bytes = self.catalog.entry_bytes(self.tx, source.name, text.terms)
        own = Own(
            change=NativeChange.of([made.text], schema_rows(self.tx), rehearsed, of=source.name),
            hold_seconds=estimate.index_seconds(
                rows, terms=len(text.terms), entry_bytes=entry_bytes, row_bytes=self.catalog.row_bytes(self.tx, source.name)
            ),
            row_work=RowWork.SCAN,
            instant=False,
            disk_bytes=estimate.made_index_bytes(rows, entry_bytes=entry_bytes),
        )
        if self.ways.allows(own):
            return self.ways.native(source, own, may_refuse=text.unique)
        added = SourceIndex(made.name, made.text)
        return self.ways.rebuilt(Reshape(source=source, new_text=source.text, actions=(), added_indexes=(added,)), rows)

    def drop(self, change: DropIndex) -> Reshaping:
        """DROP INDEX."""
        source, name = self._index(change.index)
        if self.wished is Strategy.SHADOW_TABLE:
            raise refused(source, ["an index is dropped by the database's own statement; no shadow table is needed"])
        shape = shape_of(self.tx, source.name)
        left = replace(shape, indexes=tuple(index for index in shape.indexes if index.name != name))
        needed = foreign_key_reasons(self.tx, source.name, left, source.text, self.driver)
        if needed:
            raise refused(source, needed)
        rows = self.catalog.rows_at_most(self.tx, TableName(None, source.name))
        statement = f"DROP INDEX {quote(name)}"
        with rehearsal(self.tx, self.driver, filled=None) as trial:
            try:
                rehearsed = trial.run([statement])
            except TextRefused as error:
                raise refused(source, [f"the library refuses it: {error}"]) from error
        hold = estimate.seconds("drop index", rows)
        own = Own(change=NativeChange.of([statement], schema_rows(self.tx), rehearsed), hold_seconds=hold, row_work=RowWork.NONE, instant=False)
        return self.ways.native(source, own)

    def reindex(self, change: Reindex) -> Reshaping:
        """REINDEX of an index, or of all that a table has."""
        name = change.name
        table = self.tx.run_verbatim("SELECT name FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE", (name.name,)).scalar()
        source, index = (find_table(self.tx, name), None) if table is not None else self._index(name, automatic=True)
        rows = self.catalog.rows_at_most(self.tx, TableName(None, source.name))
        row_bytes = self.catalog.row_bytes(self.tx, source.name)
        made = [(len(terms), self.catalog.entry_bytes(self.tx, source.name, terms)) for terms in self._terms(source, index)]
        own = Own(
            change=NativeChange((f"REINDEX {quote(index if index is not None else source.name)}",), (), ()),
            hold_seconds=sum(estimate.index_seconds(rows, terms=terms, entry_bytes=size, row_bytes=row_bytes) for terms, size in made),
            row_work=RowWork.SCAN,
            instant=False,
            disk_bytes=sum(estimate.remade_index_bytes(rows, entry_bytes=size) for _, size in made),
        )
        if self.ways.allows(own):
            return self.ways.native(source, own)
        remade = (index,) if index is not None else tuple(one.name for one in source.indexes)
        return self.ways.rebuilt(Reshape(source=source, new_text=source.text, actions=(), remade_indexes=remade), rows)

    def _terms(self, source: SourceTable, index: str | None) -> list[tuple[str, ...]]:
        """Return the terms of an index, or of each one of a table, as SQL."""
        texts = {one.name: parse_index(one.text).terms for one in source.indexes}
        stored = (*texts, *source.automatic_indexes)
        indexes = [one for one in shape_of(self.tx, source.name).indexes if one.name == index or (index is None and one.name in stored)]
        return [texts.get(one.name) or tuple(quote(str(name)) for _, name, *_ in one.key_terms) for one in indexes]

    def _index(self, name: TableName, *, automatic: bool = False) -> tuple[SourceTable, str]:
        """Find an index of the user's; raise `NotFound` with near names."""
        rows = self.tx.run_verbatim("SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'index'").rows
        for found, table, text in rows:
            if not same_name(found, name.name) or (name.schema or "main").lower() != "main":
                continue
            source = find_table(self.tx, TableName(None, table))
            if text is None and not automatic:
                raise refused(source, [f"index {found!r} belongs to a constraint: drop the constraint by ALTER TABLE"])
            return source, found
        names = [found for found, _, text in rows if text is not None]
        raise NotFound(f"there is no index {str(name)!r}", hint=near(name.name, names), index=name.name)
