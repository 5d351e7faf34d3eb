"""Finding the declarations: each layer of a program declares its points in a module named `points`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

__all__ = ["import_points"]


def import_points(package: str) -> list[str]:
    """Import every module named `points` in a package and below it; return their names."""
    found = import_module(package).__file__
    assert found is not None, "a package with a file of its own"
    root = Path(found).parent
    names = [".".join([package, *path.relative_to(root).with_suffix("").parts]) for path in sorted(root.rglob("points.py"))]
    for name in names:
        import_module(name)
    return names
