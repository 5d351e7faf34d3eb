"""The house rules that a program can check. Each takes one module and yields what is wrong, with its place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy.sources import Module

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

DATABASE_NAME = re.compile(r"sqlite|postgres|psycopg|mysql|mariadb", re.IGNORECASE)
BANNED_WORDS = {
    "manager", "managers", "handler", "handlers", "helper", "helpers", "util", "utils", "common", "misc", "base", "data",
    "info",
}  # fmt: skip
AFTER_THE_NOUN_PROCESS = {"alive", "gone", "id", "identity", "name", "started"}
STATE_IN_TEXT = re.compile(r"\bupdate\b.*\bset\b[^;]*\bstate\s*=", re.IGNORECASE | re.DOTALL)


# ── size ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def too_long(module: Module) -> Iterator[str]:
    """A file is one noun, a function fits a screen."""
    lines = module.source.count("\n")
    if lines > FILE_LINES_MAX:
        yield f"{module.path}: {lines} lines, at most {FILE_LINES_MAX}"
    for node in module.walk(*FUNCTIONS):
        length = node.end_lineno - node.lineno + 1
        if length > FUNCTION_LINES_MAX:
            yield f"{module.at(node)}: {node.name} has {length} lines, at most {FUNCTION_LINES_MAX}"


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def banned_words(module: Module) -> Iterator[str]:
    """Names that say nothing: manager, helper, data … as whole words, `process` and `do` as verbs."""
    for name, place in _names_given(module):
        words = words_of(name)
        banned = BANNED_WORDS & set(words)
        if banned:
            yield f"{place}: {name} holds the word {', '.join(sorted(banned))}"
    for node in module.walk(*FUNCTIONS):
        first, *rest = words_of(node.name) or [""]
        if first == "do" or (first == "process" and not set(rest[:1]) & AFTER_THE_NOUN_PROCESS):
            yield f"{module.at(node)}: {node.name} does not say what it does"


def words_of(name: str) -> list[str]:
    """Split snake_case and CamelCase into lower-case words."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def _names_given(module: Module) -> Iterator[tuple[str, str]]:
    """Every name that this module gives to something, and where."""
    for part in module.path.removesuffix(".py").split("/"):
        yield part, module.path
    for node in ast.walk(module.tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, module.at(node)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, module.at(node)
            case ast.alias(asname=str(name)):
                yield name, module.at(node)


def database_names(module: Module) -> Iterator[str]:
    """A database is named in the code of its dialect only; comments and docstrings may speak of it."""
    for node in module.texts():
        if DATABASE_NAME.search(node.value):
            yield f"{module.at(node)}: text {node.value[:60]!r}"
    for name, place in _names_used(module):
        if DATABASE_NAME.search(name):
            yield f"{place}: name {name}"


def _names_used(module: Module) -> Iterator[tuple[str, str]]:
    yield from _names_given(module)
    for node in ast.walk(module.tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                yield name, module.at(node)
            case ast.alias(name=name) | ast.ImportFrom(module=str(name)) | ast.keyword(arg=str(name)):
                yield name, module.at(node)


# ── statements ────────────────────────────────────────────────────────────────────────────────────────────────────


def uses_text(module: Module) -> Iterator[str]:
    """SQLAlchemy's text() reads `:name` in what a user wrote; user tables go through run_verbatim."""
    aliases = {"sqlalchemy"}
    for node in module.walk(ast.Import, ast.ImportFrom):
        for name in node.names:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sqlalchemy") and name.name == "text":
                yield f"{module.at(node)}: imports text"
            if isinstance(node, ast.Import) and name.name.startswith("sqlalchemy"):
                aliases.add(name.asname or "sqlalchemy")
    for node in module.walk(ast.Attribute):
        if node.attr == "text" and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield f"{module.at(node)}: uses text()"


def writes_state(module: Module) -> Iterator[str]:
    """Only a function move_… in a tables.py writes a state column of a row that exists."""
    allowed_file = module.path.endswith("/tables.py")
    for node in _state_writes(module):
        function = module.function_around(node)
        if not (allowed_file and function.startswith("move_")):
            yield f"{module.at(node)}: {function or 'the module'} writes a state column"


def _state_writes(module: Module) -> Iterator[ast.AST]:
    for node in module.walk(ast.Call):
        is_values = isinstance(node.func, ast.Attribute) and node.func.attr == "values"
        if is_values and _root_verb(node.func.value) != "insert" and _sets_state(node):
            yield node
    yield from (node for node in module.texts() if STATE_IN_TEXT.search(node.value))
    for node in module.walk(ast.JoinedStr):
        pieces = (piece.value if isinstance(piece, ast.Constant) else "x" for piece in node.values)
        if STATE_IN_TEXT.search("".join(map(str, pieces))):
            yield node


def _sets_state(call: ast.Call) -> bool:
    keys = [keyword.arg for keyword in call.keywords]
    for argument in call.args:
        if isinstance(argument, ast.Dict):
            keys += [ast.unparse(key).split(".")[-1].strip("'\"") if key else None for key in argument.keys]
    return "state" in keys


def _root_verb(node: ast.AST) -> str:
    """The verb that a statement's chain of calls begins with: update(t).where(…) or t.update().where(…)."""
    while True:
        match node:
            case ast.Call(func=ast.Name(id=name)):
                return name
            case ast.Call(func=ast.Attribute(attr="insert" | "update" as name)):
                return name
            case ast.Call(func=ast.Attribute(value=inner)):
                node = inner
            case _:
                return ""


# ── failing and waiting ───────────────────────────────────────────────────────────────────────────────────────────


def swallows(module: Module) -> Iterator[str]:
    """An error is handled, raised or explained by a value, never passed over."""
    for node in module.walk(ast.ExceptHandler):
        if all(isinstance(line, ast.Pass) or _is_ellipsis(line) for line in node.body):
            yield f"{module.at(node)}: except with nothing in it"
    for node in module.walk(ast.Call):
        called = ast.unparse(node.func).split(".")[-1]
        if called == "suppress" and {ast.unparse(argument) for argument in node.args} & {"Exception", "BaseException"}:
            yield f"{module.at(node)}: suppresses every error"


def _is_ellipsis(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and line.value.value is Ellipsis


def sleeps(module: Module) -> Iterator[str]:
    """Waiting goes through the Clock, or for the thing that is awaited."""
    for node in module.walk(ast.ImportFrom):
        if node.module in ("time", "asyncio") and any(name.name == "sleep" for name in node.names):
            yield f"{module.at(node)}: imports sleep"
    for node in module.walk(ast.Attribute):
        if node.attr == "sleep" and isinstance(node.value, ast.Name) and node.value.id in ("time", "asyncio"):
            yield f"{module.at(node)}: sleeps"


def waits_for_nothing(module: Module) -> Iterator[str]:
    """A wait for an Event that its module never sets, and hands to nobody who could, is a sleep in another dress."""
    used = [(ast.unparse(node.value), node) for node in module.walk(ast.Attribute) if node.attr in ("set", "wait")]
    woken = {name for name, node in used if node.attr == "set"}
    for call in module.walk(ast.Call):
        handed = [*call.args, *(keyword.value for keyword in call.keywords)]
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "wait"):
            woken |= {ast.unparse(argument) for argument in handed if isinstance(argument, ast.Name | ast.Attribute)}
    made = {
        ast.unparse(target)
        for node in module.walk(ast.Assign)
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func).split(".")[-1] == "Event"
        for target in node.targets
    }
    for name, node in used:
        is_fresh = isinstance(node.value, ast.Call) and ast.unparse(node.value.func).split(".")[-1] == "Event"
        if node.attr == "wait" and (is_fresh or name in made - woken):
            yield f"{module.at(node)}: waits for an event that nobody sets"


# ── failpoints ────────────────────────────────────────────────────────────────────────────────────────────────────


def points_elsewhere(module: Module) -> Iterator[str]:
    """A layer declares its failpoints in its points.py, each by a literal name at module level, where all are found."""
    top = {node.value for node in module.tree.body if isinstance(node, ast.Assign | ast.AnnAssign)}
    for node in module.walk(ast.Call):
        if ast.unparse(node.func) not in ("point", "failpoint.point"):
            continue
        if not module.path.endswith("/points.py"):
            yield f"{module.at(node)}: declares a failpoint"
        elif node not in top or not (node.args and isinstance(node.args[0], ast.Constant)):
            yield f"{module.at(node)}: declares a failpoint where or under a name that cannot be read off"


def unguarded_points(module: Module) -> Iterator[str]:
    """A site reads `if POINT.on: POINT.fire(…)`, which costs nothing when it is off."""
    for node in module.walk(ast.Call):
        if not (isinstance(node.func, ast.Attribute) and node.func.attr == "fire"):
            continue
        point = ast.unparse(node.func.value)
        if point.split(".")[-1].isupper() and f"{point}.on" not in _conditions(module, node):
            yield f"{module.at(node)}: {point}.fire outside `if {point}.on`"


def _conditions(module: Module, node: ast.AST) -> set[str]:
    """What is surely true where a node is reached: the conditions of what stands around it, and of `a and b` before it."""
    found: set[str] = set()
    for around in module.ancestors(node):
        if isinstance(around, ast.If | ast.IfExp):
            parts = around.body if isinstance(around, ast.If) else [around.body]
            if node in parts:
                found |= _all_of(around.test)
        elif isinstance(around, ast.BoolOp) and isinstance(around.op, ast.And):
            for value in around.values[: around.values.index(node)]:
                found |= _all_of(value)
        node = around
    return found


def _all_of(test: ast.expr) -> set[str]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return set().union(*map(_all_of, test.values))
    return {ast.unparse(test)}


# ── tests ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def unexplained_tests(module: Module) -> Iterator[str]:
    """A test says in one sentence what must be true."""
    for node in module.walk(*FUNCTIONS):
        if node.name.startswith("test_") and not module.function_around(node):
            first = (ast.get_docstring(node) or "").split("\n")[0]
            if not first.endswith("."):
                yield f"{module.at(node)}: {node.name} has no sentence that says what must be true"
