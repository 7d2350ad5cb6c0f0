"""Lakes and a checkpoint that version 0.1 wrote: archives and a query of the present code go on from them.

They belong to the data directories of `tests/golden/data-0.1`, which are served by the present code too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.golden.account import row
from tests.golden.opening import DATA_0_1, VARIANTS, read_manifest, server_on, unpack
from tests.interop.server import ServerProcess
from tests.unit.spark.pipelines.archive_rig import table_rows

from tailrace.spark.link import close_links
from tailrace.spark.pipelines.archive import ArchiveConfig, archive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DEADLINE_S = 120


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(variant: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data_dir = unpack(DATA_0_1 / f"{variant}.tar.xz", tmp_path_factory.mktemp(variant))
    with server_on(data_dir) as running:
        yield running
        close_links()


@pytest.fixture
def records(variant: str) -> list[dict[str, Any]]:
    """Every record of `orders`: nothing of it was acknowledged by this subscription."""
    pending = read_manifest(DATA_0_1)[variant]["pending"]["reader"]
    return [{name: value for name, value in each.items() if name != "delivery"} for each in pending]


@pytest.mark.parametrize("name", ["lake", "delta"])
def test_an_archive_goes_on_from_the_lake_that_is_there(
    spark: SparkSession, server: ServerProcess, records: list[dict[str, Any]], name: str, tmp_path: Path
) -> None:
    lake = unpack(DATA_0_1 / f"{name}.tar.xz", tmp_path)
    ends = read_manifest(DATA_0_1)["lake"]
    archived = [each for each in records if each["offset"] < ends[str(each["partition"])]]
    assert _lake_records(lake) == archived
    config = ArchiveConfig(bootstrap=server.bootstrap, topic=("orders",), to=str(lake), once=True)
    done = archive(config, spark=spark)
    assert (done.rows, done.bad) == (len(records) - len(archived), ())
    assert done.rows > 0
    assert _lake_records(lake) == records


def _lake_records(lake: Path) -> list[dict[str, Any]]:
    return [
        row((each.topic, each.partition, each.offset), each.key, each.value, each.headers)
        for each in table_rows(lake)
    ]


def test_a_query_replays_the_batch_that_it_had_planned_and_goes_on(
    spark: SparkSession, server: ServerProcess, records: list[dict[str, Any]], tmp_path: Path
) -> None:
    checkpoint = unpack(DATA_0_1 / "checkpoint.tar.xz", tmp_path)
    before = read_manifest(DATA_0_1)["stream"]
    batches: dict[int, list[list[int]]] = {}

    def use(rows: DataFrame, number: int) -> None:
        found = rows.select("partition", "offset").collect()
        batches[number] = sorted([each.partition, each.offset] for each in found)

    options = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": "orders"}
    query = (
        spark.readStream.format("tailrace")
        .options(**options, startingOffsets="earliest", maxOffsetsPerTrigger="20")
        .load()
        .writeStream.foreachBatch(use)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(_DEADLINE_S)
    assert batches[min(batches)] == before["planned"]
    assert min(batches) == 2, "the two batches before it are done"
    read = sorted([*before["done"], *(place for batch in batches.values() for place in batch)])
    assert read == [[each["partition"], each["offset"]] for each in records]
