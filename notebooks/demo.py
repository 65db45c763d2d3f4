"""The demo behind `make demo`: a driver, three nodes of different speeds, and the quickstart notebook over them.

Everything is real and local: four long-lived processes of the `mesh` command, TLS between them, certificates made on
the spot, all files under `.demo/`. Run it with the Python of the environment that ComputeMesh is installed in.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from computemesh.driver_client import DriverClient
from computemesh.errors import ComputeMeshError
from computemesh.identity import HOME_VARIABLE, load_identity

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".demo"
NOTEBOOK = ROOT / "notebooks" / "quickstart.ipynb"
NODES = {"laptop": "12%", "desktop": "25%", "server": "45%"}
"""Each node's name and the share of this machine's CPU that it lends: that makes their speeds differ."""

PICTURE = os.environ.get("COMPUTEMESH_DEMO_PICTURE")
"""File to draw the terminal's content into, for the README."""

console = Console(record=bool(PICTURE), width=100 if PICTURE else None)


def main() -> int:
    """Run the demo; returns the exit status."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir()
    started: list[subprocess.Popen[bytes]] = []
    try:
        client = start_mesh(started)
        failed = execute(client)
        show_placements(client)
        if failed is not None:
            console.print(f"\n[red]The notebook failed:[/red] {failed}")
            return 1
        offer_lab(client)
    except KeyboardInterrupt:
        console.print("\nStopped.")
    except ComputeMeshError as error:
        console.print(f"[red]Error:[/red] {error}\nLogs: {PLACE}/*/logs")
        return 1
    finally:
        stop(started)
        if PICTURE:
            # The reader's own fixed-width font will do: a picture that fetches one from elsewhere is no picture.
            drawn = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="make demo"), flags=re.DOTALL)
            Path(PICTURE).write_text(drawn, "utf-8")
    return 0


# ---------------------------------------------------------------- the mesh


def mesh(*arguments: str) -> list[str]:
    """Return the command line of a `mesh` command."""
    return [sys.executable, "-m", "computemesh", *arguments]


def start_mesh(started: list[subprocess.Popen[bytes]]) -> DriverClient:
    """Start driver and nodes, and return a client once every node takes tasks."""
    home, (port, scheduler_port) = PLACE / "home", free_ports(2)
    with console.status("Starting the driver …"):
        ports = ("--port", str(port), "--scheduler-port", str(scheduler_port))
        started.append(spawn("driver", mesh("up", "--home", str(home), "--host", "127.0.0.1", *ports)))
        client = wait_for(started, "the driver", lambda: ready_client(home))
    console.print(f"[green]✓[/green] driver at {client.identity.driver}, its own CA, TLS only")
    with console.status("Three nodes join, each with a one-time token …"):
        for name, share in NODES.items():
            create = mesh("token", "create", "--json", "--home", str(home))
            made = json.loads(subprocess.run(create, check=True, capture_output=True).stdout)
            started.append(
                spawn(
                    name,
                    mesh(
                        "join", made["address"], "--token", made["token"], "--ca", made["ca"], "--name", name,
                        "--dedicated", "--cpu", share, "--memory", "2GB", "--service", "--home", str(PLACE / name),
                    ),
                )
            )  # fmt: skip
        wait_for(started, "three nodes", lambda: all_lend(client))
    for node in client.nodes():
        facts = node["facts"]
        console.print(
            f"[green]✓[/green] {facts['name']:<8} lends {NODES[facts['name']]:>4} of this machine's CPU, "
            f"score {node['score']['total']:.2f}"
        )
    return client


def spawn(name: str, command: list[str]) -> subprocess.Popen[bytes]:
    """Start one long-lived process, its output in a file."""
    with (PLACE / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on now."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports


def ready_client(home: Path) -> DriverClient | None:
    """Return a client once the scheduler listens."""
    if not (home / "admin" / "identity.json").exists():
        return None
    client = DriverClient(load_identity(home / "admin"))
    return client if client.status().scheduler else None


def all_lend(client: DriverClient) -> bool:
    """Return whether every node takes tasks."""
    nodes = client.nodes()
    return len(nodes) == len(NODES) and all(node["worker"] and not node["gates"] for node in nodes)


def wait_for(started: list[subprocess.Popen[bytes]], what: str, found: Callable[[], Any], bound: float = 120) -> Any:
    """Return what `found` returns once it is true; ends when a process died or nothing came within `bound` seconds."""
    deadline = time.monotonic() + bound
    problem = ""
    while time.monotonic() < deadline:
        for process in started:
            if process.poll() is not None:
                raise ComputeMeshError(f"A process of the demo ended early ({process.args!r}): see {PLACE}/*.log")
        try:
            if result := found():
                return result
        except ComputeMeshError as error:
            problem = f" ({error})"
        time.sleep(0.2)
    raise ComputeMeshError(f"{what} did not come up within {bound:g} s{problem}: see {PLACE}/*.log")


def stop(started: list[subprocess.Popen[bytes]]) -> None:
    """End nodes first, then the driver, so that each leaves by plan."""
    for process in reversed(started):
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()


# ---------------------------------------------------------------- the notebook


def execute(client: DriverClient) -> str | None:
    """Execute the quickstart with live progress; returns how it failed, None when it did not."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cells = sum(cell.cell_type == "code" for cell in notebook.cells)
    progress = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("cells"), TimeElapsedColumn()
    )
    running = progress.add_task("quickstart.ipynb", total=cells)
    environment = {**os.environ, HOME_VARIABLE: str(client.identity.folder.parent)}
    executor = NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": str(NOTEBOOK.parent)}},
        on_cell_executed=lambda **_: progress.advance(running),
    )
    failure: list[str] = []

    def work() -> None:
        try:
            # Jupyter's own warnings about its kernel go into a file; they would break the picture.
            with (PLACE / "kernel.log").open("wb") as log:
                asyncio.run(executor.async_execute(env=environment, stderr=log))
        except CellExecutionError as error:
            failure.append(str(error))
        except Exception as error:
            failure.append(repr(error))

    console.print()
    thread = threading.Thread(target=work)
    thread.start()
    with Live(console=console, refresh_per_second=4) as live:
        while thread.is_alive():
            live.update(Group(progress, nodes_now(client)))
            thread.join(0.25)
        live.update(progress)
    nbformat.write(notebook, PLACE / "quickstart.executed.ipynb")
    return failure[0] if failure else None


def nodes_now(client: DriverClient) -> Table:
    """Return a small table of what the nodes are doing."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("NODE", "OURS", "WORK"):
        table.add_column(column)
    for node in client.nodes():
        ours = (node["sample"] or {}).get("cpu_ours", 0.0)
        table.add_row(node["facts"]["name"], f"{ours:3.0f} %", Text("█" * round(ours / 4), "green"))
    return table


def show_placements(client: DriverClient) -> None:
    """Print where the notebook's tasks ran, and why there."""
    placements = client.get("/v1/placements?count=10000")
    console.print("\n[bold]Where each kind of task ran[/bold]")
    counts: dict[str, dict[str, int]] = {}
    for placement in placements:
        row = counts.setdefault(placement["prefix"], dict.fromkeys(NODES, 0))
        row[placement["node"]] = row.get(placement["node"], 0) + 1
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("TASKS", *NODES):
        table.add_column(column)
    for prefix, row in counts.items():
        table.add_row(prefix, *(str(row[name] or "·") for name in NODES))
    console.print(table)
    console.print("\n[bold]Why: the parts of each node's score[/bold] (0.35 CPU + 0.25 memory + 0.15 GPU + …)")
    parts = ("cpu", "memory", "gpu", "reliability", "network")
    scores = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("NODE", *parts, "SCORE"):
        scores.add_column(column)
    for node in client.nodes():
        score = node["score"]
        scores.add_row(
            node["facts"]["name"], *(f"{score[part]:.2f}" for part in parts), Text(f"{score['total']:.2f}", "green")
        )
    console.print(scores)
    if placements:
        key = placements[-1]["key"]
        console.print(f"\n[bold]mesh why {key}[/bold]")
        explained = mesh("why", key, "--home", str(client.identity.folder.parent))
        console.print(
            subprocess.run(explained, capture_output=True, text=True, check=False).stdout.rstrip(), markup=False
        )


def offer_lab(client: DriverClient) -> None:
    """Offer JupyterLab on the same mesh while it is up."""
    home = client.identity.folder.parent
    executed = PLACE / "quickstart.executed.ipynb"
    console.print(f"\nThe executed notebook: {executed}")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        console.print("At a terminal, this is where `mesh lab` is offered: the same in JupyterLab.")
        return
    try:
        answer = console.input("Open it in JupyterLab on this mesh (`mesh lab`)? [Y/n] ").strip().lower()
    except EOFError:
        answer = "n"
    if answer in ("", "y", "yes"):
        subprocess.run(mesh("lab", "--home", str(home), str(executed)), check=False)


if __name__ == "__main__":
    sys.exit(main())
