"""A rule of authorization that starts refusing, for tests of what lasts longer than a request."""

from __future__ import annotations

from tailrace.model.operation import Operation, Resource
from tailrace.model.session import Session


class Revocable:
    """Allows everything until `revoked` is set; then nothing may be read."""

    def __init__(self) -> None:
        self.revoked = False
        self.asked = 0

    def __call__(self, session: Session, operation: Operation, resource: Resource) -> bool:
        self.asked += 1
        return not (self.revoked and operation is Operation.READ)
