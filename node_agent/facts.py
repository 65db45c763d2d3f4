"""What this machine is, as it tells the driver once per connection."""

from __future__ import annotations

import getpass
import platform
import re
import socket
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

from computemesh.driver_client import own_versions
from computemesh.node import NodeFacts

from .gpu import Gpus
from .share import Share


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the CPU's marketing name, else the architecture."""
    if sys.platform == "linux":
        try:
            text = cpuinfo.read_text("utf-8", "replace")
        except OSError:
            text = ""
        found = re.search(r"^(?:model name|Model|cpu model|Processor)\s*:\s*(.+)$", text, re.MULTILINE)
        if found:
            return " ".join(found[1].split())
    if sys.platform == "darwin":
        asked = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=False
        )
        if asked.stdout.strip():
            return asked.stdout.strip()
    return platform.processor() or platform.machine()


def installed_packages() -> dict[str, str]:
    """Return the Python packages that tasks find here: normalised name to version."""
    from packaging.utils import canonicalize_name

    packages: dict[str, str] = {}
    for found in distributions():
        name = found.metadata["Name"]
        if name:
            # The first on the path is the one that imports find.
            packages.setdefault(canonicalize_name(name), found.version)
    return dict(sorted(packages.items()))


def owner() -> str:
    """Return the user under whom this machine was joined; empty when the system does not say."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


def node_facts(
    name: str,
    share: Share,
    ram: int,
    speed: float,
    gpus: Gpus,
    site: str,
    pools: tuple[str, ...],
    dedicated: bool,
) -> NodeFacts:
    """Return the facts of this machine. `speed` is a whole core's; what is lent of it stands in the facts."""
    versions = own_versions()
    return NodeFacts(
        name=name,
        hostname=socket.gethostname(),
        os=platform.system(),
        architecture=platform.machine(),
        python=versions.python,
        computemesh=versions.computemesh,
        distributed=versions.distributed,
        cores=float(share.threads),
        cpus=share.cores,
        ram=ram,
        cpu_model=cpu_model(),
        core_speed=speed * share.thread_speed,
        gpus=gpus.facts(),
        cuda=gpus.cuda(),
        site=site,
        pools=pools,
        dedicated=dedicated,
        owner=owner(),
        packages=installed_packages(),
    )
