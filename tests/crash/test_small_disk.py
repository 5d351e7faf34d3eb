"""A disk that is really too small."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.crash.processes import ROOT
from tests.crash.strikes import scratch

INSIDE = ("unshare", "--user", "--map-root-user", "--mount")
"""Runs a command that may mount what nobody outside sees."""
pytestmark = pytest.mark.timeout(300)  # real processes on a machine that may be busy


def _can_mount() -> bool:
    if shutil.which(INSIDE[0]) is None:
        return False
    tried = "import tempfile, pathlib; from tests.crash.small_disk import mount; mount(pathlib.Path(tempfile.mkdtemp()))"
    return subprocess.run([*INSIDE, sys.executable, "-c", tried], cwd=ROOT, capture_output=True, check=False).returncode == 0


def test_a_job_on_a_small_disk_waits_gives_up_and_goes_on(seed):
    """No statement of a writer fails, and when there is room again the job ends with every row."""
    if not _can_mount():
        reason = "this machine lets nobody mount a small file system"
        if os.environ.get("TIDESHIFT_TEST_REQUIRE"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    with scratch() as folder:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
        command = [*INSIDE, sys.executable, "-m", "tests.crash.small_disk", str(folder), str(seed)]
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, f"{ran.stdout[-1000:]}{ran.stderr[-4000:]}"
