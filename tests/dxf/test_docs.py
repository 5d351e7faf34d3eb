"""What docs/dxf.md shows can be done as it is shown."""

import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.cli.programs import RUN_SECONDS, environment
from tests.servers import sqlite_module
from tideshift.dxf import ranges

PAGE = Path(__file__).parents[2] / "docs" / "dxf.md"
CUSTOMERS = 3_000


def test_the_task_type_of_the_page_works_on_every_row(tmp_path):
    """The page's program cuts the table into ranges, goes through each by chunks, and ends when all rows are done."""
    program = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    with closing(sqlite_module().connect(tmp_path / "shop.db")) as shop:
        shop.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT)")
        shop.executemany("INSERT INTO customer VALUES (?, ?)", [(n, f"  customer {n} ") for n in range(1, CUSTOMERS + 1)])
        shop.commit()

    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(None, None), capture_output=True, text=True, timeout=RUN_SECONDS,
        check=False,
    )  # fmt: skip

    assert (ran.returncode, ran.stdout) == (0, "succeed 8 subtasks\n"), ran.stderr
    with closing(sqlite_module().connect(tmp_path / "shop.db")) as shop:
        names = shop.execute("SELECT name FROM customer ORDER BY id").fetchall()
    assert names == [(f"customer {n}",) for n in range(1, CUSTOMERS + 1)]


def test_the_page_tells_of_everything_that_ranges_exports():
    """Whatever an author of a task type may use of `dxf.ranges` is on the page."""
    text = PAGE.read_text(encoding="utf-8")

    assert not [name for name in ranges.__all__ if name not in text]
