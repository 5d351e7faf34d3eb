"""What scripts/venv.sh does on a machine that lacks something, and the second time; each command on its PATH is a stub."""

import os
import shutil
import subprocess

import pytest

from tests.tidy.sources import ROOT

TOOLS = ("cat", "chmod", "cksum", "cp", "mkdir", "rm", "tr")
"""What the script, or the stub below, uses of the machine."""

PYTHON = """#!/bin/sh
# A Python of version 3.{minor}; {without} is what it lacks. Whatever it is asked for is a line in a file.
echo "$*" >>"{log}"
case "$*" in
*"sys.exit(sys.version_info < (3, 11))"*) [ {minor} -ge 11 ] ;;
*"import venv, ensurepip"*) [ "{without}" != venv ] ;;
*'print("%d.%d"'*) echo 3.{minor} ;;
"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
"-m pip --version") ;;
"-m pip install"*) [ "{without}" != network ] && : >"${{0%/*}}/tideshift" && chmod +x "${{0%/*}}/tideshift" ;;
*) echo "not expected: $*" >&2; exit 99 ;;
esac
"""


class Machine:
    """A project of its own on a machine that has nothing but a few tools, and whatever Python a test puts there."""

    def __init__(self, folder):
        self.project, self.bin, self.log = folder / "project", folder / "bin", folder / "asked"
        self.bin.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        (self.project / "scripts").mkdir(parents=True)
        (self.project / "requirements").mkdir()
        shutil.copy(ROOT / "scripts" / "venv.sh", self.project / "scripts" / "venv.sh")
        for name in ("requirements/runtime.txt", "requirements/dev.txt", "pyproject.toml"):
            (self.project / name).write_text(f"{name}\n")

    def put_python(self, *, name="python3", minor=12, without="nothing"):
        """Put a Python there, in place of one of this name."""
        path = self.bin / name
        path.write_text(PYTHON.format(minor=minor, without=without, log=self.log))
        path.chmod(0o755)

    def run(self, want, **variables):
        """Run the script; `asked` then tells what it asked any Python for."""
        self.log.write_text("")
        shell = os.path.realpath(shutil.which("sh"))
        ran = subprocess.run(
            [shell, "scripts/venv.sh", want], cwd=self.project, env={"PATH": str(self.bin), **variables}, capture_output=True, text=True, check=False
        )
        return ran.returncode, ran.stderr

    @property
    def installs(self):
        """How often something was installed in the last run."""
        return self.log.read_text().count("-m pip install")


@pytest.fixture
def machine(tmp_path):
    """A machine without any Python."""
    return Machine(tmp_path)


@pytest.mark.parametrize("minor", [None, 10])
def test_a_missing_python_is_named(machine, minor):
    """Without a Python, or with one that is too old, the packages to install are named and nothing is made."""
    if minor is not None:
        machine.put_python(minor=minor)

    code, told = machine.run("runtime")

    assert code == 1
    assert "no Python 3.11 or later was found" in told
    assert told.endswith("on Debian or Ubuntu: apt-get install python3 python3-venv\n")
    assert not (machine.project / ".venv").exists()


@pytest.mark.parametrize(("name", "minor"), [("python3", 11), ("python3", 13), ("python3.12", 12)])
def test_a_missing_venv_module_is_named(machine, name, minor):
    """Debian has it in a package of its own for each version of Python: just that one is named."""
    machine.put_python(name=name, minor=minor, without="venv")

    code, told = machine.run("dev")

    assert code == 1
    assert f"{name} has no venv module" in told
    assert told.endswith(f"on Debian or Ubuntu: apt-get install python3.{minor}-venv\n")
    assert not (machine.project / ".venv").exists()


def test_a_later_python_is_found_beside_an_old_one(machine):
    """The machine's python3 may be old; one that is asked for by name comes first."""
    machine.put_python(minor=9)
    machine.put_python(name="python3.11", minor=11)
    machine.put_python(name="mine", minor=14)

    code, told = machine.run("runtime", PYTHON="mine")

    assert (code, told) == (0, "")
    assert "print" not in machine.log.read_text()
    assert "A Python of version 3.14" in (machine.project / ".venv" / "bin" / "python").read_text()


@pytest.mark.parametrize(("first", "second"), [("runtime", "runtime"), ("dev", "dev"), ("dev", "runtime")])
def test_a_second_run_needs_no_network(machine, first, second):
    """What is there already is not installed again, and dev holds all that runtime does."""
    machine.put_python()
    assert machine.run(first) == (0, "")
    assert machine.installs == 2
    machine.put_python(without="network")

    assert machine.run(second) == (0, "")

    assert machine.installs == 0


@pytest.mark.parametrize("changed", ["requirements/dev.txt", "pyproject.toml"])
def test_what_has_changed_is_installed(machine, changed):
    """A renewed requirement file, and another declaration of the project, count from the next run on."""
    machine.put_python()
    machine.run("dev")
    (machine.project / changed).write_text("another\n")

    assert machine.run("dev") == (0, "")

    assert machine.installs == 2


def test_an_installation_that_failed_is_done_again(machine):
    """Without a network the first run fails, and the next one does not take it for done."""
    machine.put_python(without="network")
    assert machine.run("runtime")[0] != 0
    machine.put_python()
    machine.put_python(name="../project/.venv/bin/python")

    assert machine.run("runtime") == (0, "")

    assert machine.installs == 2


def test_a_folder_that_was_moved_gets_a_new_one(machine):
    """The scripts of a virtual environment name the folder that it was made in, so a copied project makes its own."""
    machine.put_python()
    machine.run("runtime")
    machine.project = machine.project.rename(machine.project.with_name("moved"))

    assert machine.run("runtime") == (0, "")

    assert machine.log.read_text().count("-m venv .venv") == 1
    assert machine.installs == 2
