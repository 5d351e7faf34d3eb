"""The heavy proofs in full: resumable, two runs at a time, with the figures as JSON beside this file.

    python -m tests.reliability [CAMPAIGN…] [--workers 2] [--stride 1] [--seed 0] [--fresh]
    python -m tests.reliability replay SCENARIO SEED POINT:ORDINAL:ACTION…

What was already done with the same sources is not done again. A run that fails prints the line that replays it; the exit
status is then 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.crash.faults import fail, known_fault
from tests.crash.kinds import EVERY
from tests.crash.strikes import ACTIONS, Strike, golden, strike, undone
from tests.reliability.campaigns import CAMPAIGNS, Campaign, Outcome, run_one
from tests.servers import end_with_parent

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TESTS = ROOT / "tests"
SOURCES = (
    ROOT / "src" / "tideshift", TESTS / "crash", TESTS / "proof", TESTS / "dialects", TESTS / "servers.py",
    TESTS / "waiting.py", HERE,
)  # fmt: skip
RESULTS = HERE / "results"
SAY_EVERY = 100


def fingerprint() -> str:
    """Return a digest of everything that a run depends on."""
    digest = hashlib.sha256()
    for path in sorted(path for source in SOURCES for path in (source.rglob("*.py") if source.is_dir() else [source])):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


class Progress:
    """What was done already with these sources: one line of JSON per run."""

    def __init__(self, campaign: str, sources: str, *, fresh: bool) -> None:
        folder = RESULTS / "progress"
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{campaign}-{sources}.jsonl"
        if fresh:
            self.path.unlink(missing_ok=True)
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.runs: dict[str, dict[str, Any]] = {record["key"]: record for record in map(json.loads, lines)}

    def add(self, key: str, outcome: Outcome, seconds: float) -> None:
        """Keep one run."""
        record = {"key": key, "struck": outcome.struck, "wrong": list(outcome.wrong), "seconds": round(seconds, 2), "figures": outcome.figures}
        self.runs[key] = record
        with self.path.open("a") as stream:
            stream.write(json.dumps(record) + "\n")


def outcomes(campaign: Campaign, keys: list[str], workers: int) -> Iterator[tuple[str, Outcome, float]]:
    """Yield the answers as they come, a bounded number of runs ahead."""
    if not campaign.parallel or workers == 1:
        yield from (run_one(campaign.name, key) for key in keys)
        return
    spawn, mine = get_context("spawn"), (os.getpid(),)
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=end_with_parent, initargs=mine, max_tasks_per_child=500) as pool:
        yield from pool.map(run_one, [campaign.name] * len(keys), keys, chunksize=8)


def run_campaign(campaign: Campaign, options: argparse.Namespace) -> bool:
    """Make every run that is not done yet, write the figures, and return whether all is well."""
    sources = fingerprint()
    progress = Progress(campaign.name, sources, fresh=options.fresh)
    keys = list(dict.fromkeys(campaign.keys(options.seed, options.stride)))
    todo = [key for key in keys if key not in progress.runs]
    print(f"{campaign.name}: {campaign.shows}: {len(keys)} runs, {len(keys) - len(todo)} done already", flush=True)
    for n, (key, outcome, seconds) in enumerate(outcomes(campaign, todo, options.workers), start=1):
        progress.add(key, outcome, seconds)
        if outcome.wrong:
            print(f"FAILED {campaign.name} {key}\n    " + "\n    ".join(outcome.wrong), flush=True)
        if outcome.figures:
            print(f"{campaign.name} {key}: {', '.join(f'{name} {value}' for name, value in outcome.figures.items())}", flush=True)
        if n % SAY_EVERY == 0:
            print(f"{campaign.name}: {n} of {len(todo)}", flush=True)
    figures = summary(campaign, keys, progress, options, sources)
    (RESULTS / f"{campaign.name}.json").write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")
    print(f"{campaign.name}: {figures['runs']} runs, {figures['failures']} failed", flush=True)
    return figures["failures"] == 0


def summary(campaign: Campaign, keys: list[str], progress: Progress, options: argparse.Namespace, sources: str) -> dict[str, Any]:
    """Put the figures of one campaign together."""
    records = [progress.runs[key] for key in keys]
    failed = [record for record in records if record["wrong"]]
    by_group: dict[str, dict[str, int]] = {}
    for record in records:
        group = by_group.setdefault(_group(record["key"]), {"runs": 0, "struck": 0, "failures": 0})
        group["runs"] += 1
        group["struck"] += record["struck"]
        group["failures"] += bool(record["wrong"])
    wrong = [line for record in failed for line in record["wrong"]]
    return {
        "campaign": campaign.name, "shows": campaign.shows, "sources": sources, "seed": options.seed, "stride": options.stride,
        "complete": options.stride == 1, "runs": len(records), "struck": sum(record["struck"] for record in records),
        "failures": len(failed), "lost_or_duplicated": sum("only here" in line or "only there" in line for line in wrong),
        "orphans": sum(line.startswith("orphan") for line in wrong), "by_group": by_group,
        "figures": {record["key"]: record["figures"] for record in records if record.get("figures")}, "seconds": round(sum(record["seconds"] for record in records)), "first_failures": failed[:10],
    }  # fmt: skip


def _group(key: str) -> str:
    """Return what a key is counted under: the test, or all before the last stroke, or the first word where there is none."""
    if "::" in key:
        return key.partition("::")[2].partition("[")[0]
    return key.rpartition("/")[0] or key.partition(" ")[0]


def replay(words: list[str]) -> bool:
    """Do one printed run again and say what is wrong."""
    name, seed, *texts = words
    scenario = replace(EVERY[name], seed=int(seed))
    strikes = [Strike.parse(text) for text in texts]
    twin, _ = golden(scenario)
    if all(one.action in ACTIONS for one in strikes):
        verdict = strike(scenario, twin, strikes)
    else:
        (one,) = strikes
        verdict = fail(scenario, twin, undone(scenario), known_fault(one), one.ordinal)
    print("\n".join([f"{verdict.struck} struck", *verdict.differences]) if verdict.differences else f"{verdict.struck} struck, all is well")
    return not verdict.differences


def main() -> None:
    """Run what is asked for."""
    if sys.argv[1:2] == ["replay"]:
        sys.exit(0 if replay(sys.argv[2:]) else 1)
    parser = argparse.ArgumentParser(prog="python -m tests.reliability", description=__doc__.split("\n")[0])
    parser.add_argument("campaigns", nargs="*", metavar="CAMPAIGN", help=f"{', '.join(CAMPAIGNS)}; all by default")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--stride", type=int, default=1, help="make every n-th run only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="forget what was done already")
    options = parser.parse_args()
    unknown = set(options.campaigns) - set(CAMPAIGNS)
    if unknown:
        parser.error(f"there is no campaign {', '.join(sorted(unknown))}; there are {', '.join(CAMPAIGNS)}")
    well = [run_campaign(CAMPAIGNS[name], options) for name in options.campaigns or CAMPAIGNS]
    sys.exit(0 if all(well) else 1)


if __name__ == "__main__":
    main()
