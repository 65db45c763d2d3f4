"""Each role may say only what it needs."""

import pytest

from computemesh.certificates import Role
from computemesh.guard import may_open, may_stream


@pytest.mark.parametrize(
    ("side", "role", "op", "allowed"),
    [
        ("scheduler", Role.NODE, "register-worker", True),
        ("scheduler", Role.NODE, "heartbeat_worker", True),
        ("scheduler", Role.NODE, "register-client", False),
        ("scheduler", Role.NODE, "run_function", False),
        ("scheduler", Role.NODE, "update_graph", False),
        ("scheduler", Role.NODE, "mesh_capsule_signal", False),
        ("scheduler", Role.USER, "register-client", True),
        ("scheduler", Role.USER, "mesh_capsule_signal", True),
        ("scheduler", Role.USER, "gather", True),
        ("scheduler", Role.USER, "run_function", False),
        ("scheduler", Role.USER, "register_scheduler_plugin", False),
        ("scheduler", Role.USER, "register-worker", False),
        ("scheduler", Role.USER, "retire_workers", False),
        ("scheduler", Role.ADMIN, "run_function", True),
        ("scheduler", Role.ADMIN, "register-worker", False),
        ("scheduler", Role.DRIVER, "anything", True),
        ("worker", Role.NODE, "get_data", True),
        ("worker", Role.NODE, "run", False),
        ("worker", Role.NODE, "update_data", False),
        ("worker", Role.USER, "run", False),
        ("worker", Role.USER, "terminate", False),
        ("worker", Role.DRIVER, "run", True),
        ("scheduler", Role.NODE, None, False),
        ("worker", Role.USER, None, False),
    ],
)
def test_who_may_say_what(side, role, op, allowed):
    assert may_open(side, role, op) is allowed


@pytest.mark.parametrize("op", ["update-graph", "client-desires-keys", "cancel-keys", "subscribe-topic", "unheard-of"])
def test_a_node_streams_nothing_of_a_clients(op):
    assert not may_stream("scheduler", Role.NODE, op)
    assert not may_open("scheduler", Role.NODE, "connection_stream")


@pytest.mark.parametrize("role", [Role.USER, Role.ADMIN])
@pytest.mark.parametrize("op", ["task-finished", "task-erred", "add-keys", "steal-response", "worker-status-change"])
def test_a_person_streams_nothing_of_a_workers(role, op):
    assert not may_stream("scheduler", role, op)
    assert may_stream("scheduler", role, "update-graph")
    assert may_stream("scheduler", Role.NODE, op)
