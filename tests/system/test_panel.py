"""The panel as a person meets it: a real JupyterLab in a real Chromium, on a mesh of real processes."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tornado import httpclient, websocket

from .conftest import House, client_of, mesh, new_house, until, waiting_for
from .lab import BASE_URL, TOKEN, Lab, chromium, jupyter_lab, open_lab

SECOND = 1000.0
SOON = 20 * SECOND


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab of somebody who has not logged in to any mesh yet."""
    folder = tmp_path_factory.mktemp("lab")
    with jupyter_lab(folder, folder / "mesh-home") as found:
        yield found


@pytest.fixture(scope="module")
def watched(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    found = new_house(tmp_path_factory.mktemp("house"))
    try:
        found.up()
        found.join("desk", "--site", "london/floor2")
        found.join("rack")
        found.lending("desk", "rack")
        yield found
    finally:
        found.close()


def log_in(house: House, lab: Lab) -> None:
    """Log in as a user, once."""
    if (lab.home / "user").exists():
        return
    token = house.token("user")
    done = mesh("login", house.address, "--token", token["token"], "--ca", token["ca"], "--home", str(lab.home))
    assert done.returncode == 0, done.stderr


def show_panel(page: Any) -> Any:
    page.get_by_role("tab", name="Mesh").click()
    panel = page.get_by_role("region", name="Mesh", exact=True)
    panel.wait_for(state="visible")
    return panel


def row(panel: Any, name: str, *words: str) -> Any:
    return panel.get_by_role("row", name=re.compile(rf"^{name}\b.*" + ".*".join(words)))


def driver_connections(lab: Lab, house: House) -> list[Any]:
    """Return the Jupyter server's open connections to the driver."""
    found = psutil.Process(lab.process.pid).net_connections("tcp")
    return [each for each in found if each.raddr and each.raddr.port == house.port and each.status == "ESTABLISHED"]


def test_from_no_mesh_to_a_live_view_of_it(lab: Lab, watched: House, tmp_path: Path):
    with chromium() as page:
        open_lab(page, lab)
        panel = show_panel(page)
        panel.get_by_text("No mesh here yet").wait_for(timeout=SOON)
        assert panel.get_by_text("mesh login HOST").is_visible()

        log_in(watched, lab)
        for name in ("desk", "rack"):
            row(panel, name, "ready").wait_for(timeout=SOON)
        assert panel.get_by_text("2 nodes", exact=True).is_visible()
        assert row(panel, "desk").get_by_role("meter", name="CPU load of desk").count() == 1
        assert row(panel, "desk").get_by_text("london/floor2").is_visible()
        assert "2 healthy" in panel.get_by_role("status").first.text_content()

        watched.client.post("/v1/nodes/desk/cordon")
        row(panel, "desk", "cordoned").wait_for(timeout=SOON)
        assert row(panel, "rack", "ready").is_visible()
        watched.client.post("/v1/nodes/desk/uncordon")
        row(panel, "desk", "ready").wait_for(timeout=SOON)

        with client_of(watched) as client:
            future = client.submit(waiting_for, str(tmp_path / "go"), workers=[watched.node("rack")["worker"]])
            row(panel, "rack", "busy").wait_for(timeout=SOON)
            assert row(panel, "rack").get_by_role("cell").last.text_content() == "1"
            (tmp_path / "go").touch()
            future.result(60)
        row(panel, "rack", "ready").wait_for(timeout=SOON)


def test_by_keyboard_alone(lab: Lab, watched: House):
    log_in(watched, lab)
    with chromium() as page:
        open_lab(page, lab)
        page.keyboard.press("Control+Shift+C")
        page.keyboard.type("Show the mesh", delay=5)
        page.keyboard.press("Enter")
        panel = page.get_by_role("region", name="Mesh", exact=True)
        row(panel, "desk").wait_for(timeout=SOON)

        box = panel.get_by_role("searchbox")
        box.focus()
        page.keyboard.type("floor2")
        row(panel, "rack").wait_for(state="detached", timeout=SOON)
        assert panel.get_by_text("1 of 2 nodes").is_visible()
        page.keyboard.type(" nonsense")
        panel.get_by_text("No node matches").wait_for(timeout=SOON)
        page.keyboard.press("Escape")
        row(panel, "rack").wait_for(timeout=SOON)

        for _ in range(3):  # the table, which scrolls, and its first heading
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.tagName") == "BUTTON":
                break
        page.keyboard.press("Enter")
        panel.get_by_role("columnheader", name="Node").and_(panel.locator("[aria-sort=descending]")).wait_for()
        names = panel.get_by_role("rowheader").all_text_contents()
        assert [name[:4] for name in names] == ["rack", "desk"]


def test_nothing_runs_while_the_panel_is_closed_and_the_layout_is_restored(lab: Lab, watched: House):
    log_in(watched, lab)
    with chromium() as page:
        open_lab(page, lab)
        assert driver_connections(lab, watched) == []
        panel = show_panel(page)
        row(panel, "desk").wait_for(timeout=SOON)
        assert len(driver_connections(lab, watched)) == 1
        page.get_by_role("tab", name=re.compile("File Browser")).first.click()
        until(lambda: driver_connections(lab, watched) == [], "the connection's end", 20)

        panel = show_panel(page)
        row(panel, "desk").wait_for(timeout=SOON)
        page.wait_for_timeout(1_500)  # JupyterLab saves its layout a second after it changed
        page.reload()
        row(panel, "desk").wait_for(timeout=60 * SECOND)
    until(lambda: driver_connections(lab, watched) == [], "the connection's end with its page", 20)


def test_a_killed_driver_is_said_and_its_return_is_live_again(lab: Lab, watched: House):
    log_in(watched, lab)
    with chromium() as page:
        open_lab(page, lab)
        panel = show_panel(page)
        row(panel, "desk").wait_for(timeout=SOON)
        watched.end("driver", signal.SIGKILL)
        panel.get_by_role("alert").get_by_text("The driver is not reachable").wait_for(timeout=SOON)
        assert row(panel, "desk").is_visible(), "what was last known stays"
        assert panel.get_by_text("not live", exact=True).is_visible()
        watched.up()
        panel.get_by_text("live", exact=True).wait_for(timeout=60 * SECOND)
        assert panel.get_by_role("alert").count() == 0
        row(panel, "desk", "ready").wait_for(timeout=90 * SECOND)


# ---------------------------------------------------------------- who may open the feed


async def opened(lab: Lab, **headers: str) -> Any:
    address = lab.address.replace("http", "ws", 1) + "computemesh/feed"
    return await websocket.websocket_connect(httpclient.HTTPRequest(address, headers=headers))


def cookie_of(lab: Lab) -> str:
    """Log in as a browser does, and return its cookies."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    with urllib.request.build_opener(Stay).open(f"{lab.address}lab?token={TOKEN}") as response:
        return "; ".join(value.partition(";")[0] for value in response.headers.get_all("Set-Cookie"))


async def test_only_who_is_logged_in_to_jupyter_may_watch(lab: Lab):
    with pytest.raises(httpclient.HTTPClientError, match="403"):
        await opened(lab)
    with pytest.raises(httpclient.HTTPClientError, match="403"):
        await opened(lab, Authorization="token wrong")
    connection = await opened(lab, Authorization=f"token {TOKEN}")
    assert json.loads(await connection.read_message())["op"] in ("notice", "snapshot")
    connection.close()


async def test_another_sites_page_may_not_watch_with_the_users_cookie(lab: Lab):
    cookie = cookie_of(lab)
    own = lab.address.removesuffix(BASE_URL)
    connection = await opened(lab, Cookie=cookie, Origin=own)
    connection.close()
    with pytest.raises(httpclient.HTTPClientError, match="403"):
        await opened(lab, Cookie=cookie, Origin="https://evil.example")


def test_the_panels_files_and_the_kernels_picture_are_served(lab: Lab):
    headers = {"Authorization": f"token {TOKEN}"}
    specs = json.loads(read(f"{lab.address}api/kernelspecs", headers))
    logo = specs["kernelspecs"]["computemesh"]["resources"]["logo-svg"]
    assert b"<svg" in read(lab.address.removesuffix(BASE_URL) + logo, headers)


def read(url: str, headers: dict[str, str]) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as response:
        return response.read()
