"""Runs one benchmark: ``python -m benchmarks NAME [--quick] [--json]``; exits with 1 below the goal."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys

import benchmarks
from benchmarks.result import Result


def names() -> list[str]:
    """Return the benchmarks there are: the modules of this package that are no part of another."""
    found = (module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    return sorted(name for name in found if not name.startswith("_") and name != "result")


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=names(), help="what to measure")
    parser.add_argument("--quick", action="store_true", help="within a minute; says whether it works, not how fast")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    given = parser.parse_args(arguments)
    found: Result | list[Result] = importlib.import_module(f"benchmarks.{given.name}").run(given.quick)
    results = found if isinstance(found, list) else [found]
    for result in results:
        print(json.dumps(result.as_dict()) if given.json else result.as_text())
    return 0 if given.quick or all(result.met for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
