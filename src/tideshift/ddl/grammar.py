"""What one kind of database adds to the grammar of statements: how it spells, how it folds names, which forms it has besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tideshift.ddl.tokens import LOOSE, Spelling

__all__ = ["PLAIN", "Grammar"]


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """The differences; `table_forms` and `column_forms` are the first words of actions that are handed on as they stand."""

    spelling: Spelling
    fold: Callable[[str], str]
    """What becomes of a name without quotes."""
    type_operators: str
    """The operators that may stand in a type."""
    words_in_a_type: frozenset[str] = frozenset()
    before_columns: tuple[tuple[str, ...], ...] = ()
    """What may stand between a key's keyword and its columns, or in place of them."""
    table_forms: tuple[tuple[str, ...], ...] = ()
    column_forms: tuple[tuple[str, ...], ...] = ()
    constraints: tuple[str, ...] = ("CHECK", "UNIQUE", "PRIMARY KEY", "FOREIGN KEY")
    """What may be added to a table."""
    object_forms: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    """What else ALTER takes besides TABLE: INDEX for example, and the first words behind the name."""
    says_concurrently: bool = False
    """Whether REINDEX takes the word CONCURRENTLY, which changes nothing."""
    name_quote: str = '"'
    """What stands around a name that is written for it."""
    names_index_by_table: bool = False
    """Whether an index has a name only within its table: DROP INDEX name ON table."""
    names_index_by_method: bool = False
    """Whether CREATE INDEX takes USING, INCLUDE, WITH and the like."""


PLAIN = Grammar(spelling=LOOSE, fold=lambda name: name, type_operators="(),.+-")
"""SQLite's: names are compared without regard to case, so they stay as they are written."""
