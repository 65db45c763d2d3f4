"""A real JupyterLab on a mesh, and a real Chromium that looks at it."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from computemesh.identity import HOME_VARIABLE

from .conftest import ended, free_ports, until

CHROMIUM = "/usr/bin/chromium"
TOKEN = "a-token-of-the-tests"
BASE_URL = "/some/base/"
"""Not the root, as behind a proxy: a panel that forgets the base URL shows nothing."""


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab. `address` ends with the base URL."""

    address: str
    home: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """Address of a workspace of its own, so that no test meets what another has left open."""
        return f"{self.address}lab/workspaces/{uuid.uuid4().hex}?token={TOKEN}"


@contextmanager
def jupyter_lab(folder: Path, home: Path) -> Iterator[Lab]:
    """Run JupyterLab on the mesh known in `home`, which may be none yet."""
    port = free_ports(1)[0]
    notebooks = folder / "notebooks"
    notebooks.mkdir(parents=True, exist_ok=True)
    quiet = folder / "jupyter-config" / "labconfig" / "page_config.json"
    quiet.parent.mkdir(parents=True, exist_ok=True)
    # Else a question about news lies over the window, and its answer asks the internet.
    quiet.write_text('{"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": true}}')
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": str(port),
        "ServerApp.port_retries": "0",
        "ServerApp.base_url": BASE_URL,
        "ServerApp.root_dir": str(notebooks),
        "ServerApp.allow_root": "True",
        "IdentityProvider.token": TOKEN,
    }
    own = {
        HOME_VARIABLE: str(home),
        "HOME": str(folder),
        **{f"JUPYTER_{kind}_DIR": str(folder / f"jupyter-{kind.lower()}") for kind in ("CONFIG", "DATA", "RUNTIME")},
    }
    address = f"http://127.0.0.1:{port}{BASE_URL}"
    with (folder / "lab.log").open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "jupyterlab",
                "--no-browser",
                *(f"--{key}={value}" for key, value in options.items()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, **own},
        )
    try:
        until(lambda: answers(process, f"{address}api", folder / "lab.log"), "JupyterLab", 60)
        yield Lab(address, home, process)
    finally:
        ended(process)


def answers(process: subprocess.Popen[bytes], url: str, log: Path) -> bool:
    assert process.poll() is None, log.read_text("utf-8", errors="replace")
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status == 200
    except OSError:
        return False


@contextmanager
def chromium(width: int = 1280, height: int = 800) -> Iterator[Any]:
    """Give a page of a real Chromium; what goes wrong in the page's own scripts fails the test."""
    from playwright.sync_api import sync_playwright

    if not Path(CHROMIUM).exists():
        pytest.fail(f"{CHROMIUM} is missing: `make test` installs it (Debian's package chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            page = browser.new_context(viewport={"width": width, "height": height}).new_page()
            page.set_default_timeout(30_000)
            errors: list[str] = []
            page.on("pageerror", lambda error: errors.append(str(error)))
            yield page
            assert not errors, errors
        finally:
            browser.close()


def open_lab(page: Any, lab: Lab) -> None:
    """Open JupyterLab and wait until it can be used."""
    page.goto(lab.url)
    page.wait_for_selector("#jp-main-dock-panel", state="visible", timeout=60_000)
    page.wait_for_selector(".jp-Launcher", state="visible", timeout=60_000)
