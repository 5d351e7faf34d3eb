"""What a writer does: how each operation is chosen, executed on the shop, and replayed on the model.

An operation is a list that goes into a log as one line of JSON: its kind, then its values. The two ways of carrying one out,
by SQL on the shop and by plain dictionaries in the model, share nothing, which is what makes their comparison a proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tideshift.frontends.demo.shop import (
    CUSTOMERS,
    PRODUCTS,
    STATUSES,
    Order,
    first_order_ids,
    seeded_order,
    seeded_payment,
    seeded_stock,
)

__all__ = ["Chooser", "Model", "Operation", "execute"]

Operation = list[Any]

_PLACE = "INSERT INTO orders (id, customer_id, product_id, quantity, amount_cents, status, placed_at) VALUES (?, ?, ?, ?, ?, ?, ?)"
_UPSERT = f"{_PLACE} ON CONFLICT (id) DO UPDATE SET amount_cents = excluded.amount_cents, status = excluded.status"
_STATEMENTS: dict[str, str] = {
    "place": _PLACE,
    "pay": "INSERT INTO payments (id, order_id) VALUES (?, ?)",
    "status": "UPDATE orders SET status = ? WHERE id = ?",
    "amount": "UPDATE orders SET amount_cents = ? WHERE id = ?",
    "correct": _UPSERT,
    "renumber": "UPDATE orders SET id = ? WHERE id = ?",
    "delete": "DELETE FROM orders WHERE id = ?",
}
_WEIGHTS = {"place": 36, "status": 34, "amount": 10, "correct": 6, "renumber": 5, "delete": 9}


def execute(connection: Any, operation: Operation) -> None:
    """Carry one operation out in a transaction of its own; each must meet exactly one order."""
    kind, *values = operation
    connection.execute("BEGIN IMMEDIATE")
    try:
        if kind == "place":
            payment_id = values.pop()
            connection.execute(_STATEMENTS["place"], values)
            if payment_id is not None:
                connection.execute(_STATEMENTS["pay"], (payment_id, values[0]))
        elif connection.execute(_STATEMENTS[kind], values).rowcount != 1:
            raise LookupError(f"{operation} met no order")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


class Chooser:
    """Chooses what one writer does next; it knows which orders are its own, and nobody else touches those."""

    def __init__(self, random: Random, *, rows: int, writer: int, writers: int) -> None:
        self._random = random
        self._own = list(first_order_ids(rows, writer=writer, writers=writers))
        self._next_id = rows + 1 + writer
        self._stride = writers
        self._kinds = list(_WEIGHTS)
        self._weights = list(_WEIGHTS.values())

    def next(self) -> Operation:
        """Choose one operation."""
        kind = self._random.choices(self._kinds, self._weights)[0] if len(self._own) > 10 else "place"
        makers: dict[str, Callable[[], Operation]] = {
            "place": self._place, "status": self._status, "amount": self._amount, "correct": self._correct,
            "renumber": self._renumber, "delete": self._delete,
        }  # fmt: skip
        return makers[kind]()

    def done(self, operation: Operation) -> None:
        """Take note of an operation that was acknowledged."""
        match operation:
            case ["place", order_id, *_]:
                self._own.append(order_id)
            case ["renumber", new_id, order_id]:
                self._remove(order_id)
                self._own.append(new_id)
            case ["delete", order_id]:
                self._remove(order_id)

    def _remove(self, order_id: int) -> None:
        # The chosen order was moved to the end, so that removing it costs nothing.
        assert self._own[-1] == order_id
        self._own.pop()

    def _pick(self) -> int:
        """Pick an order: half of the time one of the latest, which is where a shop is busy."""
        count = len(self._own)
        at = self._random.randrange(count) if self._random.random() < 0.5 else count - 1 - int(self._random.expovariate(0.01)) % count
        self._own[at], self._own[-1] = self._own[-1], self._own[at]
        return self._own[-1]

    def _fresh_id(self) -> int:
        self._next_id += self._stride
        return self._next_id - self._stride

    def _any_amount(self) -> str:
        # The application goes on to write texts; what is stored is the column's business.
        return str(self._random.randrange(95, 250_000))

    def _place(self) -> Operation:
        order_id = self._fresh_id()
        payment_id = order_id if self._random.random() < 0.3 else None
        customer, product = self._random.randint(1, CUSTOMERS), self._random.randint(1, PRODUCTS)
        return ["place", order_id, customer, product, self._random.randint(1, 5), self._any_amount(), "new", 1_800_000_000 + order_id, payment_id]

    def _status(self) -> Operation:
        return ["status", self._random.choice(STATUSES), self._pick()]

    def _amount(self) -> Operation:
        return ["amount", self._any_amount(), self._pick()]

    def _correct(self) -> Operation:
        order_id = self._pick()
        return ["correct", order_id, 1, 1, 1, self._any_amount(), self._random.choice(STATUSES), 0]

    def _renumber(self) -> Operation:
        return ["renumber", self._fresh_id(), self._pick()]

    def _delete(self) -> Operation:
        return ["delete", self._pick()]


@dataclass
class Model:
    """The shop as it must be: the first rows, then every acknowledged operation on plain dictionaries."""

    orders: dict[int, Order] = field(default_factory=dict)
    payments: dict[int, int] = field(default_factory=dict)
    """The number of the payment of each paid order."""
    stock: dict[int, int] = field(default_factory=seeded_stock)

    @classmethod
    def of(cls, rows: int) -> Model:
        """Return the model of the shop before anybody wrote to it."""
        paid = {number: payment for number in range(1, rows + 1) if (payment := seeded_payment(number)) is not None}
        return cls({number: seeded_order(number) for number in range(1, rows + 1)}, paid)

    def replay(self, operations: Iterable[Operation]) -> int:
        """Apply the operations of one log in order; return how many there were."""
        number = 0
        for number, operation in enumerate(operations, start=1):  # noqa: B007 - the last number is the count
            self.apply(operation)
        return number

    def apply(self, operation: Operation) -> None:
        """Apply one operation."""
        kinds: dict[str, Callable[..., None]] = {
            "place": self._place, "status": self._status, "amount": self._amount, "correct": self._correct,
            "renumber": self._renumber, "delete": self._delete,
        }  # fmt: skip
        kinds[operation[0]](*operation[1:])

    def _place(self, order_id: int, customer: int, product: int, quantity: int, amount: str, *rest: Any) -> None:
        status, placed_at, payment_id = rest
        self.orders[order_id] = Order(customer, product, quantity, int(amount), status, placed_at)
        self.stock[product] -= quantity
        if payment_id is not None:
            self.payments[order_id] = payment_id

    def _status(self, status: str, order_id: int) -> None:
        self.orders[order_id] = self.orders[order_id]._replace(status=status)

    def _amount(self, amount: str, order_id: int) -> None:
        self.orders[order_id] = self.orders[order_id]._replace(amount_cents=int(amount))

    def _correct(self, order_id: int, *rest: Any) -> None:
        amount, status = rest[3:5]
        self.orders[order_id] = self.orders[order_id]._replace(amount_cents=int(amount), status=status)

    def _renumber(self, new_id: int, order_id: int) -> None:
        self.orders[new_id] = self.orders.pop(order_id)
        if order_id in self.payments:
            self.payments[new_id] = self.payments.pop(order_id)

    def _delete(self, order_id: int) -> None:
        del self.orders[order_id]
        self.payments.pop(order_id, None)
