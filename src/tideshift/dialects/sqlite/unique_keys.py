"""The unique keys of a table as its catalogue and its texts tell them: terms, condition, and what they are computed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tideshift.ddl.tokens import replace_spans
from tideshift.dialects.sqlite.create_index import IndexText, parse_index
from tideshift.dialects.sqlite.create_table import ClauseKind, TableText, identifiers, qualifier_edits
from tideshift.dialects.sqlite.driver import quote
from tideshift.dialects.sqlite.layout import ROW_ALIAS, KeyColumn
from tideshift.dialects.sqlite.scratch import IndexShape, Shape

__all__ = ["Term", "UniqueKey", "UniqueKeys", "collate"]


@dataclass(frozen=True)
class Term:
    """One term of a unique key: a column by its name, or an expression."""

    column: str | None
    expression: str
    collation: str | None

    @property
    def found(self) -> str:
        """Return the term of the row that is looked for, as its index has it."""
        place = f"({self.expression})" if self.column is None else f"{quote(ROW_ALIAS)}.{quote(self.column)}"
        return place + collate(self.collation)


@dataclass(frozen=True)
class UniqueKey:
    """One unique key; `where` is the condition of a partial one, over the table's own name."""

    index: str
    is_constraint: bool
    terms: tuple[Term, ...]
    where: str | None

    @property
    def label(self) -> str:
        """Return how a person knows it."""
        terms = ", ".join(term.expression if term.column is None else term.column for term in self.terms)
        return f"the constraint UNIQUE ({terms})" if self.is_constraint else f"unique index {self.index!r}"

    @property
    def is_plain(self) -> bool:
        """Whether it consists of columns, for all rows."""
        return self.where is None and all(term.column is not None for term in self.terms)


@dataclass(frozen=True)
class UniqueKeys:
    """A table with what its unique keys are read from."""

    table: TableText
    name: str
    shape: Shape
    key: tuple[KeyColumn, ...]
    rowid_column: str | None
    index_texts: Mapping[str, str]

    def all(self) -> list[UniqueKey]:
        """Return every unique key but the chunk key itself, whose new value is logged anyway."""
        key = [column.name for column in self.key]
        return [
            self._read(index)
            for index in self.shape.indexes
            if index.unique and not (index.origin == "pk" and [name for _, name, *_ in index.key_terms] == key)
        ]

    def _read(self, index: IndexShape) -> UniqueKey:
        text: IndexText | None = parse_index(self.index_texts[index.name]) if index.name in self.index_texts else None
        terms = []
        for number, (cid, name, _, collation, _) in enumerate(index.key_terms):
            plain = cid >= 0 or text is None
            terms.append(Term(str(name) if plain else None, "" if text is None else text.terms[number], collation))
        return UniqueKey(index.name, text is None, tuple(terms), text.where if text else None)

    def where_of_found(self, unique: UniqueKey) -> list[str]:
        """Return a partial key's condition on the row that is looked for."""
        if unique.where is None:
            return []
        return [f"({replace_spans(unique.where, qualifier_edits(unique.where, self.name, quote(ROW_ALIAS)))})"]

    def columns_in(self, expression: str) -> list[str]:
        """Return the table's columns that an expression names, in their order; a word that may be one counts."""
        words = {word.lower() for word in identifiers(expression)}
        return [name for name, *_ in self.shape.columns if name.lower() in words]

    def computed_from(self, unique: UniqueKey) -> set[str]:
        """Return what the key depends on through an expression, its condition or a generated column, in lower case."""
        generated = self._generated_texts()
        texts = [term.expression for term in unique.terms if term.column is None]
        texts += [unique.where] if unique.where is not None else []
        texts += [generated[term.column.lower()] for term in unique.terms if term.column and term.column.lower() in generated]
        return self._words_behind(texts)

    def names_behind(self, index: IndexShape) -> set[str]:
        """Return the columns that any index is over or depends on, and whatever other words its expressions have, in lower case."""
        read = self._read(index)
        return {term.column.lower() for term in read.terms if term.column is not None} | self.computed_from(read)

    def inputs_of_generated(self) -> list[str]:
        """Return the columns, not generated themselves, that any generated column is computed from."""
        generated = self._generated_texts()
        words = self._words_behind(list(generated.values()))
        return [name for name, *_ in self.shape.columns if name.lower() in words - generated.keys()]

    def _words_behind(self, texts: list[str]) -> set[str]:
        """Return the words of some expressions and of the generated columns that they name, in lower case."""
        generated = self._generated_texts()
        found: set[str] = set()
        waiting = {word.lower() for text in texts for word in identifiers(text)}
        while waiting:  # Ends: no word is taken twice.
            word = waiting.pop()
            found.add(word)
            waiting |= {inner.lower() for inner in identifiers(generated.get(word, ""))} - found
        return found

    def _generated_texts(self) -> dict[str, str]:
        return {
            column.name.lower(): self.table.text[slice(*clause.expression)]
            for column in self.table.columns
            for clause in column.clauses
            if clause.kind is ClauseKind.GENERATED and clause.expression is not None
        }

    def is_row(self, row: str, which: str) -> str:
        """Return the condition that a row of the source, by its quoted alias, has the key of NEW or OLD."""
        return " AND ".join(
            f"{row}.{quote(column.name)}{collate(column.collation)} = {which}.{quote(column.name)}" for column in self.key
        )

    def is_copy(self, row: str, which: str) -> str:
        """Return the same for a row of the shadow."""
        return " AND ".join(
            f"{row}.{quote(column.new_name)}{collate(column.collation)} = {which}.{quote(column.name)}" for column in self.key
        )

    def changed(self, unique: UniqueKey) -> list[str]:
        """Return the condition that an update changes a plain key at all: most do not, and then nothing is looked up."""
        if not unique.is_plain:
            return []
        differ = [f"NEW.{quote(term.column or '')} COLLATE BINARY IS NOT OLD.{quote(term.column or '')}" for term in unique.terms]
        return [f"({' OR '.join(differ)})"]

    def collation_of(self, column: str) -> str:
        """Return a column's COLLATE clause, if it has one."""
        clauses = [clause for clause in self.table.column(column).clauses if clause.kind is ClauseKind.COLLATE]
        return "".join(" " + self.table.text[clause.start : clause.end] for clause in clauses[-1:])


def collate(collation: str | None) -> str:
    """Return a COLLATE for a name, or nothing."""
    return "" if collation is None else f" COLLATE {quote(collation)}"
