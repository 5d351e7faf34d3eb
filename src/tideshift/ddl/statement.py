"""From the text of a statement to a typed change; the texts inside the change stay the user's own, letter by letter."""

from __future__ import annotations

from tideshift.ddl.alter_table import alter_table
from tideshift.ddl.change import AlterObject, Change, CreateIndex, DropIndex, Reindex
from tideshift.ddl.grammar import PLAIN, Grammar
from tideshift.ddl.reader import StatementReader

__all__ = ["parse_statement"]

_MORE_THAN_A_TABLE = frozenset({"SCHEMA", "DATABASE", "SYSTEM"})
_OTHER_STATEMENTS = frozenset("ALTER CREATE DROP TRUNCATE RENAME COMMENT GRANT REVOKE VACUUM ANALYZE".split())


def parse_statement(text: str, grammar: Grammar = PLAIN) -> Change:
    """Read one statement, or raise `BadStatement` pointing at the token that is not understood."""
    reader = StatementReader(text, grammar)
    if reader.ended:
        reader.refuse("there is no statement")
    match reader.word(), reader.word(1):
        case "ALTER", "TABLE":
            return alter_table(reader)
        case "ALTER", what if what in grammar.object_forms:
            return _alter_object(reader, what)
        case ("CREATE", "INDEX") | ("CREATE", "UNIQUE"):
            return _create_index(reader)
        case "DROP", "INDEX":
            return _drop_index(reader)
        case "REINDEX", _:
            return _reindex(reader)
    if reader.word() in _OTHER_STATEMENTS:
        reader.not_supported(f"{reader.word()} {reader.word(1)}")
    return reader.refuse("ALTER TABLE, CREATE INDEX, DROP INDEX or REINDEX is expected here")


def _create_index(reader: StatementReader) -> CreateIndex:
    reader.take("CREATE")
    reader.accept("UNIQUE")
    reader.take("INDEX")
    if reader.word() == "CONCURRENTLY":
        reader.refuse("CONCURRENTLY is left out: an index is always made online", form="CONCURRENTLY")
    if reader.word() == "IF" and reader.word(1) == "NOT":
        reader.not_supported("IF NOT EXISTS")
    index = reader.table("an index name")
    reader.take("ON")
    table = reader.table()
    more = reader.grammar.names_index_by_method
    if more and reader.accept("USING"):
        reader.name("an access method")
    reader.group()
    if more or reader.grammar.names_index_by_table:
        reader.until(stops=frozenset({"WHERE"}))
    if reader.accept("WHERE"):
        if reader.ended:
            reader.refuse("an expression is expected after WHERE")
        reader.until()
    _end(reader)
    text = reader.whole
    if index.schema is not None and table.schema is None:
        table = type(table)(index.schema, table.name)
    return CreateIndex(table=table, name=index.name, text=text)


def _alter_object(reader: StatementReader, what: str) -> AlterObject:
    reader.take("ALTER", what)
    if reader.word() == "IF" and reader.word(1) == "EXISTS":
        reader.not_supported("IF EXISTS")
    name = reader.table("a name")
    if reader.ended:
        reader.refuse("what is to be changed is expected here")
    start = reader.at
    for words in reader.grammar.object_forms[what]:
        if all(reader.word(ahead) == word or reader.is_operator(word, ahead) for ahead, word in enumerate(words)):
            reader.at = len(reader.tokens)
            return AlterObject(what=what, name=name, form=" ".join(words), text=reader.between(start, reader.at - 1))
    return reader.not_supported(f"ALTER {what} … {reader.word()} {reader.word(1)}")


def _drop_index(reader: StatementReader) -> DropIndex:
    reader.take("DROP", "INDEX")
    if reader.word() == "IF" and reader.word(1) == "EXISTS":
        reader.not_supported("IF EXISTS")
    index = reader.table("an index name")
    table = None
    if reader.grammar.names_index_by_table:
        reader.take("ON")
        table = reader.table()
        if not reader.ended:
            reader.refuse("the end of the statement is expected here: how it is done, and how long it waits, is chosen")
    _end(reader)
    return DropIndex(index=index, table=table)


def _reindex(reader: StatementReader) -> Reindex:
    reader.take("REINDEX")
    target = None
    if reader.word() in ("INDEX", "TABLE") and len(reader.tokens) > reader.at + 1:
        target = reader.word()
        reader.at += 1
    if reader.grammar.says_concurrently and reader.word() == "CONCURRENTLY" and len(reader.tokens) > reader.at + 1:
        reader.at += 1
    if reader.word() in _MORE_THAN_A_TABLE and len(reader.tokens) > reader.at + 1 and not reader.is_operator(".", 1):
        reader.not_supported(f"REINDEX {reader.word()}")
    name = reader.table("a table or an index")
    _end(reader)
    return Reindex(name=name, target=target)


def _end(reader: StatementReader) -> None:
    if not reader.ended:
        reader.refuse("the end of the statement is expected here")
