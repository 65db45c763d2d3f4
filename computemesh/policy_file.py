"""The owner's ``policy.toml`` and the administrator's: TOML whose errors name the line, changed in place."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import BadConfiguration
from .policy import FIELDS, read_value, read_values

HEADER = "# What this machine lends, and when. `mesh policy show` explains each field; changes count at once.\n"


def read_text(text: str, name: str = "policy.toml") -> dict[str, Any]:
    """Return the values, by attribute of `Policy`, of a flat policy file.

    Raises:
        BadConfiguration: a line is wrong; names it.
    """
    return _read(_parsed(text, name), text, name)


def read_sections(text: str, name: str = "policy.toml") -> dict[str, dict[str, Any]]:
    """Return what an administrator's file says under ``[default]`` and ``[ceiling]``, as written.

    Raises:
        BadConfiguration: a line is wrong, or there is another section.
    """
    written = _parsed(text, name)
    for section, values in written.items():
        if section not in ("default", "ceiling") or not isinstance(values, dict):
            raise BadConfiguration(
                f"{name}, line {_line_of(text, section)}: {section!r} is not known here; an administrator's policy has "
                "the sections [default] and [ceiling]"
            )
        _read(values, text, name, section)
    return {section: dict(written.get(section, {})) for section in ("default", "ceiling")}


def _parsed(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line (\d+)", str(error))
        line = int(place[1]) if place else text.count("\n") + 1
        what = re.sub(r"\s*\(at .*\)", "", str(error))
        raise BadConfiguration(f"{name}, line {line}: this is no TOML: {what}") from None


def _read(written: Mapping[str, Any], text: str, name: str, section: str = "") -> dict[str, Any]:
    for key, value in written.items():
        try:
            read_value(key, value)
        except BadConfiguration as error:
            raise BadConfiguration(f"{name}, line {_line_of(text, key, section)}: {error}") from None
    try:
        return read_values(written)
    except BadConfiguration as error:
        raise BadConfiguration(f"{name}: {error}") from None


def _line_of(text: str, key: str, section: str = "") -> int:
    """Return the line in which `key` is set, counted from 1."""
    inside = not section
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[+\s*([\w-]+)", line)
        if header:
            if header[1] == key and not section:
                return number
            inside = header[1] == section
        elif inside and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
            return number
    return 1


def with_field(text: str, key: str, value: Any) -> str:
    """Return a policy file in which `key` has another value; None removes it. Comments and order stay.

    Raises:
        BadConfiguration: the field, the value, or the file as it would be is wrong.
    """
    import tomlkit

    _parsed(text, "policy.toml")
    document = tomlkit.parse(text or HEADER)
    if value is None:
        document.pop(key, None)
    else:
        read_value(key, value)
        document[key] = value
    changed = tomlkit.dumps(document)
    read_text(changed)
    return changed


def from_words(key: str, words: tuple[str, ...]) -> Any:
    """Return the value that the words of ``mesh policy set KEY WORD…`` mean, as it stands in the file."""
    example = next((field.example for field in FIELDS if field.name == key), ["list"] if key == "holidays" else "")
    if isinstance(example, list):
        return [part.strip() for word in words for part in _parts(word, key)]
    text = " ".join(words)
    if isinstance(example, bool) and text.lower() in ("true", "yes", "on", "false", "no", "off"):
        return text.lower() in ("true", "yes", "on")
    return text


def _parts(word: str, key: str) -> list[str]:
    # A calendar's line may name several days: ``sat,sun 10:00-12:00``.
    return [word] if key == "calendar" else word.split(",")


def load(file: Path) -> str:
    """Return the text of a policy file; empty when there is none.

    Raises:
        BadConfiguration: it cannot be read.
    """
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"{file} cannot be read: {error}") from None


def save(file: Path, text: str) -> None:
    """Write a policy file, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.part")
    unfinished.write_text(text, "utf-8")
    unfinished.replace(file)
