"""/api/v1/cluster/cuts: every file of one moment, held on this node's disk for a backup that copies it there.

The files do not go over HTTP: the program that asks runs on the same machine and reads the directory that the
answer names. A cut ends with its lease.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tailrace.broker.cuts import LEASE_S
from tailrace.http.error import Code, HttpError
from tailrace.http.operation import Call, NoBody, NoQuery, Operation
from tailrace.model.operation import Operation as AclOperation
from tailrace.storage.api import Cut


class CutView(msgspec.Struct, frozen=True):
    """A cut that is held."""

    cut: str  # its name, for the other calls
    path: str  # the directory with its files, on the machine of the node
    cluster_id: str
    version: str  # of the node
    lease_s: float  # then it ends, unless it is renewed
    spoiled: bool  # a truncation has changed files of it: begin again


# ---- handlers


async def create_cut(call: Call[NoQuery, NoBody]) -> CutView:
    cut = await call.access.cuts(AclOperation.ALTER).begin()
    return _view(call, cut)


async def renew_cut(call: Call[NoQuery, NoBody]) -> CutView:
    name = call.params["cut"]
    cut = call.access.cuts(AclOperation.ALTER).renew(name)
    if cut is None:
        raise HttpError(Code.INVALID_REQUEST, f"no cut {name!r} is held: its lease has ended", status=404)
    return _view(call, cut)


async def delete_cut(call: Call[NoQuery, NoBody]) -> None:
    await call.access.cuts(AclOperation.ALTER).release(call.params["cut"])


def _view(call: Call[NoQuery, NoBody], cut: Cut) -> CutView:
    return CutView(
        cut=cut.name,
        path=os.fspath(Path(cut.path).absolute()),
        cluster_id=call.access.cluster_id,
        version=call.service.facts.version,
        lease_s=LEASE_S,
        spoiled=cut.spoiled,
    )


_FAILS = (Code.AUTHORIZATION_FAILED,)

OPERATIONS = (
    Operation(
        method="POST",
        path="/api/v1/cluster/cuts",
        name="createCut",
        tag="cluster",
        summary="Hold every file of this moment for a backup",
        doc="The answer names a directory on the machine of the node with everything that was acknowledged "
        "before the call: logs, metadata. Copy it, renew the cut meanwhile, then delete it, as `tailrace "
        "backup` does.",
        handler=create_cut,
        answer=CutView,
        status=201,
        fails=(*_FAILS, Code.BROKER_NOT_AVAILABLE),
    ),
    Operation(
        method="PUT",
        path="/api/v1/cluster/cuts/{cut}",
        name="renewCut",
        tag="cluster",
        summary="Hold a cut for another lease",
        doc="404 if its lease has ended.",
        handler=renew_cut,
        answer=CutView,
        fails=_FAILS,
    ),
    Operation(
        method="DELETE",
        path="/api/v1/cluster/cuts/{cut}",
        name="deleteCut",
        tag="cluster",
        summary="Let go of a cut",
        doc="One that has ended is no error.",
        handler=delete_cut,
        answer=None,
        status=204,
        fails=_FAILS,
    ),
)
