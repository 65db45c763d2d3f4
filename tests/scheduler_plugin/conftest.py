"""Fixtures of the scheduler plugin's tests."""

from __future__ import annotations

import logging
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _no_swallowed_errors(caplog: pytest.LogCaptureFixture) -> Any:
    """Dask swallows what a plugin raises and logs it at INFO: let it fail the test."""
    with caplog.at_level(logging.INFO, logger="distributed.scheduler"):
        yield
    bad = [
        record for record in caplog.records if "Plugin failed" in record.message or "AssertionError" in record.message
    ]
    assert not bad, [record.exc_info for record in bad]
    for record in caplog.records:
        if record.levelno >= logging.ERROR and record.exc_info and record.name.startswith("distributed"):
            raise record.exc_info[1]


@pytest.fixture(params=[1.1, float("inf")], ids=["queueing", "no-queueing"])
def saturation(request: pytest.FixtureRequest) -> float:
    """Dask's `worker-saturation`: with a queue at the scheduler, and without."""
    return request.param
