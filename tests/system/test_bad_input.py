"""Whatever is wrong gets one clear message, and nothing is lost."""

from __future__ import annotations

import os
import pickle
import socket
import ssl
from pathlib import Path

import pytest

from computemesh.certificates import Role
from computemesh.driver_client import DriverClient, enrol, host_and_port
from computemesh.errors import DriverError, DriverUnreachable, NotTrusted, Refused
from computemesh.identity import load_identity

from .conftest import House, free_ports, mesh, new_house, until


class WritesAFile:
    """Unpickling it would prove that a pickle was read."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return (Path.write_text, (self.file, "read"))


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    house = new_house(tmp_path_factory.mktemp("bad"))
    try:
        house.up()
        yield house
    finally:
        house.close()


def plain_error(done) -> str:
    """Return the message of a command that failed as it should: status 1, one message, no traceback."""
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("Error: ")
    return done.stderr


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda made: {**made, "token": "abcdef.nonsense"}, "not known"),
        (lambda made: {**made, "token": made["token"][:-3]}, "not known"),
        (lambda made: {**made, "ca": "sha256:" + "0" * 64}, "not the one in the join command"),
        (lambda made: {**made, "ca": "sha256:short"}, "not usable"),
    ],
)
def test_wrong_tokens_and_cas_are_refused(up: House, tmp_path, spoil, says):
    made = spoil(up.token("user", name="eve"))
    done = mesh("login", up.address, "--token", made["token"], "--ca", made["ca"], "--home", str(tmp_path))
    assert says in plain_error(done)
    assert not (tmp_path / "user").exists()


def test_a_token_is_used_once_and_revoked_ones_and_expired_ones_are_worthless(up: House, tmp_path):
    made = up.token("user", name="alice")
    enrol(up.address, made["ca"], made["token"], tmp_path / "first")
    with pytest.raises(Refused, match="used already"):
        enrol(up.address, made["ca"], made["token"], tmp_path / "second")
    revoked = up.token("user", name="bob")
    assert mesh("token", "revoke", revoked["identifier"], "--home", str(up.home)).returncode == 0
    with pytest.raises(Refused, match="not known"):
        enrol(up.address, made["ca"], revoked["token"], tmp_path / "third")
    brief = up.token("user", name="carol", expires="1 ms")
    with pytest.raises(Refused, match="expired"):
        enrol(up.address, made["ca"], brief["token"], tmp_path / "fourth")
    elsewhere = up.token("user", name="dave", **{"from": "10.9.0.0/16"})
    with pytest.raises(Refused, match="may not be used from 127.0.0.1"):
        enrol(up.address, made["ca"], elsewhere["token"], tmp_path / "fifth")


def test_a_guesser_is_slowed_down(tmp_path):
    house = new_house(tmp_path)
    try:
        house.up(DASK_COMPUTEMESH__DRIVER__ENROL_PER_MINUTE="3")
        pin = house.client.status().mesh
        statuses = []
        for _ in range(5):
            with pytest.raises(Refused) as refused:
                enrol(house.address, pin, "abcdef.guess", tmp_path / "x")
            statuses.append(refused.value.status)
        assert statuses == [403, 403, 403, 429, 429]
    finally:
        house.close()


def test_another_version_or_clock_is_named(up: House, tmp_path, monkeypatch):
    import computemesh.driver_client as client_module

    made = up.token("user", name="old")
    ours = client_module.own_versions()
    monkeypatch.setattr(client_module, "own_versions", lambda: type(ours)("0.0.9", ours.distributed, ours.python))
    with pytest.raises(Refused, match=rf"0\.0\.9 there and {ours.computemesh} at the driver"):
        enrol(up.address, made["ca"], made["token"], tmp_path / "a")
    monkeypatch.setattr(client_module, "own_versions", lambda: type(ours)(ours.computemesh, ours.distributed, "3.8"))
    with pytest.raises(Refused, match=rf"Python 3\.8 there and {ours.python} at the driver"):
        enrol(up.address, made["ca"], made["token"], tmp_path / "a")
    monkeypatch.undo()
    real = client_module.time.time
    monkeypatch.setattr(client_module.time, "time", lambda: real() - 7200)
    with pytest.raises(Refused, match=r"7200 s behind"):
        enrol(up.address, made["ca"], made["token"], tmp_path / "a")
    monkeypatch.undo()
    # None of the refusals has used the token up.
    assert enrol(up.address, made["ca"], made["token"], tmp_path / "a").name == "old"


def test_a_busy_port_and_a_second_driver_are_named(up: House, tmp_path):
    ports = ("--port", str(up.port), "--scheduler-port", str(free_ports(1)[0]))
    done = mesh("up", "--home", str(tmp_path), "--host", "127.0.0.1", *ports)
    assert f"Port {up.port} for the driver is in use" in plain_error(done)
    fresh, more = free_ports(2)
    done = mesh(
        "up", "--home", str(up.home), "--host", "127.0.0.1", "--port", str(fresh), "--scheduler-port", str(more)
    )
    assert "Another driver (process" in plain_error(done)


def test_a_driver_that_is_not_there_is_named_with_its_address(up: House, tmp_path):
    (port,) = free_ports(1)
    made = up.token()
    done = mesh("join", f"127.0.0.1:{port}", "--token", made["token"], "--ca", made["ca"], "--home", str(tmp_path))
    assert f"127.0.0.1:{port}" in plain_error(done)
    done = mesh("nodes", "--home", str(tmp_path / "nowhere"))
    assert "mesh login" in plain_error(done)
    with pytest.raises(DriverError, match="no address"):
        host_and_port("host:port")


def test_what_is_no_driver_is_named(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        import threading

        def hang_up():
            connection, _ = server.accept()
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises((DriverUnreachable, NotTrusted), match=address):
            enrol(address, "sha256:" + "0" * 64, "a.b", tmp_path / "x")
        thread.join()


@pytest.mark.parametrize("port", ["port", "scheduler_port", "worker"])
def test_garbage_and_strangers_reach_nothing_that_unpickles(up: House, tmp_path, port):
    """On every port: bytes without TLS, TLS without a certificate, and a pickle that would write a file."""
    evidence = tmp_path / "evidence"
    attack = pickle.dumps(WritesAFile(evidence))
    if port == "worker":
        up.join("target")
        up.lending("target")
        where = ("127.0.0.1", int(up.node("target")["worker"].rpartition(":")[2]))
    else:
        where = ("127.0.0.1", getattr(up, port))
    for content in (b"\x00" * 64, b"GET / HTTP/1.0\r\n\r\n", attack, len(attack).to_bytes(8, "little") + attack):
        with socket.create_connection(where) as plain:
            plain.settimeout(10)
            try:
                plain.sendall(content)
                plain.shutdown(socket.SHUT_WR)
                while plain.recv(4096):
                    pass
            except OSError:
                pass
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(where) as plain:
        plain.settimeout(10)
        try:
            with stranger.wrap_socket(plain) as secured:
                secured.sendall(attack)
                while secured.recv(4096):
                    pass
        except OSError:
            pass
    assert not evidence.exists()
    assert up.client.status().scheduler


def test_a_nodes_certificate_cannot_be_used_as_a_client(up: House, tmp_path):
    """Neither at the driver, nor at the scheduler; and a pickle that it sends is not read."""
    from distributed import Client

    from computemesh.dask_security import MeshSecurity

    made = up.token("node")
    node = enrol(up.address, made["ca"], made["token"], tmp_path / "node", "spy")
    with pytest.raises(Refused, match="node certificate may not"):
        DriverClient(node).nodes()
    with pytest.raises(Refused, match="node certificate may not"):
        DriverClient(node).post("/v1/tokens", {"role": "admin", "lifetime": 60})
    scheduler = up.client.status().scheduler
    with pytest.raises((OSError, TimeoutError)):
        Client(scheduler, security=MeshSecurity(node), timeout=5)
    until(
        lambda: any("register-client" in event["text"] for event in up.events("refused-operation")),
        "the refusal in the journal",
    )


async def test_a_pickle_from_a_node_is_not_read(up: House, tmp_path):
    from distributed.comm import connect
    from distributed.protocol import to_serialize
    from distributed.protocol.serialize import ToPickle

    from computemesh.dask_security import MeshSecurity

    evidence = tmp_path / "evidence"
    made = up.token("node")
    node = enrol(up.address, made["ca"], made["token"], tmp_path / "node", "liar")
    security = MeshSecurity(node)
    for wrapped in (ToPickle(WritesAFile(evidence)), to_serialize(WritesAFile(evidence))):
        comm = await connect(up.client.status().scheduler, **security.get_connection_args("worker"))
        try:
            await comm.write({"op": "heartbeat_worker", "address": wrapped, "reply": True})
            await comm.read()
        except OSError:
            pass
        finally:
            comm.abort()
    assert not evidence.exists()


def test_a_revoked_user_is_out_at_once(up: House, tmp_path):
    from distributed import Client

    from computemesh.dask_security import MeshSecurity

    made = up.token("user", name="mallory")
    mallory = enrol(up.address, made["ca"], made["token"], tmp_path / "user")
    scheduler = up.client.status().scheduler
    with Client(scheduler, security=MeshSecurity(mallory), timeout=20) as client:
        assert client.scheduler_info()["address"]
        assert mesh("revoke", "mallory", "--home", str(up.home)).returncode == 0
        until(lambda: client.status != "running", "the cut of the open connection")
    with pytest.raises((NotTrusted, DriverError)):
        DriverClient(mallory).nodes()
    with pytest.raises((OSError, TimeoutError)):
        Client(scheduler, security=MeshSecurity(mallory), timeout=3)


def test_a_user_may_not_run_code_in_the_scheduler(up: House, tmp_path):
    from distributed import Client

    from computemesh.dask_security import MeshSecurity

    made = up.token("user", name="curious")
    curious = enrol(up.address, made["ca"], made["token"], tmp_path / "user")
    assert curious.role is Role.USER
    scheduler = up.client.status().scheduler
    with Client(scheduler, security=MeshSecurity(curious), timeout=20) as client, pytest.raises(OSError):
        client.run_on_scheduler(os.getpid)
    with Client(scheduler, security=MeshSecurity(load_identity(up.home / "admin")), timeout=20) as client:
        assert client.run_on_scheduler(os.getpid) > 0


def test_nothing_listens_but_the_ports_that_speak_tls(up: House, tmp_path):
    """Driver and scheduler one port each, a node's worker one; no plain HTTP beside them."""
    import psutil

    up.join("quiet")
    up.lending("quiet")
    found = {}
    for name in ("driver", "quiet"):
        process = psutil.Process(up.processes[name].pid)
        for one in (process, *process.children(recursive=True)):
            for connection in one.net_connections("inet"):
                if connection.status == psutil.CONN_LISTEN:
                    found[connection.laddr.port] = name
    worker_port = int(up.node("quiet")["worker"].rpartition(":")[2])
    assert found == {up.port: "driver", up.scheduler_port: "driver", worker_port: "quiet"}
    for port in found:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as secured:
            assert secured.version() == "TLSv1.3"


def test_no_file_of_the_driver_is_readable_by_others(up: House):
    for file in (up.home / "driver").rglob("*"):
        if file.name != "lock":
            assert file.stat().st_mode & 0o077 == 0, file


def test_notebooks_that_renew_one_identity_at_the_same_moment_do_not_spoil_it(up: House, tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    from computemesh.driver_client import renew

    made = up.token("user", name="dana")
    dana = enrol(up.address, made["ca"], made["token"], tmp_path / "user")
    first = dana.certificate.read_bytes()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: renew(dana), range(8)))
    assert dana.certificate.read_bytes() != first
    assert DriverClient(dana).nodes() is not None
    issued = [event for event in up.events("certificate-issued") if "user dana" in event["text"]]
    assert 2 <= len(issued) < 9


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"computemesh": "0.0.9"}, "computemesh is 0.0.9 there"),
        ({"python": "3.8"}, "Python 3.8 there"),
        ({"name": "somebody-else"}, "may not speak for somebody-else"),
    ],
)
async def test_an_agent_of_another_version_or_name_is_turned_away_with_the_reason(up: House, tmp_path, changes, says):
    from tornado.httpclient import HTTPRequest
    from tornado.websocket import websocket_connect

    from computemesh.driver_client import own_versions
    from computemesh.node import NodeFacts
    from computemesh.protocol import VERSION, Hello, encode

    made = up.token("node")
    name = "old-" + made["identifier"]
    node = enrol(up.address, made["ca"], made["token"], tmp_path / "node", name)
    ours = own_versions()
    facts = {
        "name": name,
        "computemesh": ours.computemesh,
        "distributed": ours.distributed,
        "python": ours.python,
        **changes,
    }
    request = HTTPRequest(f"wss://{up.address}/v1/agent", ssl_options=node.client_context((Role.DRIVER,)))
    socket_ = await websocket_connect(request)
    await socket_.write_message(encode(Hello(version=VERSION, incarnation=1, facts=NodeFacts(**facts))))
    assert await socket_.read_message() is None
    assert says in socket_.close_reason
