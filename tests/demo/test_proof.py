from __future__ import annotations

import json

import pytest

from tests.demo.shops import changed_shop


def test_an_honest_run_has_no_differences(tmp_path, random):
    """What the writers logged makes exactly the shop that they left behind."""
    shop = changed_shop(tmp_path, random)

    findings = shop.findings()

    assert {what: finding.differences for what, finding in findings.items()} == dict.fromkeys(findings, 0)
    assert "2,400 acknowledged statements" in findings["orders"].found


ORPHAN = ("PRAGMA foreign_keys = OFF", "INSERT INTO payments VALUES (999999, 999999)")
TAMPERED = {
    "a lost row": ("orders", ["DELETE FROM orders WHERE id = (SELECT min(id) FROM orders)"]),
    "a row of nobody": ("orders", ["INSERT INTO orders VALUES (-1, 1, 1, 1, 5, 'new', 0)"]),
    "an older value": ("orders", ["UPDATE orders SET amount_cents = amount_cents + 1 WHERE id = (SELECT max(id) FROM orders)"]),
    "a cascade that took a payment": ("payments", ["DELETE FROM payments WHERE id = (SELECT min(id) FROM payments)"]),
    "a trigger that fired twice": ("stock", ["UPDATE products SET stock = stock - 1 WHERE id = 7"]),
    "an amount left as text": ("amounts", ["UPDATE orders SET amount_cents = 'x' WHERE id = (SELECT max(id) FROM orders)"]),
    "an index that is gone": ("schema", ["DROP INDEX orders_by_customer"]),
    "a trigger that is gone": ("schema", ["DROP TRIGGER orders_take_stock"]),
    "a table that is new": ("schema", ["CREATE TABLE left_over (x)"]),
    "a payment of no order": ("foreign", list(ORPHAN)),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_each_kind_of_damage_is_found(name, tmp_path, random):
    """Whatever is wrong in the shop is a difference of the kind it belongs to."""
    what, statements = TAMPERED[name]
    shop = changed_shop(tmp_path, random)
    shop.run(*statements)

    findings = shop.findings()

    assert findings[what].differences > 0


def test_a_lost_acknowledgement_is_found(tmp_path, random):
    """A log that lacks one acknowledged statement does not make the shop."""
    shop = changed_shop(tmp_path, random)
    log_path = shop.log_paths[0]
    lines = log_path.read_text().splitlines(keepends=True)
    operations = [json.loads(line)[2] for line in lines]
    untouched = max(
        number for number, (kind, order_id, *_) in enumerate(operations)
        if kind == "place" and not any(order_id in later[1:] for later in operations[number + 1 :])
    )  # fmt: skip
    log_path.write_text("".join(lines[:untouched] + lines[untouched + 1 :]))

    findings = shop.findings()

    assert findings["orders"].differences == 1
