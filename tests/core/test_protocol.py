"""What is told of nodes: all of it once, then only what is different."""

from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st

from computemesh.node import Harvest, Network, Node, NodeFacts, Sample
from computemesh.protocol import (
    NodesChanged,
    NodeState,
    ToChild,
    decode,
    encode,
    nodes_after,
    nodes_changed,
    with_measures_later,
)


@st.composite
def meshes(draw: st.DrawFn) -> dict[str, Node]:
    names = draw(st.sets(st.sampled_from("abcdef")))
    return {name: draw(nodes(name)) for name in names}


def nodes(name: str) -> st.SearchStrategy[Node]:
    return st.builds(
        Node,
        facts=st.builds(NodeFacts, name=st.just(name), cores=st.sampled_from([1.0, 8.0])),
        sample=st.none() | st.builds(Sample, time=st.sampled_from([0.0, 1.0]), cpu=st.sampled_from([0.0, 50.0])),
        harvest=st.sampled_from(Harvest),
        cordoned=st.booleans(),
        network=st.builds(Network, round_trip=st.sampled_from([0.0, 0.01])),
        worker=st.sampled_from(["", "tls://10.0.0.1:1"]),
    )


@given(meshes(), meshes())
def test_what_is_different_leads_from_what_was_to_what_is(before, now):
    change = decode(encode(nodes_changed(before, now.values())), ToChild)
    after = {node.name: node for node in nodes_after(before, change)}
    kept = {name: node for name, node in before.items() if name not in change.gone}
    assert {**kept, **after} == now


@given(meshes())
def test_nothing_is_said_when_nothing_is_different(mesh):
    assert not nodes_changed(mesh, list(mesh.values()))


def test_facts_are_told_again_only_when_they_are_different():
    packages = {f"package-{number}": "1.0" for number in range(300)}
    was = Node(facts=NodeFacts("desk", packages=packages), sample=Sample(time=1))
    moved = Node(facts=NodeFacts("desk", packages=dict(packages)), sample=Sample(time=2))
    said = encode(nodes_changed({"desk": was}, [moved]))
    assert b"package-1" not in said
    assert len(said) < 600


def test_a_state_of_an_unknown_node_says_nothing():
    assert nodes_after({}, NodesChanged(states={"desk": NodeState()})) == []


def test_a_state_is_all_of_a_node_but_its_facts():
    assert {*NodeState.__struct_fields__} == {each.name for each in fields(Node)} - {"facts"}


def test_what_was_merely_measured_can_wait_and_all_else_cannot():
    before = {name: Node(NodeFacts(name), Sample(1.0, cpu=5.0)) for name in ("calm", "paused", "stronger")}
    now = [
        replace(before["calm"], sample=Sample(2.0, cpu=9.0), network=Network(0.1, 1e9), harvest_reason="Lent"),
        replace(before["paused"], sample=Sample(2.0), harvest=Harvest.SUSPENDED),
        replace(before["stronger"], sample=Sample(2.0), facts=NodeFacts("stronger", cores=8)),
        Node(NodeFacts("new")),
    ]
    assert with_measures_later(before, now) == [before["calm"], *now[1:]]
