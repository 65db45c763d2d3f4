"""Uploaded files lie on every node under the paths that they have here."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

import computemesh as face
from computemesh.errors import CannotShip
from computemesh.kernel.run_files import FILES, RunFiles, SentFile, in_working_directory, write_files
from computemesh.kernel.ship_once import shipped
from computemesh.kernel.shipping import pack, unpack
from computemesh.kernel.uploads import upload_paths, uploads_for, with_files


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "a.csv").write_text("1,2\n")
    (tmp_path / "data" / "deep" / "b.bin").write_bytes(bytes(range(256)))
    (tmp_path / "data" / "empty").mkdir()
    (tmp_path / "data" / "__pycache__").mkdir()
    (tmp_path / "data" / "__pycache__" / "x.pyc").write_text("no")
    return tmp_path


def read(path):
    return Path(path).read_bytes()


def listed(path="."):
    return sorted(each.name for each in Path(path).iterdir())


def test_a_task_finds_files_under_the_same_relative_path(mesh):
    found = face.upload("data")
    assert sorted(found.paths) == ["data/a.csv", "data/deep/b.bin"]
    assert face.submit(read, "data/a.csv").result() == b"1,2\n"
    assert face.gather(face.map(read, ["data/deep/b.bin"] * 4)) == [bytes(range(256))] * 4
    assert face.submit(listed, "data").result() == ["a.csv", "deep", "empty"]
    found.forget()
    with pytest.raises(FileNotFoundError):
        face.submit(read, "data/a.csv").result()


def test_a_file_missing_on_the_node_but_here_says_what_to_do(mesh, folder):
    def fail(name):
        raise FileNotFoundError(2, "No such file or directory", name)

    with pytest.raises(FileNotFoundError) as caught:
        face.submit(fail, "data/a.csv").result()
    assert "mesh.upload('data/a.csv')" in "".join(caught.value.__notes__)
    with pytest.raises(FileNotFoundError) as caught:
        face.submit(fail, "nowhere.csv").result()
    assert not getattr(caught.value, "__notes__", [])


def test_files_of_elsewhere_go_by_their_own_name_or_below_to(mesh, tmp_path_factory):
    other = tmp_path_factory.mktemp("other") / "model.bin"
    other.write_text("weights")
    face.upload([other])
    face.upload(str(other), to="models/v1")
    assert face.submit(read, "model.bin").result() == b"weights"
    assert face.submit(read, "models/v1/model.bin").result() == b"weights"
    assert mesh.uploads.size == 14


def test_the_content_is_what_it_was_when_it_was_uploaded(mesh, folder):
    face.upload("data/a.csv")
    (folder / "data" / "a.csv").write_text("changed")
    assert face.submit(read, "data/a.csv").result() == b"1,2\n"
    face.upload("data/a.csv")
    assert face.submit(read, "data/a.csv").result() == b"changed"


def test_a_large_file_is_sent_once(mesh, folder):
    (folder / "big.bin").write_bytes(b"x" * 3_000_000)
    face.upload("big.bin")
    face.gather(face.map(read, ["big.bin"] * 4))
    face.upload("big.bin")
    face.gather(face.map(read, ["big.bin"] * 4))
    assert mesh.shipped.sent == 3_000_000


def test_an_executable_stays_one_and_modules_in_it_can_be_imported(mesh, folder):
    script = folder / "run.sh"
    script.write_text("#!/bin/sh\necho hello\n")
    script.chmod(0o755)
    (folder / "uploaded_helper.py").write_text("ANSWER = 42\n")
    face.upload(["run.sh", "uploaded_helper.py"])

    def run():
        import subprocess

        return subprocess.run(["./run.sh"], capture_output=True, text=True, check=True).stdout

    assert face.submit(run).result() == "hello\n"


@pytest.mark.parametrize("to", ["../x", "/etc", "a/../../b", "C:/x"])
def test_a_target_outside_the_run_is_refused(mesh, to):
    with pytest.raises(CannotShip, match=r"below the run's working directory"):
        face.upload("data", to=to)


def test_links_that_lead_out_or_in_circles_are_refused_by_name(mesh, folder):
    (folder / "data" / "out").symlink_to("/etc/passwd")
    with pytest.raises(CannotShip, match=r"data/out'.*leads out"):
        face.upload("data")
    (folder / "data" / "out").unlink()
    (folder / "data" / "deep" / "loop").symlink_to(folder / "data")
    with pytest.raises(CannotShip, match=r"deep/loop'.*circle"):
        face.upload("data")
    (folder / "data" / "deep" / "loop").unlink()
    (folder / "data" / "dangling").symlink_to(folder / "data" / "nothing")
    with pytest.raises(CannotShip, match="nowhere"):
        face.upload("data")
    (folder / "data" / "dangling").unlink()
    (folder / "data" / "same").symlink_to(folder / "data" / "a.csv")
    assert "data/same" in face.upload("data").paths, "a link inside the folder is what it points to"


def test_what_is_no_file_is_refused_by_name(mesh, folder):
    with pytest.raises(CannotShip, match="no such file"):
        face.upload("nothing.csv")
    os.mkfifo(folder / "data" / "pipe")
    with pytest.raises(CannotShip, match=r"data/pipe is a device, pipe or socket"):
        face.upload("data")
    (folder / "data" / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("data/s")
        with pytest.raises(CannotShip, match="socket"):
            face.upload("data")


def test_what_is_too_big_is_refused_by_name_and_allowed_by_name(mesh, folder):
    (folder / "big.bin").write_bytes(b"x" * 3_000_000)
    with pytest.raises(CannotShip, match=r"'big.bin'.*limit='2GB'"):
        face.upload("big.bin", limit="1 MB")
    assert not mesh.uploads
    assert upload_paths(mesh, "big.bin", limit="4 MB").size == 3_000_000


def test_the_node_puts_nothing_outside_the_folder(folder):
    for path in ("../x", "/tmp/x", "a/../../x"):
        with pytest.raises(ValueError, match=r"cannot be put"):
            write_files(RunFiles((SentFile(path, b""),)), folder)


def test_the_folder_is_gone_after_the_run_and_the_current_directory_is_back(folder):
    before = Path.cwd()
    with in_working_directory(RunFiles((SentFile("x/y.txt", b"1"),))):
        where = Path.cwd()
        assert where != before
        assert read("x/y.txt") == b"1"
        Path("new.txt").write_text("made by the run")
    assert Path.cwd() == before
    assert not where.exists()


def test_files_travel_beside_a_cells_names(mesh):
    uploads = uploads_for(mesh, ["data/a.csv"])
    from computemesh.kernel.ship_names import pack_names

    packed = shipped(mesh, with_files(pack_names({"x"}, {"x": [1]}, 1_000_000), uploads))
    names = unpack(packed.data, {}, [future.result() for future in packed.futures])
    files = names.pop(FILES)
    assert names == {"x": [1]}
    assert [(file.path, bytes(file.content)) for file in files.files] == [("data/a.csv", b"1,2\n")]
    assert with_files(pack(1, {}), mesh.uploads).parts == pack(1, {}).parts, "no files, nothing added"


def test_runs_with_other_files_wait_for_their_turn_on_a_shared_process(folder):
    import threading

    seen, inside, leave = [], threading.Event(), threading.Event()

    def run(content, wait):
        with in_working_directory(RunFiles((SentFile("name", content),), digest=str(content))):
            if wait:
                inside.set()
                leave.wait(20)
            seen.append((content, read("name")))

    first = threading.Thread(target=run, args=(b"1", True))
    first.start()
    assert inside.wait(20)
    others = [threading.Thread(target=run, args=(content, False)) for content in (b"2", b"1")]
    for each in others:
        each.start()
    others[1].join(20)
    assert seen == [(b"1", b"1")], "the same files share the folder"
    leave.set()
    for each in (first, *others):
        each.join(20)
    assert sorted(seen) == [(b"1", b"1"), (b"1", b"1"), (b"2", b"2")]


def test_fsspec_urls_work_in_tasks_as_they_are(mesh, folder):
    def opened(url):
        import fsspec

        with fsspec.open(url, "rb") as file:
            return file.read()

    assert face.submit(opened, f"file://{folder}/data/a.csv").result() == b"1,2\n"

    import http.server
    import threading

    pytest.importorskip("aiohttp")
    handler = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert face.submit(opened, f"http://127.0.0.1:{server.server_port}/data/a.csv").result() == b"1,2\n"
        server.shutdown()
