"""What the benchmark runs in a process of its own: `python -m tailrace.bench.spark.child ROLE ...`.

codec SECONDS                                       measure the twin that this process uses
cold FORMAT BOOTSTRAP TOPIC MASTER RECORDS SPARK    read a topic in a session that has just started
memory BOOTSTRAP MASTER TOPIC...                    archive topics, and say what the workers held

All print JSON in their last line.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from tailrace.bench.spark.codec import measure_codec
from tailrace.bench.spark.cold import ColdRead, read_cold
from tailrace.bench.spark.holding import archive_all


def main(role: str, *args: str) -> None:
    if role == "codec":
        print(json.dumps(measure_codec(seconds=float(args[0])).as_row()))
        return
    if role == "memory":
        bootstrap, master, *topics = args
        print(json.dumps([asdict(peak) for peak in archive_all(bootstrap, topics, master=master)]))
        return
    form, bootstrap, topic, master, records, connector_for = args
    read = ColdRead(
        form=form,
        bootstrap=bootstrap,
        topic=topic,
        master=master,
        records=int(records),
        connector_for=connector_for,
    )
    print(json.dumps(asdict(read_cold(read))))


if __name__ == "__main__":
    main(*sys.argv[1:])
