"""The check of documents is shown to go red."""

import pytest

from tests.cli.schema_check import FOLDER, KNOWN, faults, schema_named

SAMPLE = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 0},
        "at": {"anyOf": [{"type": "string", "pattern": "Z$"}, {"type": "null"}]},
        "state": {"enum": ["on", "off"]},
        "version": {"const": 1},
        "names": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["count"],
}
GOOD = {"count": 3, "at": "12:00Z", "state": "on", "version": 1, "names": ["a"]}


@pytest.mark.parametrize("change", [{}, {"at": None}, {"names": []}])
def test_what_fits_passes(change):
    """A document that fits has no faults."""
    assert list(faults({**GOOD, **change}, SAMPLE)) == []


RED = [{"count": "3"}, {"count": True}, {"count": -1}, {"count": 1.5}, {"at": "12:00"}, {"at": 12}, {"state": "ON"}, {"version": 2}, {"names": [1]}, {"names": "a"}, {"more": 1}]


@pytest.mark.parametrize("change", RED, ids=str)
def test_what_does_not_fit_is_found(change):
    """Each kind of fault is found."""
    assert list(faults({**GOOD, **change}, SAMPLE))


def test_missing_property_is_found():
    """A required property that is missing is found."""
    assert list(faults({}, SAMPLE)) == ["$: count is missing"]


def words_of(schema):
    if isinstance(schema, list):
        return set().union(*map(words_of, schema)) if schema else set()
    if not isinstance(schema, dict):
        return set()
    inner = set().union(*(words_of(part) for part in schema.get("properties", {}).values()), words_of(schema.get("items")), words_of(schema.get("anyOf")))
    return set(schema) | inner


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_schemas_use_known_words_only(path):
    """No word of a published schema goes unchecked."""
    name = path.name.removesuffix(".schema.json")

    assert words_of(schema_named(name)) <= KNOWN
