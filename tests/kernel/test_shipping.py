"""What is large travels once, by content; what changed travels anew; what shares, shares."""

from __future__ import annotations

import pickle
import resource

import numpy as np
import pytest

from computemesh.errors import CannotShip
from computemesh.kernel.blobs import LARGE, Blob, digest_of
from computemesh.kernel.ship_names import pack_names
from computemesh.kernel.ship_once import ShipCache, Shipment
from computemesh.kernel.shipping import pack, unpack

LIMIT = 1_000_000_000


def arrived(packed) -> dict:
    """What a node makes of it, with the blobs as Dask would give them."""
    return unpack(packed.data, {}, [future.result() for future in packed.futures])


def sent(mesh, home, names=None):
    return Shipment(mesh).shipped(pack_names(names or home, home, LIMIT))


def test_large_buffers_stay_out_of_the_pickle_and_small_ones_in_it():
    packed = pack([np.zeros(LARGE // 8), np.zeros(10)], {})
    assert [len(part.buffers) for part in packed.parts] == [1]
    assert len(packed.parts[0].stream) < 2000
    assert packed.size > LARGE
    back = unpack(packed.data, {})
    back[0][0] = back[1][0] = 1
    assert (back[0].sum(), back[1].sum()) == (1, 1), "and come back writable"


def test_what_variables_share_they_share_on_the_node(mesh):
    big = np.arange(300_000)
    home = {"a": big, "b": [big], "c": {"view": big}}
    back = arrived(sent(mesh, home))
    assert back["a"] is back["b"][0] is back["c"]["view"]


def test_the_same_content_is_sent_once_and_a_changed_one_anew(mesh):
    big = np.arange(300_000)
    home = {"big": big, "small": 1}
    sent(mesh, home)
    assert mesh.shipped.sent == big.nbytes
    for small in range(3):
        packed = sent(mesh, {**home, "small": small})
        assert len(packed.data) < 2000
    sent(mesh, {"other": big.copy()})
    assert mesh.shipped.sent == big.nbytes, "another variable with the same content too"
    big[5] = 0
    back = arrived(sent(mesh, home))
    assert mesh.shipped.sent == 2 * big.nbytes
    assert back["big"][5] == 0


def test_what_a_variable_held_before_is_let_go(mesh):
    big = np.arange(300_000)
    home = {"big": big}
    sent(mesh, home)
    assert mesh.shipped.size == big.nbytes
    big += 1
    sent(mesh, home)
    assert mesh.shipped.size == big.nbytes, "the former content is gone"
    home["big"] = 5
    sent(mesh, home)
    assert mesh.shipped.size == 0


def test_a_content_that_another_variable_holds_stays(mesh):
    big = np.arange(300_000)
    sent(mesh, {"a": big, "b": big.copy()})
    sent(mesh, {"a": 1, "b": big.copy()})
    assert mesh.shipped.size == big.nbytes


def test_the_cache_is_bounded(mesh):
    mesh.shipped = ShipCache(limit=5_000_000)
    for number in range(6):
        Shipment(mesh).shipped(pack(np.full(250_000, number), {}))
    assert mesh.shipped.size <= 5_000_000


def test_large_python_objects_are_sent_once_though_small_ones_beside_them_change(mesh):
    rows = [{"number": number, "text": f"row {number}"} for number in range(40_000)]
    for small in ([1, {2: 3}], ["other", object], 5):
        back = arrived(sent(mesh, {"a": small, "rows": rows, "z": small}))
        assert back["rows"] == rows
        assert back["a"] == small
    assert mesh.shipped.sent < 1.5 * len(pickle.dumps(rows))


def test_text_and_frames_come_as_they_went(mesh):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": np.arange(200_000), "y": [f"name {number}" for number in range(200_000)]})
    home = {"frame": frame, "text": "x" * 2_000_000, "data": b"y" * 2_000_000}
    back = arrived(sent(mesh, home))
    pandas.testing.assert_frame_equal(back["frame"], frame)
    assert (back["text"], back["data"]) == (home["text"], home["data"])
    back["frame"].loc[0, "x"] = 7


def test_one_run_does_not_see_what_another_changed_in_place(mesh):
    import computemesh as face

    def spoiled(x):
        before = int(x[0])
        x[0] = 99
        return before

    x = np.zeros(300_000)
    assert face.gather(face.map(lambda _, x: spoiled(x), range(6), x=x)) == [0] * 6


def test_an_array_is_sent_to_each_node_once_for_all_runs_and_cells(mesh):
    import computemesh as face

    taken = Counted(mesh.client)
    big = np.random.default_rng(0).random(2_500_000)
    for _ in range(2):
        totals = face.gather(face.map(lambda number, big: (number, big.sum()), range(8), big=big))
        assert {round(total, 3) for _, total in totals} == {round(big.sum(), 3)}
    assert mesh.shipped.sent == big.nbytes
    each = taken.bytes()
    assert max(each) < 1.2 * big.nbytes
    assert max(each) > 0.9 * big.nbytes, "and the counting counts"


class Counted:
    """Bytes that each worker process has read from its sockets since."""

    def __init__(self, client) -> None:
        self._client = client
        self._client.run(count_reads)
        self._before = self._client.run(bytes_read)

    def bytes(self):
        return [now - self._before[name] for name, now in self._client.run(bytes_read).items()]


def count_reads() -> None:
    import distributed.comm.tcp as tcp

    if hasattr(tcp, "_mesh_counted"):
        return
    tcp._mesh_counted = 0
    stock = tcp.TCP.read

    async def read(self, *args, **kwargs):
        stream = self.stream
        if stream is not None and not hasattr(stream, "_mesh_counts"):
            stream._mesh_counts = True
            stock_read = stream.read_from_fd

            def counted(buffer):
                size = stock_read(buffer)
                tcp._mesh_counted += size or 0
                return size

            stream.read_from_fd = counted
        return await stock(self, *args, **kwargs)

    tcp.TCP.read = read


def bytes_read() -> int:
    import distributed.comm.tcp as tcp

    return tcp._mesh_counted


def test_a_lost_content_is_sent_again(mesh):
    big = np.arange(300_000)
    packed = sent(mesh, {"big": big})
    packed.futures[0].result()
    mesh.client.cancel(packed.futures, force=True)
    again = sent(mesh, {"big": big})
    assert (arrived(again)["big"] == big).all()


def test_blobs_are_pickled_without_a_copy():
    content = bytearray(2_000_000)
    buffers = []
    data = pickle.dumps(Blob(content, True), protocol=5, buffer_callback=buffers.append)
    assert len(data) < 200
    assert len(buffers) == 1


def test_packing_and_hashing_copy_nothing_and_sending_once(mesh):
    """Dask sends later, so a copy is taken; its transport may hold another for a moment."""
    import tracemalloc

    big = np.zeros(5_000_000)
    shipment = Shipment(mesh)
    tracemalloc.start()
    packed = pack_names({"big"}, {"big": big}, LIMIT)
    digest_of(big)
    assert tracemalloc.get_traced_memory()[1] < 0.1 * big.nbytes
    assert len(shipment.shipped(packed).futures) == 1
    peak = tracemalloc.get_traced_memory()[1]
    again = shipment.shipped(packed)
    again.futures[0].result()
    tracemalloc.stop()
    assert peak < 2.2 * big.nbytes, peak / big.nbytes


def test_too_big_is_refused_by_name_before_it_is_pickled():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CannotShip, match=r"`big` is 2.* more than the 100.* that a cell may send.*--ship-limit"):
        pack_names({"big", "small"}, {"big": np.zeros(25_000_000), "small": 1}, 100_000_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
    with pytest.raises(CannotShip, match=r"`rows`.*--ship-limit"):
        pack_names({"rows", "small"}, {"rows": [str(n) for n in range(50_000)], "small": 1}, 200_000)


def test_what_cannot_be_pickled_is_named_with_what_to_do():
    import threading

    with pytest.raises(CannotShip, match=r"Cannot send `lock`, a _thread.lock.*Make it inside the mesh cell"):
        pack_names({"lock", "x"}, {"x": 1, "lock": threading.Lock()}, LIMIT)


def test_cells_send_a_large_variable_once_and_a_changed_one_anew(notebook, mesh):
    notebook.value("import numpy as np\nbig = np.arange(300_000)")
    assert notebook.value("%%mesh\nint(big[1])") == 1
    assert notebook.value("%%mesh for n in range(6)\nint(big[n])") == [0, 1, 2, 3, 4, 5]
    assert mesh.shipped.sent == 300_000 * 8
    notebook.value("big[0] = 9")
    assert notebook.value("%%mesh for n in range(2)\nbig[1] += n\nint(big[0])") == [9, 9]
    assert mesh.shipped.sent == 2 * 300_000 * 8
    assert mesh.shipped.size == 300_000 * 8, "what it held before is let go"


def test_a_cell_that_imports_a_module_beside_the_notebook_finds_it(notebook, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "beside_helper.py").write_text("ANSWER = 42\n")
    assert notebook.value("%%mesh\nfrom beside_helper import ANSWER\nANSWER") == 42


def test_a_cell_finds_uploaded_files(notebook, mesh, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text("1,2")
    notebook.value("import computemesh as face\nfiles = face.upload('x.csv')")
    assert notebook.value("%%mesh\nopen('x.csv').read()") == "1,2"
