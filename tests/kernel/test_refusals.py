"""What cannot be on a node is refused by name and with what to do, before anything runs."""

from __future__ import annotations

import socket
import sqlite3
import threading
import types
from pathlib import Path

import pytest

from computemesh.errors import CannotShip
from computemesh.kernel.cell_source import BadCell
from computemesh.kernel.refusals import check_names, check_plain


def _generator():
    yield 1


class OnGpu:
    is_cuda = True


class Cupy:
    __cuda_array_interface__ = {"shape": (1,)}  # noqa: RUF012


class Holder:
    def __init__(self, value):
        self.value = value


async def _coroutine():
    pass


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (threading.Lock, "lock"),
        (threading.RLock, "lock"),
        (threading.Event, "lock"),
        (lambda: threading.Thread(), "thread"),
        (lambda: Path("/dev/null").open(), "open file .*/dev/null"),  # noqa: SIM115
        (socket.socket, "socket"),
        (_generator, "list"),
        (lambda: sqlite3.connect(":memory:"), "database connection"),
        (OnGpu, r"\.cpu\(\)"),
        (lambda: [1, OnGpu()], r"\.cpu\(\)"),
        (Cupy, "cupy.asnumpy"),
        (lambda: {"a": Cupy()}, "cupy.asnumpy"),
    ],
    ids=[
        "lock",
        "rlock",
        "event",
        "thread",
        "file",
        "socket",
        "generator",
        "database",
        "torch",
        "in list",
        "cupy",
        "in dict",
    ],
)
def test_values_that_belong_to_this_process_or_its_gpu(make, said):
    value = make()
    try:
        with pytest.raises(CannotShip, match=f"Cannot send `it`.*{said}"):
            check_names({"it"}, {"it": value})
    finally:
        if hasattr(value, "close"):
            value.close()


def test_ordinary_values_pass():
    import io

    check_names(
        {"a", "b", "c", "e"}, {"a": [1], "b": io.StringIO("x"), "c": lambda: 1, "d": threading.Lock(), "e": OnGpu}
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("input('?')", r"input\(\)"),
        ("def f():\n    return input()\nf()", r"input\(\)"),
        ("breakpoint()", r"breakpoint\(\)"),
        ("import getpass\ngetpass.getpass()", r"getpass.getpass\(\)"),
        ("from getpass import getpass\ngetpass()", r"getpass\(\)"),
        ("from getpass import getpass as ask\nask()", r"ask\(\)"),
        ("import pdb; pdb.set_trace()", r"pdb.set_trace\(\)"),
        ("import sys\nsys.stdin.readline()", r"sys.stdin.readline\(\)"),
    ],
)
def test_questions_to_the_keyboard(text, said):
    with pytest.raises(BadCell, match=f"^{said} cannot ask on a node"):
        check_plain(text, text, frozenset())


def test_what_only_looks_like_a_question_passes():
    for text in ("import getpass\ngetpass.getuser()", "getpass()", "form.input()", "'input()'"):
        check_plain(text, text, frozenset())
    check_plain("input(1)", "input(1)", frozenset({"input"}))


def test_a_notebook_function_that_asks_is_named():
    home: dict[str, object] = {}
    exec("def ask():\n    return input('?')", home)
    with pytest.raises(BadCell, match=r"`ask` calls input\(\)"):
        check_names({"ask"}, home)


def test_the_place_inside_a_variable_is_named(notebook):
    notebook.value(
        "import threading\nclass Model:\n    def __init__(self): self.cache = {'lock': [threading.Lock()]}\n"
        "model = Model()"
    )
    ran = notebook.cell("%%mesh\nmodel.cache")
    assert isinstance(ran.error, CannotShip)
    assert "`model.cache['lock'][0]` is in it" in ran.out


def test_a_class_that_knows_how_to_travel_with_its_lock_travels(notebook):
    notebook.value(
        "class Safe:\n    def __init__(self):\n        import threading\n        self.lock = threading.Lock()\n"
        "    def __reduce__(self): return Safe, ()\nsafe = Safe()"
    )
    assert notebook.value("%%mesh\nsafe.lock.locked()") is False


def test_nothing_has_run_when_a_cell_is_refused(notebook, tmp_path):
    notebook.value(f"flag = {str(tmp_path / 'flag')!r}\nimport threading\nlock = threading.Lock()")
    for code in ("lock", "input()", "breakpoint()"):
        assert notebook.cell(f"%%mesh\nopen(flag, 'w').close()\n{code}").error is not None
    assert not (tmp_path / "flag").exists()


def test_a_question_in_disguise_fails_with_the_same_words(notebook):
    ran = notebook.cell("%%mesh\nexec('input()')")
    assert "input() cannot ask on a node" in str(ran.error)


def test_a_generator_is_named(notebook):
    notebook.value("g = (i for i in range(3))")
    ran = notebook.cell("%%mesh\nsum(g)")
    assert isinstance(ran.error, CannotShip)
    assert "`g`, a generator" in ran.out
    assert isinstance(notebook.names["g"], types.GeneratorType)
