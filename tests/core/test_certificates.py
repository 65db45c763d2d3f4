"""Certificates say who somebody is, connections check it, and renewals need no restart."""

import asyncio
import datetime
import socket
import ssl
import threading
import time

import pytest

from computemesh.certificates import Role, certificate_pem, key_pem, new_authority, new_key, new_request, peer_of, sign
from computemesh.errors import NoMesh, NotTrusted
from computemesh.identity import Identity, find_identity, load_identity, save_identity

NOW = datetime.datetime.now(datetime.UTC)
WEEK = datetime.timedelta(days=7)


@pytest.fixture(scope="module")
def authority():
    return new_authority(NOW)


def issue(authority, folder, role, name, now=NOW, lifetime=WEEK):
    key = new_key()
    certificate = sign(authority, new_request(key, "whatever it claims"), role, name, ["127.0.0.1"], now, lifetime)
    identity = Identity(folder / name, role, name, "127.0.0.1:8790")
    save_identity(identity, certificate_pem(authority[1]), certificate_pem(certificate), key_pem(key))
    return identity


def handshake(server_context, client_context):
    """Return the server's view of the client after one handshake over a real socket."""
    listener = socket.create_server(("127.0.0.1", 0))
    seen = []

    def serve():
        plain, _ = listener.accept()
        try:
            with server_context.wrap_socket(plain, server_side=True) as secured:
                seen.append(peer_of(secured.getpeercert()))
                secured.sendall(b"x")
        except (ssl.SSLError, ConnectionError) as error:
            seen.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with socket.create_connection(listener.getsockname()) as plain, client_context.wrap_socket(plain) as secured:
            secured.recv(1)
    finally:
        thread.join(10)
        listener.close()
    return seen[0]


def test_the_ca_decides_role_and_name_whatever_the_request_claims(authority, tmp_path):
    driver = issue(authority, tmp_path, Role.DRIVER, "driver")
    node = issue(authority, tmp_path, Role.NODE, "laptop-7")
    seen = handshake(driver.server_context(), node.client_context((Role.DRIVER,)))
    assert (seen.role, seen.name) == (Role.NODE, "laptop-7")


def test_a_node_cannot_pass_for_the_driver(authority, tmp_path):
    impostor = issue(authority, tmp_path, Role.NODE, "impostor")
    user = issue(authority, tmp_path, Role.USER, "alice")
    with pytest.raises(ssl.SSLCertVerificationError, match="a node named impostor"):
        handshake(impostor.server_context(), user.client_context((Role.DRIVER,)))


async def test_a_user_cannot_pass_for_a_node_to_asyncio_either(authority, tmp_path):
    context = issue(authority, tmp_path, Role.DRIVER, "driver").client_context((Role.NODE,))

    async def reach(identity):
        server = await asyncio.start_server(
            lambda _, writer: writer.close(), "127.0.0.1", ssl=identity.server_context()
        )
        async with server:
            where = server.sockets[0].getsockname()
            _, writer = await asyncio.open_connection(*where, ssl=context, server_hostname="")
            writer.close()

    await reach(issue(authority, tmp_path, Role.NODE, "n"))
    with pytest.raises(ssl.SSLCertVerificationError, match="a user named alice"):
        await reach(issue(authority, tmp_path, Role.USER, "alice"))


def test_another_meshs_certificate_is_turned_away(authority, tmp_path):
    driver = issue(authority, tmp_path, Role.DRIVER, "driver")
    stranger = issue(new_authority(NOW), tmp_path, Role.USER, "stranger")
    with pytest.raises(ssl.SSLError):
        handshake(driver.server_context(), stranger.client_context((Role.DRIVER,)))


def test_no_certificate_is_turned_away(authority, tmp_path):
    driver = issue(authority, tmp_path, Role.DRIVER, "driver")
    bare = ssl.create_default_context(cafile=driver.authority)
    bare.check_hostname = False
    with pytest.raises((ssl.SSLError, ConnectionError)):
        handshake(driver.server_context(), bare)


def test_an_expired_certificate_is_turned_away(authority, tmp_path):
    driver = issue(authority, tmp_path, Role.DRIVER, "driver")
    old = issue(authority, tmp_path, Role.USER, "old", NOW - 2 * WEEK, WEEK)
    with pytest.raises(ssl.SSLError):
        handshake(driver.server_context(), old.client_context((Role.DRIVER,)))


def test_a_live_context_picks_up_a_renewed_certificate(authority, tmp_path):
    driver = issue(authority, tmp_path, Role.DRIVER, "driver")
    node = issue(authority, tmp_path, Role.NODE, "n")
    context = node.client_context((Role.DRIVER,))
    before = handshake(driver.server_context(), context)
    time.sleep(0.01)  # the file system's clock must move on
    issue(authority, tmp_path, Role.NODE, "n")
    assert handshake(driver.server_context(), context).serial != before.serial


def test_half_written_files_leave_the_old_certificate_in_use(authority, tmp_path):
    driver = issue(authority, tmp_path, Role.DRIVER, "driver")
    node = issue(authority, tmp_path, Role.NODE, "n")
    context = node.client_context((Role.DRIVER,))
    before = handshake(driver.server_context(), context)
    node.certificate.write_bytes(b"half a certif")
    assert handshake(driver.server_context(), context).serial == before.serial


def test_a_request_that_is_none_is_refused(authority):
    with pytest.raises(NotTrusted, match="signing request"):
        sign(authority, b"nonsense", Role.NODE, "n", [], NOW, WEEK)


def test_files_are_private_and_a_renewal_is_due_at_half_life(authority, tmp_path):
    identity = issue(authority, tmp_path, Role.USER, "alice")
    for file in identity.folder.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600, file
    half = NOW.timestamp() + WEEK.total_seconds() / 2
    assert not identity.renewal_due(half - 3600)
    assert identity.renewal_due(half + 3600)
    assert load_identity(identity.folder) == identity


def test_without_a_mesh_the_way_to_one_is_said(tmp_path):
    with pytest.raises(NoMesh, match="mesh login"):
        find_identity(tmp_path)
