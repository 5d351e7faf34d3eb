"""Checks a document against a JSON Schema, by the few words that our schemas use.

Stricter than the standard on purpose: a property that no schema describes is an error, and so is a word of the schema
that is not known here, since it would go unchecked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.tidy.sources import ROOT

FOLDER = ROOT / "docs" / "schema"
KINDS = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "number": (int, float), "integer": int}
KNOWN = {"$schema", "title", "description", "type", "enum", "const", "properties", "required", "items", "anyOf", "pattern", "minimum", "maximum"}


def schema_named(name: str) -> dict[str, Any]:
    """Read a published schema."""
    return json.loads((FOLDER / f"{name}.schema.json").read_text())


def faults(value: Any, schema: dict[str, Any], at: str = "$") -> Iterator[str]:
    """Yield what does not fit, with its place."""
    if unknown := set(schema) - KNOWN:
        yield f"{at}: the schema uses {sorted(unknown)}"
    if "anyOf" in schema:
        options = [list(faults(value, option, at)) for option in schema["anyOf"]]
        if all(options):
            yield from min(options, key=len)
        return
    if "const" in schema and value != schema["const"]:
        yield f"{at}: {value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    if "type" in schema and not _is_of(value, schema["type"]):
        yield f"{at}: {value!r} is no {schema['type']}"
        return
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{at}: {value!r} is not written like {schema['pattern']}"
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{at}: {value!r} is out of range"
    if isinstance(value, dict) and "properties" in schema:
        yield from _faults_inside(value, schema, at)
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from faults(item, schema["items"], f"{at}[{number}]")


def _is_of(value: Any, kinds: str | list[str]) -> bool:
    wanted = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(value, bool):
        return "boolean" in wanted
    return any(isinstance(value, KINDS[kind]) for kind in wanted)


def _faults_inside(value: dict[str, Any], schema: dict[str, Any], at: str) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{at}: {name} is missing"
    for name, item in value.items():
        if name in schema["properties"]:
            yield from faults(item, schema["properties"][name], f"{at}.{name}")
        else:
            yield f"{at}: {name} is described nowhere"


def check(name: str, document: Any) -> None:
    """Fail with everything that does not fit."""
    found = list(faults(document, schema_named(name)))
    assert not found, "\n".join(found)
