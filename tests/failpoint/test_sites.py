"""Every site in the source is guarded, so that it costs nothing when off, and every declaration can be read off."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tideshift

SOURCE = Path(tideshift.__file__).parent


def unguarded(tree):
    """Lines with `P.fire(…)` that no `if P.on` guards; a point is a name in capitals."""
    guarded = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.BoolOp):
            test = node.test if isinstance(node, ast.If | ast.IfExp) else node.values[0]
            points = {ast.unparse(part.value) for part in ast.walk(test) if is_flag(part)}
            guarded |= {id(part) for part in ast.walk(node) if is_site(part) and ast.unparse(part.func.value) in points}
    return [node.lineno for node in ast.walk(tree) if is_site(node) and id(node) not in guarded]


def is_flag(node):
    """Whether a node reads `P.on`."""
    return isinstance(node, ast.Attribute) and node.attr == "on"


def is_site(node):
    """Whether a node is `P.fire(…)` or `points.P.fire(…)`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "fire"
        and ast.unparse(node.func.value).rpartition(".")[2].isupper()
    )


def hidden_declarations(tree):
    """Lines that declare a point elsewhere than at module level or under a computed name."""
    top = {id(node.value) for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and is_declaration(node)]
    return [call.lineno for call in calls if id(call) not in top or not is_literal_name(call)]


def is_declaration(call):
    """Whether a call is `failpoint.point(…)` or `point(…)`."""
    return ast.unparse(call.func) in ("failpoint.point", "point")


def is_literal_name(call):
    """Whether the name of the point stands in the call as it is."""
    return bool(call.args) and isinstance(call.args[0], ast.Constant)


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("if P.on: P.fire()", []),
        ("if points.P.on:\n    points.P.fire(job=1)", []),
        ("if P.on and (v := P.fire()) is not NOT_FIRED: use(v)", []),
        ("v = P.fire() if P.on else NOT_FIRED", []),
        ("P.on and P.fire()", []),
        ("P.fire()", [1]),
        ("if P.on:\n    Q.fire()", [2]),
        ("if P:\n    P.fire()", [2]),
        ("rocket.fire()", []),
    ],
)
def test_the_check_knows_a_guard(source, lines):
    """The check accepts every guarded form and finds every other one."""
    assert unguarded(ast.parse(source)) == lines


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('P = failpoint.point("a.b", "doc")', []),
        ('def f():\n    P = failpoint.point("a.b", "doc")', [2]),
        ('P = failpoint.point(f"a.{b}", "doc")', [1]),
        ('failpoint.point("a.b", "doc")', [1]),
    ],
)
def test_the_check_knows_a_plain_declaration(source, lines):
    """The check accepts a declaration at module level under a literal name only."""
    assert hidden_declarations(ast.parse(source)) == lines


def test_every_site_in_the_source_is_guarded():
    """No place in the product calls fire without looking at the flag, and none declares points on the fly."""
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        wrong += [f"{path.relative_to(SOURCE)}:{line}" for line in unguarded(tree) + hidden_declarations(tree)]

    assert wrong == []
