"""How long a person waits before anything happens: `import computemesh` and `mesh --help`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from .result import Direction, Result

COMMANDS = {
    "import computemesh": ([sys.executable, "-c", "import computemesh"], 0.2),
    "mesh --help": ([sys.executable, "-m", "computemesh", "--help"], 0.3),
}


def _seconds(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - begun


def run(quick: bool) -> list[Result]:
    """Time each command, alternated with a bare interpreter's start."""
    rounds = 3 if quick else 15
    bare = [sys.executable, "-c", "pass"]
    taken: dict[str, list[float]] = {name: [] for name in (*COMMANDS, "bare")}
    for _ in range(rounds):
        taken["bare"].append(_seconds(bare))
        for name, (command, _) in COMMANDS.items():
            taken[name].append(_seconds(command))
    floor = statistics.median(taken["bare"])
    return [
        Result(
            name=name,
            figure=statistics.median(taken[name]),
            unit="s",
            spread=(min(taken[name]), max(taken[name])),
            goal=goal,
            direction=Direction.AT_MOST,
            compared_with=f"a bare Python start in the same run: {floor:.3f} s",
        )
        for name, (_, goal) in COMMANDS.items()
    ]
