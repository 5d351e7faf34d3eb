"""Big changes on live databases, as durable jobs.

The public names are resolved when they are first used, so importing tideshift imports no third-party module.
A database is opened with `tideshift.connect.connect(url)`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = ["Connected", "Ddl", "Dxf", "TideshiftError", "__version__"]

_WHERE = {
    "Connected": "tideshift.connect",
    "Ddl": "tideshift.ddl.commands",
    "Dxf": "tideshift.dxf.commands",
    "TideshiftError": "tideshift.errors",
}


def __getattr__(name: str) -> Any:
    """Resolve a public name (PEP 562)."""
    if name not in _WHERE:
        raise AttributeError(f"module 'tideshift' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
