"""The job of the demonstration: submitted, watched and commanded through the public API, worked on by another process."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tideshift.connect import Connected
from tideshift.dxf.commands import Answer, Verdict
from tideshift.frontends.demo.processes import DemoFailed, Processes
from tideshift.frontends.demo.screen import Figures
from tideshift.frontends.demo.shop import CHANGE

__all__ = ["COPYING", "WatchedJob"]

COPYING = "reorganize: copy"
EMPTYING = "empty the old table"
_ENDED_BADLY = ("cancelled", "rollback done")

PHASES: Mapping[str, str] = {
    "check rows": "Every row is tried on the new type, reading only; one that does not fit would end the job here, with its key.",
    "capture": "A shadow table with the new type, and triggers that note the key of each changed row.",
    COPYING: "Rows go over in small transactions, each with its checkpoint; between them the writers have the lock.",
    "reorganize: catch up": "Rows that changed meanwhile are read again and put right.",
    "reorganize: verify": "Old and new rows are compared, every one.",
    "cut over": "The last changes are applied and the tables change places, in one short transaction.",
    "inspect": "Another connection looks whether everything is where it belongs.",
    EMPTYING: "The replaced table is emptied a little at a time, then dropped.",
}


@dataclass
class WatchedJob:
    """One job and the worker process that carries it out."""

    connected: Connected
    processes: Processes
    log_path: Path
    job_id: int = 0
    view: dict[str, Any] = field(default_factory=dict)
    worker: subprocess.Popen[bytes] | None = None
    finished: bool = False
    _task_id: int = 0
    _told: set[str] = field(default_factory=set)

    def submit(self, **parameters: Any) -> None:
        """Submit the change."""
        self.job_id = self.connected.ddl.submit(CHANGE, parameters=parameters, strategy="shadow_table").id
        self.look()

    def start_worker(self, url: str) -> None:
        """Start a node in a process of its own."""
        self.worker = self.processes.start("worker", url, log_path=str(self.log_path))

    def kill_worker(self) -> None:
        """End the worker by SIGKILL, wherever it is."""
        assert self.worker is not None
        self.processes.kill(self.worker)
        self.worker = None

    def look(self) -> Figures:
        """Read the job, and return how it stands."""
        self.view = self.connected.ddl.show(self.job_id)
        if self.view["state"] in _ENDED_BADLY:
            error = self.view["error"] or {"message": "no reason is recorded"}
            raise DemoFailed(f"the job is {self.view['state']}: {error['message']}")
        if self.worker is not None and self.worker.poll() is not None:
            raise DemoFailed(f"the worker ended with {self.worker.returncode}; see {self.log_path}")
        if self.view["state"] == "synced":
            self.finished = not self._purge_pending()
        return Figures(
            phase=self.phase, percent=self.view["percent"], rows=self.view["row_count"],
            rows_total=max(self.view["row_total"], self.view["row_count"]), rows_per_second=self._speed(), state=self.view["state"],
        )  # fmt: skip

    @property
    def phase(self) -> str:
        """Name what is done now; after the swap what is left is to empty the old table."""
        return EMPTYING if self.view["state"] == "synced" else self.view["stage"] or self.view["state"]

    @property
    def share_copied(self) -> float:
        """Return how much of the table is copied, from 0 to 1."""
        return float(self.view["row_count"] / max(1, self.view["row_total"]))

    def news(self) -> str | None:
        """Return the explanation of a phase that was not told yet."""
        phase = self.phase
        if phase in self._told or phase not in PHASES:
            return None
        self._told.add(phase)
        return f"{phase}: {PHASES[phase]}"

    def ask(self, command: Callable[..., list[Answer] | Answer], *arguments: Any) -> None:
        """Give a command and insist that it was taken."""
        answers = command(self.job_id, *arguments)
        for answer in answers if isinstance(answers, list) else [answers]:
            if answer.verdict not in (Verdict.APPLIED, Verdict.ALREADY):
                raise DemoFailed(f"a command was not taken: {answer.reason}")

    def set_speed(self, speed: str) -> None:
        """Wish another ceiling for the write speed."""
        self.ask(self.connected.ddl.alter, {"max_write_speed": speed})

    def rows_per_chunk(self) -> int:
        """Return the mean size of the chunks so far, which is what a kill can cost."""
        if not self._task_id:
            self._task_id = next((task.id for task in self.connected.dxf.tasks() if task.type == "ddl.reorg"), 0)
        summaries = [subtask.summary for subtask in self.connected.dxf.subtasks(self._task_id)]
        chunks = sum(summary.get("chunks", 0) for summary in summaries)
        return int(sum(summary.get("row_count", 0) for summary in summaries) / max(1, chunks))

    def _speed(self) -> float:
        return float(self.view["rows_per_second"] or 0.0) if self.view["state"] == "running" else 0.0

    def _purge_pending(self) -> bool:
        from tideshift.ddl.view import purge_pending

        return self.connected.database.run(lambda tx: purge_pending(tx, self.job_id), write=False)
