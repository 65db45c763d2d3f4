"""Configuration is Dask's, with our defaults under it."""

import dask.config
import pytest

from computemesh import config
from computemesh.errors import BadConfiguration


@pytest.fixture
def cleared():
    """Dask's configuration without any of ours, as some test suites leave it; put back afterwards."""
    before = dict(dask.config.config)
    config.value("driver.port")
    dask.config.config.clear()
    yield
    dask.config.config.clear()
    dask.config.config.update(before)


def test_defaults_count_in_a_configuration_that_was_cleared(cleared):
    assert config.number("driver.port") == 8790
    assert config.section("gates") == {"battery": 60, "temperature": 90}


def test_what_is_set_counts_over_the_rest_of_its_section(cleared):
    with dask.config.set({"computemesh.gates.battery": 20}):
        assert config.section("gates") == {"battery": 20, "temperature": 90}
        assert config.number("gates.battery") == 20


def test_a_value_of_another_kind_is_named():
    with (
        dask.config.set({"computemesh.driver.port": "many"}),
        pytest.raises(BadConfiguration, match="driver.port is 'many'"),
    ):
        config.number("driver.port")
