"""Databases for the command line's tests, and the command line inside the test's own process."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.programs import TO_NUMERIC, Ran, make_shop, run


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A small database without system tables."""
    return make_shop(tmp_path / "shop.db")


@pytest.fixture(scope="session")
def altered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ran]:
    """A small database on which `alter --json` ran to its end once, and that run; only to be looked at."""
    path = make_shop(tmp_path_factory.mktemp("altered") / "shop.db")
    return path, run("alter", TO_NUMERIC, "--strategy", "shadow_table", "--json", url=path)


@pytest.fixture
def inside(monkeypatch, capsys):
    """Runs a command in this process, which spares the start of an interpreter; called like `run`."""
    from tideshift.frontends.cli.app import run as run_here

    for name in [name for name in os.environ if name.startswith("TIDESHIFT_") and name != "TIDESHIFT_SQLITE"]:
        monkeypatch.delenv(name)
    logger = logging.getLogger("tideshift")
    before = logger.handlers[:], logger.level, logger.propagate
    terminate = signal.getsignal(signal.SIGTERM)

    def call(*arguments: object, url: object = None, stdin: str | bytes = "") -> Ran:
        if url is not None:
            monkeypatch.setenv("TIDESHIFT_URL", str(url))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode() if isinstance(stdin, str) else stdin)))
        capsys.readouterr()
        code = run_here([str(argument) for argument in arguments])
        return Ran(code, *capsys.readouterr())

    yield call
    for output in logger.handlers:
        output.close()
    logger.handlers[:], logger.level, logger.propagate = before
    signal.signal(signal.SIGTERM, terminate)
