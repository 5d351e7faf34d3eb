"""Exceptions to the house rules, each looked at and with its reason. An entry that is not needed any more fails a test.

A key is the start of a path, and after a blank, where one name or text is meant, what the finding must contain.
"""

DATABASE_NAMES = {
    "src/tideshift/dialects/": "a dialect is what knows its database",
    "src/tideshift/connect.py": "the composition root maps a URL to a dialect",
    "src/tideshift/frontends/demo/": "the demonstration makes a database of its own, and is not the engine",
    "src/tideshift/frontends/cli/alter.py Keep the replaced table this long": "a help text tells a person the default, which is the database's own",
    "src/tideshift/frontends/cli/options.py The database: a path, or": "a help text shows what a URL looks like",
}

BANNED_WORDS = {
    "src/tideshift/store/tables.py process_bind_param": "SQLAlchemy names the method that a column type overrides",
    "src/tideshift/store/tables.py process_result_value": "SQLAlchemy names the method that a column type overrides",
}

TEXT: dict[str, str] = {}

SLEEPS = {
    "src/tideshift/failpoint/": "the term `sleep` waits by itself, since the package knows nothing of Clock",
}

WAITS = {
    "tests/waiting.py": "the one place that looks again after a while: what other processes do sets no event here",
}

SWALLOWS: dict[str, str] = {}

STATE_WRITES: dict[str, str] = {}

LENGTHS: dict[str, str] = {}
