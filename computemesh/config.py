"""Configuration, Dask's way: ``computemesh.yaml``, Dask's own files and ``DASK_COMPUTEMESH__…`` variables.

`dask.config` does the layering; this module adds our defaults once, reads values with their units, and says which
value is wrong when one is.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from .errors import BadConfiguration


@cache
def _defaults() -> dict[str, Any]:
    import dask.config
    import yaml

    defaults: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("computemesh.yaml").read_text("utf-8"))
    dask.config.update_defaults(defaults)
    return defaults


def value(key: str) -> Any:
    """Return the value of `key`, such as ``driver.port``, as configured.

    Defaults count also where Dask's configuration was cleared after they had been added, as test suites do.
    """
    import dask.config

    default: Any = _defaults()["computemesh"]
    for part in key.split("."):
        default = default[part]
    found = dask.config.get(f"computemesh.{key}", default)
    if isinstance(default, dict) and isinstance(found, dict):
        return dask.config.merge(default, found)
    return found


def number(key: str) -> float:
    """Return a plain number.

    Raises:
        BadConfiguration: the configured value is none.
    """
    found = value(key)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise BadConfiguration(f"computemesh.{key} is {found!r}: set it to a number")
    return found


def seconds(key: str) -> float:
    """Return a duration such as ``2 s`` in seconds.

    Raises:
        BadConfiguration: the configured value is none.
    """
    from dask.utils import parse_timedelta

    found = value(key)
    try:
        return float(parse_timedelta(found))
    except (TypeError, ValueError, KeyError):
        raise BadConfiguration(f"computemesh.{key} is {found!r}: set it to a duration such as '2 s'") from None


def size(key: str) -> int:
    """Return a size such as ``100 MB`` in bytes.

    Raises:
        BadConfiguration: the configured value is none.
    """
    from dask.utils import parse_bytes

    found = value(key)
    try:
        return int(parse_bytes(found))
    except (TypeError, ValueError):
        raise BadConfiguration(f"computemesh.{key} is {found!r}: set it to a size such as '100 MB'") from None


def section(key: str) -> dict[str, Any]:
    """Return a whole section, such as ``scores``."""
    found: dict[str, Any] = value(key)
    return {name.replace("-", "_"): entry for name, entry in found.items()}
