"""The project's Python files, parsed once."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "bench", "scripts")


@dataclass(frozen=True)
class Module:
    """One Python file: where it is below the root, and its text."""

    path: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file."""
        return ast.parse(self.source, self.path)

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """What each node stands in."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node stands in, innermost first."""
        while (node := self.parents.get(node)) is not None:
            yield node

    def function_around(self, node: ast.AST) -> str:
        """The name of the innermost function around a node, or nothing."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return next((found.name for found in self.ancestors(node) if isinstance(found, kinds)), "")

    def walk(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        """All nodes of these kinds."""
        return (node for node in ast.walk(self.tree) if isinstance(node, kinds))

    def texts(self) -> Iterator[ast.Constant]:
        """All string constants that the program uses: docstrings are left out."""
        for node in self.walk(ast.Constant):
            if isinstance(node.value, str) and not isinstance(self.parents[node], ast.Expr):
                yield node

    def at(self, node: ast.AST) -> str:
        """Where a node is, as an editor opens it."""
        return f"{self.path}:{node.lineno}"


@cache
def modules(*folders: str) -> tuple[Module, ...]:
    """All Python files below these folders."""
    found = (path for folder in folders or FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    return tuple(Module(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in found)


@cache
def project_files() -> tuple[Path, ...]:
    """Every file that is, or is about to be, part of the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:  # an unpacked archive
        hidden = {".git", ".venv", ".venv-lock", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
        paths = [path for path in ROOT.rglob("*") if not hidden & set(path.relative_to(ROOT).parts)]
    return tuple(path for path in paths if path.is_file() and "__pycache__" not in path.parts)
