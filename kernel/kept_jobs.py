"""Jobs that stay on the mesh after their notebook has ended: records at the scheduler, beside the results they hold.

Dask's published data sets hold keys for nobody in particular. A job's whole record stands in the data set's name, as
JSON, so that listing jobs unpickles nothing that somebody else has written; the data set holds only the keys.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

PREFIX = "computemesh-job "


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """What the mesh remembers of a kept job. Times are seconds since the epoch, since several machines read them."""

    id: str
    user: str
    kind: str
    title: str
    count: int
    since: float
    until: float

    @property
    def dataset(self) -> str:
        """The name of its published data set."""
        return PREFIX + json.dumps(asdict(self), sort_keys=True)


def record_from(dataset: Any) -> KeptRecord | None:
    """Read the name of a published data set; None when it is none of ours."""
    if not isinstance(dataset, str) or not dataset.startswith(PREFIX):
        return None
    try:
        found = json.loads(dataset[len(PREFIX) :])
        return KeptRecord(
            str(found["id"]), str(found["user"]), str(found["kind"]), str(found["title"]), int(found["count"]),
            float(found["since"]), float(found["until"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError):
        return None


def split_expired(records: Sequence[KeptRecord], now: float) -> tuple[list[KeptRecord], list[KeptRecord]]:
    """Return the records that count, and those whose time is over."""
    live = [each for each in records if each.until > now]
    return live, [each for each in records if each.until <= now]


def put(client: Any, record: KeptRecord, keys: Sequence[Any]) -> None:
    """Hold `keys` under `record` until it is deleted."""

    async def asked() -> None:
        await client.scheduler.publish_put(
            names=[record.dataset],
            keys=[list(keys)],
            data=[None],
            override=True,
            client=client.id,
            uid=_flushed(client),
        )

    client.sync(asked)


def records(client: Any) -> list[KeptRecord]:
    """Return all kept jobs of the mesh, everybody's."""

    async def asked() -> Any:
        return await client.scheduler.publish_list()

    return [record for record in map(record_from, client.sync(asked)) if record is not None]


def keys_of(client: Any, record: KeptRecord) -> list[Any]:
    """Return the keys that `record` holds; none when it is gone."""
    from distributed.core import rpc

    async def asked() -> Any:
        # Not deserialised: what lies beside the keys may have been written by anybody.
        async with rpc(
            client.scheduler.address,
            deserialize=False,
            connection_args=client.connection_args,
        ) as scheduler:
            return await scheduler.publish_get(names=[record.dataset])

    found = client.sync(asked)[0]
    return [] if found is None else list(found["keys"])


def delete(client: Any, gone: Sequence[KeptRecord]) -> None:
    """Let these jobs' results go."""

    async def asked() -> None:
        await client.scheduler.publish_delete(
            names=[record.dataset for record in gone], client=client.id, uid=_flushed(client)
        )

    if gone:
        client.sync(asked)


def _flushed(client: Any) -> str:
    """Let the scheduler first read what this client has sent before; return the mark that it waits for."""
    uid = uuid.uuid4().hex
    client._send_to_scheduler({"op": "publish_flush_batched_send", "uid": uid})
    return uid
