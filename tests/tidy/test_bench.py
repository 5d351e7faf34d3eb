"""What a benchmark writes down."""

import importlib.util
import sys

from tests.tidy.sources import ROOT


def bench_module(monkeypatch):
    """Import bench/sqlite.py, which is a program and no package."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("bench_sqlite", ROOT / "bench" / "sqlite.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_sqlite", module)
    spec.loader.exec_module(module)
    return module


def test_a_part_that_is_measured_again_replaces_only_itself(monkeypatch, tmp_path):
    """Running one part keeps what was published of the others, each with the machine that it was measured on."""
    module = bench_module(monkeypatch)
    before = {
        "machine": {"cores": 8}, "machines": {"pairs": {"cores": 8}, "help": {"cores": 8}},
        "results": [{"name": "of help", "value": 1, "part": "help"}, {"name": "of pairs", "value": 2, "part": "pairs"}],
        "details": {"pairs": {"25": [1.0]}, "trade": {}},
    }  # fmt: skip
    bench = module.Bench(None, tmp_path)
    bench.part = "pairs"
    bench.note("of pairs, new", 3, "x")
    bench.details["pairs"] = {"25": [2.0]}

    after = module.merged(before, bench, {"cores": 2}, ["pairs"])

    assert [(result["name"], result["value"]) for result in after["results"]] == [("of pairs, new", 3), ("of help", 1)]
    assert after["machines"] == {"pairs": {"cores": 2}, "help": {"cores": 8}}
    assert after["details"] == {"pairs": {"25": [2.0]}, "trade": {}}
