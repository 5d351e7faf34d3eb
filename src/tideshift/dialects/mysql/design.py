"""How a change is carried out here: found by trying it on an empty copy of the table, not by reading it.

The copy tells three things: whether the server takes the change at all, by which algorithm, and what the table is afterwards.
`INSTANT` is asked for first, then `NOCOPY`; the statement that runs names the algorithm and the lock, so that a server
which would do more than that refuses instead. A new index is built beside the traffic under a name of ours and gets its own
name when it stands. What would write the table again is done while it is small, and refused otherwise.
"""

from __future__ import annotations

from dataclasses import replace

from tideshift.ddl.change import (
    Action,
    AlterTable,
    Change,
    CreateIndex,
    DatabaseForm,
    DropIndex,
    RenameTable,
    TableName,
)
from tideshift.ddl.reshaping import Claim, NativeStep, Reshaping, RowWork, SqlStep, StepKind, Strategy
from tideshift.ddl.tokens import significant
from tideshift.dialects.mysql import estimate, steps
from tideshift.dialects.mysql.clauses import NotHere, clause_of
from tideshift.dialects.mysql.driver import MysqlDriver
from tideshift.dialects.mysql.grammar import SPELLING
from tideshift.dialects.mysql.names import qualified, quote
from tideshift.dialects.mysql.shape import Shape
from tideshift.dialects.mysql.source import Source, find_table, shape_of
from tideshift.dialects.mysql.trial import Refused, Trial, trial
from tideshift.errors import NotFound, PlanRefused
from tideshift.store.database import Transaction

__all__ = ["Designer"]

_OWN_WORDS = frozenset({"ALGORITHM", "LOCK", "WAIT", "NOWAIT"})
_PARTITIONS = ("PARTITION", "COALESCE", "REORGANIZE", "EXCHANGE", "REBUILD", "REMOVE", "TRUNCATE", "ANALYZE", "CHECK", "OPTIMIZE", "REPAIR")
_NOT_OFFERED = {
    "DISCARD": "DISCARD TABLESPACE takes every row away", "IMPORT": "IMPORT TABLESPACE replaces every row",
    "ORDER BY": "ORDER BY is lost with the next write of InnoDB", "ENABLE KEYS": "InnoDB has no keys to enable", "DISABLE KEYS": "InnoDB has no keys to disable",
}  # fmt: skip
_NO_SHADOW = "there is no copy of a table beside the traffic on this server yet"


class Designer:
    """Works one change out."""

    def __init__(self, tx: Transaction, driver: MysqlDriver, wished: Strategy | None) -> None:
        self.tx = tx
        self.driver = driver
        self.wished = wished
        self.warnings: list[str] = []

    def design(self, change: Change) -> Reshaping:
        """Return the way, or raise `NotFound` or `PlanRefused` with every reason."""
        if self.tx.run_verbatim("SELECT @@GLOBAL.read_only").scalar():
            raise PlanRefused("this server is read-only", reasons=["nothing can be written on a read-only server"], hint="Give the URL of the primary.")
        match change:
            case AlterTable(table=table, actions=(RenameTable(new_name=new_name),)):
                return self._rename(self._source(table), new_name)
            case AlterTable(table=table, actions=actions):
                return self._alter(self._source(table), actions)
            case CreateIndex(table=table):
                source = self._source(table)
                return self._create_index(source, change)
            case DropIndex(index=index, table=table):
                if table is None:
                    raise PlanRefused("DROP INDEX names its table here", reasons=["an index has a name only within its table"], hint=f"DROP INDEX {index.name} ON table")
                source = self._source(table)
                if source.shape.key_named(quote(index.name)) is None:
                    raise NotFound(f"{source.name} has no index {index.name}", index=index.name)
                return self._tried(source, f"DROP INDEX {quote(index.name)}")
        raise PlanRefused(f"{change.kind} is nothing that this server knows", reasons=["the server has no such statement"])

    def _source(self, name: TableName) -> Source:
        source = find_table(self.tx, name, self.driver.database)
        if source.engine != "InnoDB":
            raise self._refused(source, [f"its engine is {source.engine}, which changes a table only under a lock"])
        return source

    def _refused(self, source: Source, reasons: list[str], hint: str | None = None) -> PlanRefused:
        return PlanRefused(f"{source.quoted} cannot be changed so: {'; '.join(reasons)}", reasons=reasons, hint=hint)

    # ── which way ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _alter(self, source: Source, actions: tuple[Action, ...]) -> Reshaping:
        reasons = [reason for action in actions for reason in _speaks_against(action)]
        clauses: list[str] = []
        for action in actions:
            try:
                clauses.append(clause_of(action, source))
            except NotHere as error:
                reasons.append(str(error))
        if any(token.keyword == "REFERENCES" for clause in clauses for token in significant(clause, SPELLING)):
            reasons.append("a new foreign key is checked under a lock on both tables")
        if reasons:
            raise self._refused(source, reasons)
        dropped = _dropped_foreign_key(actions, source)
        if dropped is not None:
            return self._drop_foreign_key(source, clauses[0], dropped)
        return self._tried(source, ", ".join(clauses))

    def _create_index(self, source: Source, change: CreateIndex) -> Reshaping:
        tokens = significant(change.text, SPELLING)
        words = [token.keyword for token in tokens]
        if _OWN_WORDS & set(words):
            raise self._refused(source, [_own_word(next(word for word in words if word in _OWN_WORDS))])
        at = words.index("ON") + 2
        while at + 1 < len(tokens) and tokens[at].is_operator("."):
            at += 2
        unique = "UNIQUE " if words[1] == "UNIQUE" else ""
        return self._tried(source, f"ADD {unique}INDEX {quote(change.name)} {change.text[tokens[at].start :]}")

    def _tried(self, source: Source, clauses: str) -> Reshaping:
        """Try the clauses on an empty copy, by the cheapest algorithm first."""
        try:
            with trial(self.driver, source) as copy:
                if replace(source.shape, foreign_keys=()) != copy.made:
                    raise self._refused(source, ["an empty copy of it is not what the table is, so that nothing can be tried on it"])
                return self._chosen(source, clauses, copy)
        except Refused as refusal:
            raise self._refused(source, [f"the server refuses it: {refusal}"]) from refusal

    def _chosen(self, source: Source, clauses: str, copy: Trial) -> Reshaping:
        statement = f"ALTER TABLE {copy.quoted} {clauses}"
        instant = copy.run(f"{statement}, ALGORITHM=INSTANT, LOCK=NONE")
        beside = instant or copy.run(f"{statement}, ALGORITHM=NOCOPY, LOCK=NONE")
        if not beside:
            copy.run(statement)  # Says why where the server takes it by no algorithm.
        after = copy.shape().with_foreign_keys(source.shape)
        if self.wished is Strategy.INSTANT and not instant:
            raise self._refused(source, ["rows or indexes must be written for it"])
        if self.wished is not Strategy.DIRECT or instant:
            if instant or (beside and not after.added_keys(source.shape)):
                algorithm = "INSTANT" if instant else "NOCOPY"
                step = steps.statement(source, after, f"{clauses}, ALGORITHM={algorithm}, LOCK=NONE", "the server writes its catalogue only; readers and writers go on")
                return self._reshaping(source, Strategy.INSTANT, (step,), RowWork.NONE)
            if beside and after.only_adds_keys(source.shape):
                return self._reshaping(source, Strategy.NATIVE_ONLINE, steps.built(source, after), RowWork.SCAN)
        return self._direct(source, clauses, after, beside=beside)

    def _direct(self, source: Source, clauses: str, after: Shape, *, beside: bool) -> Reshaping:
        """Let the server write the table or its indexes again, where that takes a moment."""
        seconds = estimate.write_seconds(source.bytes)
        limit = estimate.ASKED_SECONDS_MAX if self.wished is Strategy.DIRECT else estimate.LOCK_BUDGET_SECONDS
        if seconds > limit or (self.wished is not Strategy.DIRECT and not source.is_small(self.tx)):
            what = "indexes would be built and changed in one statement" if beside else "the table would be written again under a lock that keeps writers out"
            hint = "Add indexes by statements of their own." if beside else None
            raise self._refused(source, [f"{what}, for {estimate.hold_text(seconds)} or more", _NO_SHADOW], hint)
        step = steps.statement(source, after, clauses, "the server writes the table again; writers wait meanwhile")
        return self._reshaping(source, Strategy.DIRECT, (step,), RowWork.REWRITE, seconds=seconds)

    def _drop_foreign_key(self, source: Source, clause: str, name: str) -> Reshaping:
        after = source.shape.without_foreign_key(name)
        if after == source.shape:
            raise NotFound(f"{source.name} has no foreign key {name}", constraint=name)
        step = steps.statement(source, after, f"{clause}, ALGORITHM=INSTANT, LOCK=NONE", "the server writes its catalogue only; readers and writers go on")
        return self._reshaping(source, Strategy.INSTANT, (step,), RowWork.NONE)

    def _rename(self, source: Source, new_name: str) -> Reshaping:
        if self.wished not in (None, Strategy.INSTANT):
            raise self._refused(source, ["a new name needs no rows"])
        target = qualified(source.schema, new_name)
        if shape_of(self.tx, target) is not None:
            raise self._refused(source, [f"there is a table {new_name} already"])
        step = steps.renamed(source, target)
        return self._reshaping(source, Strategy.INSTANT, (step,), RowWork.NONE, more=(Claim(f"{source.schema}.{new_name}"),))

    def _reshaping(
        self, source: Source, strategy: Strategy, native: tuple[NativeStep, ...], work: RowWork, *, seconds: float = 0.0, more: tuple[Claim, ...] = ()
    ) -> Reshaping:  # fmt: skip
        if self.wished is Strategy.SHADOW_TABLE:
            raise self._refused(source, [_NO_SHADOW])
        builds = [step for step in native if step.kind is StepKind.ALONE]
        return Reshaping(
            table=source.table,
            strategy=strategy,
            claims=(Claim(f"{source.schema}.{source.name}"), *more),
            row_work=work,
            key_columns=(),
            may_refuse_rows=work is not RowWork.NONE,
            hold_seconds=seconds,
            row_seconds=estimate.write_seconds(source.bytes) * len(builds) / max(source.rows, 1) if builds else 0.0,
            disk_bytes=source.bytes if work is not RowWork.NONE else 0,
            sql_steps=tuple(_shown(step, seconds) for step in native),
            native_steps=native,
            warnings=tuple(self.warnings),
            detail={"table": source.quoted, "schema": source.schema, "name": source.name},
        )


def _shown(step: NativeStep, seconds: float) -> SqlStep:
    if step.kind is StepKind.ALONE:
        return SqlStep(step.name, step.detail["sql"], "none while it is built; exclusive at its ends, tried for 1 or 2 s", "milliseconds at its ends")
    lock = "exclusive, tried for 1 or 2 s" if seconds == 0.0 else "writers wait; exclusive at its end"
    return SqlStep(step.name, step.detail["sql"], lock, estimate.hold_text(seconds))


def _speaks_against(action: Action) -> list[str]:
    """Return why a clause is not taken at all."""
    if not isinstance(action, DatabaseForm):
        return []
    words = [token.keyword for token in significant(action.text, SPELLING)]
    if words[0] in _OWN_WORDS:
        return [_own_word(words[0])]
    if any(words[0] == word or words[:2] == ["ADD", word] or words[:2] == ["DROP", word] for word in _PARTITIONS if word != "CHECK") or words[:2] == ["CHECK", "PARTITION"]:
        return ["changes of partitions are not there yet"]
    return [text for form, text in _NOT_OFFERED.items() if words[: len(form.split())] == form.split()]


def _own_word(word: str) -> str:
    return f"{word} is left out: the algorithm and the wait for locks are chosen so that nobody is kept out for long, and of two such clauses the last would count"


def _dropped_foreign_key(actions: tuple[Action, ...], source: Source) -> str | None:
    """Return the quoted name of a foreign key that the only action drops: an empty copy has none, so it cannot be tried."""
    (action, *others) = actions
    if others or not isinstance(action, DatabaseForm) or not action.form.startswith("DROP"):
        return None
    tokens = significant(action.text, SPELLING)
    named = tokens[-1].name
    if action.form == "DROP FOREIGN KEY" and named:
        return quote(named)
    if action.form == "DROP CONSTRAINT" and named and source.shape.without_foreign_key(quote(named)) != source.shape:
        return quote(named)
    return None
