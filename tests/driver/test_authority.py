"""The driver's own certificates are made once, renewed in time, and never silently replaced."""

import datetime

import pytest

from computemesh.certificates import Role
from computemesh.driver.authority import open_authority, own_identity
from computemesh.driver.serving import Place, make_driver
from computemesh.errors import NotTrusted
from computemesh.identity import load_identity

NOW = datetime.datetime.now(datetime.UTC)


def test_the_ca_is_made_once(tmp_path):
    assert open_authority(tmp_path, NOW).pin == open_authority(tmp_path, NOW).pin


@pytest.mark.parametrize("lost", ["authority.key", "authority.crt"])
def test_half_a_ca_is_refused_and_not_replaced(tmp_path, lost):
    open_authority(tmp_path, NOW)
    (tmp_path / lost).unlink()
    with pytest.raises(NotTrusted, match="restore"):
        open_authority(tmp_path, NOW)
    assert not (tmp_path / lost).exists()


def test_a_foreign_key_is_refused(tmp_path):
    open_authority(tmp_path / "a", NOW)
    open_authority(tmp_path / "b", NOW)
    (tmp_path / "a" / "authority.key").write_bytes((tmp_path / "b" / "authority.key").read_bytes())
    with pytest.raises(NotTrusted, match="is not the key"):
        open_authority(tmp_path / "a", NOW)


def test_own_certificates_are_signed_anew_at_half_life_and_when_the_address_changes(tmp_path):
    authority = open_authority(tmp_path, NOW)

    def granted(address: str, now: datetime.datetime) -> bool:
        return own_identity(authority, tmp_path / "own", Role.DRIVER, "driver", address, ["h"], now)[1] is not None

    assert granted("a:1", NOW)
    assert not granted("a:1", NOW)
    assert granted("b:1", NOW)
    assert not granted("b:1", NOW + datetime.timedelta(days=100))
    assert granted("b:1", NOW + datetime.timedelta(days=200))


def test_a_driver_that_runs_for_months_renews_its_own_certificates(tmp_path):
    driver = make_driver(Place(tmp_path, "127.0.0.1", 8790, 8791), NOW)
    before = {name: (tmp_path / name / "own.crt").read_bytes() for name in ("driver", "admin")}
    assert driver.rights._renew_own(NOW, frozenset()) == []
    driver.rights.took_over(driver.rights._renew_own(NOW + datetime.timedelta(days=200), frozenset()))
    for name, old in before.items():
        assert (tmp_path / name / "own.crt").read_bytes() != old
        assert load_identity(tmp_path / name).driver == "127.0.0.1:8790"
    assert len([issued for issued in driver.books.certificates.values() if issued.name == "admin"]) == 2
