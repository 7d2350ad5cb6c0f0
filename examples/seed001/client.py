"""The native client: `from client import BrokerClient` in a program, and five words for the command line.

    python client.py create-topic events --partitions 1
    python client.py create-subscription my-group events --offset 0
    python client.py publish events "Hello World"
    python client.py join-subscription my-group
    python client.py subscribe events --offset 0

`tailrace` has the same words, and more. --node, or TAILRACE_NODE, says where the broker is: localhost:9999.
"""

from __future__ import annotations

import sys

from tailrace.cli.main import ALIASES, build_root, run
from tailrace.client import BrokerClient

__all__ = ["BrokerClient"]

WORDS = ("create-topic", "create-subscription", "publish", "join-subscription", "subscribe")


def main() -> int:
    return run(build_root({word: ALIASES[word] for word in WORDS}), program="client.py")


if __name__ == "__main__":
    sys.exit(main())
