"""What the README shows can be done as it is shown."""

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.programs import RUN_SECONDS, ask, environment, make_shop

README = Path(__file__).parents[2] / "README.md"


def test_example_in_python_carries_a_job_out(tmp_path):
    """The example submits a job, works on it in its own process, and ends when it is over."""
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    path = make_shop(tmp_path / "shop.db")
    ask(path, "CREATE TABLE orders (id INTEGER PRIMARY KEY, amount TEXT)")
    ask(path, "INSERT INTO orders VALUES (1, '5')")

    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(None, None), capture_output=True, text=True, timeout=RUN_SECONDS,
        check=False,
    )  # fmt: skip

    assert (ran.returncode, ran.stdout) == (0, "synced\n"), ran.stderr
    assert ask(path, "SELECT typeof(amount) FROM orders") == [("integer",)]
