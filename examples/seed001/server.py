"""Runs a broker on localhost:9999, with its data in ./storage/data: python server.py

QB_SERVER_HOST, QB_SERVER_PORT, QB_DATA_DIR and QB_LOG_LEVEL change that, and so does every setting of
`tailrace config show`. Ctrl-C stops it. Kafka clients are served beside, on port 9092.
"""

from __future__ import annotations

import os
import sys

from tailrace.model import TailraceError
from tailrace.server.configuration import read_config
from tailrace.server.run import run_server

DEFAULTS = {"QB_DATA_DIR": "./storage/data"}


def main() -> int:
    try:
        run_server(read_config(environment={**DEFAULTS, **os.environ}).server())
    except TailraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
