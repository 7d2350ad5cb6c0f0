"""The cut of a running broker, asked for over its HTTP listener and held while it is copied.

The listener is found by the ports file of the data directory, or named with `--http`. A thread renews the
lease; `check` raises once the broker does not hold the cut any more.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.rest import call, message_of

CUTS = "/api/v1/cluster/cuts"
_BEGIN_S = 330.0  # the broker gives up on making a cut a little earlier
_CALL_S = 30.0


class HeldCut:
    """`with HeldCut("127.0.0.1:8080") as cut: ...` copies `cut.path`, and calls `cut.check()` at times."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._failure: str | None = None
        self._stopping = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="cut-lease", daemon=True)
        self._name = ""
        self._lease_s = 0.0
        self.path = Path()
        self.cluster_id = ""

    def __enter__(self) -> HeldCut:
        status, answer = self._call("POST", CUTS, timeout_s=_BEGIN_S)
        if status != 201:
            raise _refused(self._address, status, answer)
        self._name, self._lease_s = answer["cut"], answer["lease_s"]
        self.path, self.cluster_id = Path(answer["path"]), answer["cluster_id"]
        if not self.path.is_dir():
            self._release()
            raise CommandFailed(
                f"the broker at {self._address} holds its files in {self.path}, which is not there on this "
                "machine, or not readable. Run the backup on the broker's machine, as a user who may read it",
                exit_code=ExitCode.NOT_FOUND,
            )
        self._renewing.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._renewing.join(timeout=_CALL_S)
        self._release()

    def check(self) -> None:
        """CommandFailed once the files of the cut may not be there any more."""
        if self._failure is not None:
            raise CommandFailed(f"{self._failure}. Run it again: what was copied is kept")

    def confirm(self) -> None:
        """The same, as the broker says now."""
        self._failure = self._failure or self._ask()
        self.check()

    # ---- inside

    def _renew(self) -> None:
        while self._failure is None and not self._stopping.wait(self._lease_s / 6):
            self._failure = self._ask()

    def _ask(self) -> str | None:
        """Renew the lease; returns why the files may not be what they were."""
        try:
            status, answer = self._call("PUT", f"{CUTS}/{self._name}", timeout_s=self._lease_s / 2)
        except CommandFailed as error:
            return f"the broker is gone: {error}"
        if status != 200:
            return f"the broker does not hold the files any more ({message_of(answer, status)})"
        return "a partition was truncated while it was copied" if answer["spoiled"] else None

    def _release(self) -> None:
        with suppress(CommandFailed):  # the lease ends by itself
            self._call("DELETE", f"{CUTS}/{self._name}", timeout_s=_CALL_S)

    def _call(self, method: str, path: str, *, timeout_s: float) -> tuple[int, Any]:
        return call(self._address, method, path, timeout_s=timeout_s)


def _refused(address: str, status: int, answer: Any) -> CommandFailed:
    code = ExitCode.AUTH if status in (401, 403) else ExitCode.ERROR
    if status == 404:
        return CommandFailed(
            f"the broker at {address} cannot be backed up while it runs: it is an older version"
        )
    return CommandFailed(message_of(answer, status), exit_code=code)
