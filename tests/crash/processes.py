"""Starting, killing and freezing real worker processes, and waiting for what they do without sleeping blindly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

from tests.crash.application import MODULE
from tests.waiting import WAIT_SECONDS_MAX, until

ROOT = Path(__file__).parents[2]


class Worker:
    """One worker process on a file, or on a URL with its log beside a path; leaving the block kills it if it still lives."""

    def __init__(self, path: Path, *, freeze: tuple[str, int] | None = None, url: str | None = None) -> None:
        self.log_path = path.with_suffix(f".worker-{time.monotonic_ns()}.log")
        command = [sys.executable, "-m", "tests.crash.worker", url or str(path)]
        if freeze is not None:
            command += ["--freeze", freeze[0], str(freeze[1])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
        with self.log_path.open("wb") as log:
            self.child = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()

    @property
    def log(self) -> str:
        """What the process has written so far."""
        return self.log_path.read_text()

    def ready(self) -> Worker:
        """Wait until it serves."""
        until(lambda: "ready " in self.log or self.child.poll() is not None, "a worker that is ready")
        assert self.child.poll() is None, self.log
        return self

    @property
    def name(self) -> str:
        """The name of its node."""
        return next(line.split()[1] for line in self.log.splitlines() if line.startswith("ready "))

    def wait_frozen(self) -> None:
        """Wait until the operating system shows it stopped."""
        until(lambda: self._state() == "T", lambda: f"a worker that is stopped: {self.log[-800:]}")

    def _state(self) -> str:
        text = Path(f"/proc/{self.child.pid}/stat").read_text()
        return text[text.rindex(")") + 2]

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self.child.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it without a last word."""
        self.child.kill()
        self.child.wait()

    def stop(self) -> None:
        """Ask it to end in order, and see that it does."""
        self.child.terminate()
        self.child.wait(timeout=WAIT_SECONDS_MAX)
        assert self.child.returncode == 0, self.log[-3000:]


def reader(path: Path) -> Any:
    """Open a connection for looking, which waits for locks."""
    return MODULE.connect(path, isolation_level=None, timeout=20)


def standing(look: Any) -> str:
    """Say how far the work is, for the message of a wait that was in vain."""
    jobs = look.execute("SELECT id, state, stage, err_count, error FROM tideshift_ddl_job").fetchall()
    tasks = look.execute("SELECT task_key, state, step FROM tideshift_dxf_global_task").fetchall()
    subtasks = look.execute(
        "SELECT id, step, state, attempt, exec_id, summary FROM tideshift_dxf_background_subtask WHERE state <> 'succeed'"
    ).fetchall()
    return f"jobs {jobs}, tasks {tasks}, subtasks {subtasks}"
