"""How statements are spelt here, and which clauses of ALTER TABLE are handed on as they stand: all that the server takes.

A clause is only told from the next one and given its first words; what it does is learned from the catalogue, after it was
tried on an empty copy of the table.
"""

from __future__ import annotations

import re

from tideshift.ddl.grammar import Grammar
from tideshift.ddl.tokens import Spelling

__all__ = ["GRAMMAR", "SPELLING"]

SPELLING: Spelling = re.compile(
    r"""
      (?P<SPACE>[ \t\n\f\r\v]+)
    | (?P<UNFINISHED>/\*M?![\s\S]*)
    | (?P<COMMENT>--(?=\s|$)[^\n]*|\#[^\n]*|/\*(?:(?!\*/)[\s\S])*\*/)
    | (?P<BLOB>[xXbB]'[^']*')
    | (?P<STRING>[nN]?'(?:[^'\\]|\\[\s\S]|'')*'|"(?:[^"\\]|\\[\s\S]|"")*")
    | (?P<QUOTED>`(?:[^`]|``)*`)
    | (?P<NUMBER>0[xX][0-9a-fA-F]+|0b[01]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_$\u0080-\U0010ffff]))
    | (?P<VARIABLE>\?|@{1,2}[A-Za-z0-9_.$`'"\u0080-\U0010ffff]*)
    | (?P<WORD>[A-Za-z0-9_$\u0080-\U0010ffff]+)
    | (?P<OPERATOR>->>|->|\|\||&&|<=>|<=|<>|<<|>=|>>|!=|:=|[\s\S])
    """,
    re.VERBOSE,
)
"""Names between backticks, strings in either quotes and with backslashes. A remark that the server would execute counts as unfinished."""

_ADDED = (
    ("INDEX",), ("KEY",), ("UNIQUE",), ("PRIMARY", "KEY"), ("FULLTEXT",), ("SPATIAL",), ("CONSTRAINT",), ("FOREIGN", "KEY"), ("CHECK",), ("(",),
    ("COLUMN", "("), ("PERIOD", "FOR"), ("SYSTEM", "VERSIONING"), ("PARTITION",),
)  # fmt: skip
_DROPPED = (
    ("INDEX",), ("KEY",), ("PRIMARY", "KEY"), ("FOREIGN", "KEY"), ("CONSTRAINT",), ("CHECK",), ("PERIOD", "FOR"), ("SYSTEM", "VERSIONING"),
    ("PARTITION",),
)  # fmt: skip

GRAMMAR = Grammar(
    spelling=SPELLING,
    fold=lambda name: name,
    type_operators="(),.'\"",
    name_quote="`",
    names_index_by_table=True,
    table_forms=(
        *(("ADD", *words) for words in _ADDED), *(("DROP", *words) for words in _DROPPED),
        ("MODIFY",), ("CHANGE",), ("RENAME", "INDEX"), ("RENAME", "KEY"), ("ALTER", "INDEX"), ("ALTER", "KEY"), ("ALTER", "CHECK"), ("ALTER", "CONSTRAINT"),
        ("CONVERT", "TO"), ("ORDER", "BY"), ("ENABLE", "KEYS"), ("DISABLE", "KEYS"), ("DISCARD",), ("IMPORT",), ("TRUNCATE", "PARTITION"),
        ("COALESCE",), ("REORGANIZE",), ("EXCHANGE",), ("ANALYZE",), ("CHECK",), ("OPTIMIZE",), ("REBUILD",), ("REPAIR",), ("REMOVE", "PARTITIONING"),
        ("PARTITION", "BY"), ("FORCE",), ("ENGINE",), ("AUTO_INCREMENT",), ("AVG_ROW_LENGTH",), ("DEFAULT",), ("CHARACTER", "SET"), ("CHARSET",),
        ("COLLATE",), ("CHECKSUM",), ("COMMENT",), ("CONNECTION",), ("DATA", "DIRECTORY"), ("INDEX", "DIRECTORY"), ("ENCRYPTED",), ("ENCRYPTION",),
        ("ENCRYPTION_KEY_ID",), ("KEY_BLOCK_SIZE",), ("MAX_ROWS",), ("MIN_ROWS",), ("PACK_KEYS",), ("PAGE_CHECKSUM",), ("PAGE_COMPRESSED",),
        ("PAGE_COMPRESSION_LEVEL",), ("COMPRESSION",), ("ROW_FORMAT",), ("STATS_AUTO_RECALC",), ("STATS_PERSISTENT",), ("STATS_SAMPLE_PAGES",),
        ("TABLESPACE",), ("TRANSACTIONAL",), ("ALGORITHM",), ("LOCK",), ("WAIT",), ("NOWAIT",),
    ),
)  # fmt: skip
