"""Random statements on one shape: every kind of write, every conflict policy, from a seed."""

from __future__ import annotations

from random import Random

from tests.dialects.sqlite.shapes import Shape

POLICIES = ("", "", " OR IGNORE", " OR REPLACE", " OR REPLACE", " OR FAIL", " OR ABORT", " OR ROLLBACK")


def random_statement(random: Random, shape: Shape) -> str:
    """Return one statement, most often one that writes the table under change."""
    kinds = [insert, insert, insert, insert_many, insert_from_itself, upsert, update, update, move, delete, delete]
    if shape.others and random.random() < 0.2:
        return random.choice(shape.others)(random)
    if random.random() < 0.12:
        return control(random)
    sql = random.choice(kinds)(random, shape)
    return sql + (" RETURNING *" if random.random() < 0.2 else "")


def random_statement_on_one_row(random: Random, shape: Shape) -> str:
    """Return one statement that writes one row by its key at most, so that no order of rows matters."""
    if shape.others and random.random() < 0.2:
        return random.choice(shape.others)(random)
    if random.random() < 0.1:
        return random.choice(["BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT s", "ROLLBACK TO s", "RELEASE s"])
    kind = random.choice([insert, insert, upsert, _update_one, _update_one, _delete_one])
    return kind(random, shape) + (" RETURNING *" if random.random() < 0.2 else "")


def _one(random: Random, shape: Shape) -> str:
    return f"WHERE {shape.key.split(',')[0]} = (SELECT {shape.key.split(',')[0]} FROM {shape.table} LIMIT 1 OFFSET {random.randint(0, 9)})"


def _update_one(random: Random, shape: Shape) -> str:
    columns = random.sample(list(shape.values), k=min(len(shape.values), random.randint(1, 2)))
    given = random.choice([*shape.moves, ", ".join(f"{column} = {shape.values[column](random)}" for column in columns)])
    return f"UPDATE{random.choice(POLICIES)} {shape.table} SET {given} {_one(random, shape)}"


def _delete_one(random: Random, shape: Shape) -> str:
    return f"DELETE FROM {shape.table} {_one(random, shape)}"


def control(random: Random) -> str:
    """Return a statement that begins, ends or goes back, or one that changes how statements act."""
    return random.choice(
        [
            "BEGIN",
            "COMMIT",
            "ROLLBACK",
            "SAVEPOINT s",
            "ROLLBACK TO s",
            "RELEASE s",
            f"PRAGMA recursive_triggers = {random.randint(0, 1)}",
            f"PRAGMA foreign_keys = {random.randint(0, 1)}",
        ]
    )


def _columns(random: Random, shape: Shape) -> list[str]:
    names = list(shape.values)
    left_out = random.choice(names) if len(names) > 1 and random.random() < 0.5 else None
    return [name for name in names if name != left_out]


def _row(random: Random, shape: Shape, columns: list[str]) -> str:
    return ", ".join(shape.values[column](random) for column in columns)


def _where(random: Random, shape: Shape) -> str:
    column = random.choice(list(shape.values))
    value = shape.values[column](random)
    return random.choice([f"{column} = {value}", f"{column} < {value}", f"{column} >= {value}", f"{column} IS NOT {value}"])


def insert(random: Random, shape: Shape) -> str:
    """Insert one row."""
    columns = _columns(random, shape)
    verb = "REPLACE" if random.random() < 0.15 else f"INSERT{random.choice(POLICIES)}"
    return f"{verb} INTO {shape.table} ({', '.join(columns)}) VALUES ({_row(random, shape, columns)})"


def insert_many(random: Random, shape: Shape) -> str:
    """Insert some rows at once."""
    columns = _columns(random, shape)
    rows = ", ".join(f"({_row(random, shape, columns)})" for _ in range(random.randint(2, 4)))
    return f"INSERT{random.choice(POLICIES)} INTO {shape.table} ({', '.join(columns)}) VALUES {rows}"


def insert_from_itself(random: Random, shape: Shape) -> str:
    """Insert rows of the table again, one column given anew."""
    columns = _columns(random, shape)
    changed = random.choice(columns)
    given = ", ".join(shape.values[column](random) if column == changed else column for column in columns)
    return (
        f"INSERT{random.choice(POLICIES)} INTO {shape.table} ({', '.join(columns)})"
        f" SELECT {given} FROM {shape.table} WHERE {_where(random, shape)}"
    )


def upsert(random: Random, shape: Shape) -> str:
    """Insert, or update the row that is in the way."""
    sql = insert(random, shape).replace("REPLACE INTO", "INSERT INTO").replace("INSERT OR INSERT", "INSERT")
    if not shape.conflict_targets:
        return sql
    if random.random() < 0.3:
        return f"{sql} ON CONFLICT DO NOTHING"
    column = random.choice(list(shape.values))
    given = random.choice([shape.values[column](random), f"excluded.{column}"])
    return f"{sql} ON CONFLICT {random.choice(shape.conflict_targets)} DO UPDATE SET {column} = {given}"


def update(random: Random, shape: Shape) -> str:
    """Update some columns of some rows."""
    columns = random.sample(list(shape.values), k=min(len(shape.values), random.randint(1, 2)))
    given = ", ".join(f"{column} = {shape.values[column](random)}" for column in columns)
    return f"UPDATE{random.choice(POLICIES)} {shape.table} SET {given} WHERE {_where(random, shape)}"


def move(random: Random, shape: Shape) -> str:
    """Shift keys or unique values of many rows against one another."""
    where = random.choice(["1", _where(random, shape)])
    return f"UPDATE{random.choice(POLICIES)} {shape.table} SET {random.choice(shape.moves)} WHERE {where}"


def delete(random: Random, shape: Shape) -> str:
    """Delete some rows, seldom all."""
    if random.random() < 0.04:
        return f"DELETE FROM {shape.table}"
    column = random.choice(list(shape.values))
    return f"DELETE FROM {shape.table} WHERE {column} = {shape.values[column](random)}"
