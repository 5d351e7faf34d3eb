"""What is true of the repository as a whole: its files, its locks, its generated pages, what an import brings."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT, project_files

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
UPWARDS = re.compile(r"(?:\.\./)+[\w./-]*")
SOMEBODYS_FOLDER = re.compile(r"(?<![\w./~$}-])/(?:home|root|Users|work|workspaces?|mnt|media|srv|private)/\w[\w./-]*")
ADDRESS = re.compile(r"https?://|file:|^-|--(extra-)?index-url|--find-links|--trusted-host|\s@\s|(^|\s)/\w", re.MULTILINE)
GENERATE = ROOT / "scripts" / "generate_docs.py"


def texts():
    for path in project_files():
        try:
            yield path.relative_to(ROOT), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def test_no_file_leans_on_what_is_outside():
    """No file of the project speaks of a folder that a clone does not have."""
    found = [f"{path}: {place}" for path, text in texts() for place in outside(path, text)]

    assert not found


def outside(path, text):
    """The places outside the project that a text names: by `..` from its own folder, or a folder of somebody's machine."""
    for match in UPWARDS.finditer(text):
        if not (ROOT / path.parent / match.group()).resolve().is_relative_to(ROOT):
            yield match.group()
    yield from (match.group() for match in SOMEBODYS_FOLDER.finditer(text))


UP = "../"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"see {UP}README.md", []),
        (f"see {UP}{UP}notes.md", [f"{UP}{UP}notes.md"]),
        ("open('/" + "home/me/notes.md')", ["/" + "home/me/notes.md"]),
        ("a path such as /nowhere/log", []),
    ],
)
def test_what_leads_outside_is_found(text, found):
    """A link of a page in docs may lead to the root and no further, and no folder of a machine is named."""
    assert list(outside(Path("docs/page.md"), text)) == found


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_lock_names_no_host_and_no_folder(lock):
    """A requirement file says what to install and never from where."""
    pinned = "\n".join(line for line in lock.read_text().splitlines() if not line.lstrip().startswith(("#", "--hash=")))

    assert not ADDRESS.search(pinned)
    assert not re.search(r"https?://|file:|(^|\s)/\w", lock.read_text())


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_lock_pins_each_package_with_hashes(lock):
    """Every package is pinned to one version and carries hashes."""
    entries = re.findall(r"^([a-z0-9][\w.-]*)(.*(?:\n\s+--hash=.*)*)", lock.read_text(), re.MULTILINE)

    assert entries
    assert not [name for name, rest in entries if not rest.startswith("==") or "--hash=sha256:" not in rest]


def names_in(requirements):
    return {re.match(r"[\w.-]+", line).group().lower().replace("_", "-") for line in requirements}


def test_locks_hold_what_the_project_declares():
    """What pyproject.toml declares is pinned: dependencies and extras for running, the dev extra for testing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    pinned = {lock.stem: names_in(re.findall(r"^[a-z0-9].*", lock.read_text(), re.MULTILINE)) for lock in LOCKS}

    assert names_in([*project["dependencies"], *extras["postgres"], *extras["sqlite"]]) <= pinned["runtime"]
    assert names_in(extras["dev"]) <= pinned["dev"]
    assert pinned["runtime"] <= pinned["dev"]


def test_no_link_leads_nowhere():
    """Each relative link of a page leads to a file of the project."""
    pages = [(path, text) for path, text in texts() if path.suffix == ".md"]
    links = [(path, link) for path, text in pages for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]

    assert pages
    assert not [f"{path}: {link}" for path, link in links if not (ROOT / path.parent / link).exists()]


def test_generated_pages_are_current():
    """What is generated in the documentation equals what the code says now."""
    run = subprocess.run([sys.executable, GENERATE, "--check"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert run.returncode == 0, f"{run.stdout}{run.stderr}\nrun `make docs`"


@pytest.mark.parametrize("package", ["tideshift", "tideshift.failpoint", "tideshift.fsm", "tideshift.errors"])
def test_import_brings_no_third_party_module(package):
    """Importing the package, or what stands lowest in it, imports the standard library only."""
    program = (
        "import json, sys; before = set(sys.modules); import importlib; importlib.import_module(sys.argv[1]);"
        "print(json.dumps(sorted({name.split('.')[0] for name in set(sys.modules) - before})))"
    )

    out = subprocess.run([sys.executable, "-c", program, package], cwd=ROOT, capture_output=True, text=True, check=True)

    assert set(json.loads(out.stdout)) - sys.stdlib_module_names == {"tideshift"}


def run_check_failpoints(*arguments):
    command = [sys.executable, ROOT / "scripts" / "check_failpoints.py", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_unreached_failpoint_is_named(tmp_path):
    """The check after the run fails and names each declared point that no test reached."""
    trace = tmp_path / "trace"
    trace.write_text("store.before_begin\n")

    run = run_check_failpoints(trace)

    assert run.returncode == 1
    assert "failpoint store.before_commit is reached by no test" in run.stderr
    assert "store.before_begin is reached by no test" not in run.stderr


def test_reached_failpoints_pass(tmp_path):
    """The check passes when the traces of several runs together name every declared point."""
    traces = [tmp_path / "one", tmp_path / "two"]
    traces[0].write_text("store.before_begin\n")
    traces[1].write_text("")
    missing = re.findall(r"failpoint (\S+) is reached", run_check_failpoints(*traces).stderr)
    traces[1].write_text("\n".join(missing))

    run = run_check_failpoints(*traces)

    assert run.returncode == 0, run.stderr


def test_missing_trace_is_an_error(tmp_path):
    """A run that wrote no trace proves nothing and is not taken for a pass."""
    assert run_check_failpoints(tmp_path / "none").returncode == 2
