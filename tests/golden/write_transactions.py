"""Writes a golden directory of transactions and users.

    python -m tests.golden.write_transactions tests/golden/data-<version>

`write_data` tells of everything else. This story, too, goes through the public surface:

    1. users are made before the first start and after it; topics are filled in transactions that commit and
       abort, by clients of two authors, the native client and REST; a restart lets compaction work
    2. three transactions stay open: of an ordinary producer, of one that is gone, and with two-phase commit
       -> the server is stopped:      stopped.tar.xz
    3. a copy of it goes on: the one with two-phase commit commits, others are opened, a password changes
       -> the server is killed:       killed.tar.xz

The last commit before the kill is in the journal and in no segment. manifest.json tells what must be served:
offsets and checksums were observed, values and the fates of transactions come from the writer's own ledger.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition as Position
from tests.golden import wire
from tests.golden.ledger import Ledger
from tests.golden.observation import observe_partition
from tests.golden.opening import (
    BROKER_SETTINGS,
    VARIANTS,
    get,
    listeners_with_login,
    post,
    server_on,
    unpack,
    verify,
)
from tests.golden.story import Story, place_of
from tests.golden.transacting import (
    TIMEOUT_MS,
    Named,
    end,
    formats_of,
    observe_all,
    opened_of,
    prepare,
    salt_of,
    without_age,
    without_checksums,
)
from tests.golden.write_data import CENTURY_MS, START_MS, WORKPLACE, laid_out, pack, written_by
from tests.interop.deadline import wait_until
from tests.interop.raw import connect
from tests.interop.server import ServerProcess
from tests.interop.test_transactions import Confluent

from tailrace.model import TopicPartition
from tailrace.spark.transacting import Opened
from tailrace.testing.port import free_port

STRANGER = "nobody-at-all"
_KILLS_MAX = 20
_HELD = "balances bad"


class TransactionStory(Story):
    """A story with a ledger of transactions and a list of logins: user, password, whether it is let in."""

    def __init__(
        self, place: Path, *, account: Any = None, ledger: Ledger | None = None, logins: Any = None
    ) -> None:
        super().__init__(place, account=account)
        eager = {**BROKER_SETTINGS, "retention.check.interval.ms": 200}  # so that compaction gets to work
        self.login_port = free_port()
        self.listeners = listeners_with_login(self.login_port)
        self.server = ServerProcess(place / "data", listeners=self.listeners, broker=eager)
        self.ledger = ledger or Ledger(fates={"": "committed"})
        self.logins: dict[tuple[str, str], bool] = logins or {}
        self.open: list[dict[str, Any]] = []
        self.ended: list[dict[str, Any]] = []

    def named(self, name: str) -> Named:
        return Named(self.server.bootstrap, self.ledger, name)

    def user(self, *words: str, password: str = "", running: bool = True) -> None:
        where = (
            ("--http", f"127.0.0.1:{self.server.ports['http']}")
            if running
            else ("--data-dir", str(self.server.data_dir))
        )
        command = [sys.executable, "-m", "tailrace", "user", *words, *where]
        subprocess.run(command, check=True, input=password.encode(), stdout=subprocess.DEVNULL)
        name = words[1]
        for login in self.logins:
            if login[0] == name:
                self.logins[login] = False  # an older password, or a user that is disabled or gone
        if password:
            self.logins[name, password] = True


# ---- 1. what has ended


def make_users(story: TransactionStory) -> None:
    story.user("create", "alice,=é", password="open sesame, 42=Ω", running=False)
    story.user("create", "bob", password="bobs first own word", running=False)
    with story.server:
        story.user("passwd", "bob", password="bobs second own word")
        story.user("create", "carol", password="carols own word")
        story.user("disable", "carol")
        story.user("create", "dave", password="daves own word")
        story.user("delete", "dave", "--yes")


def pay(story: TransactionStory) -> None:
    """Two partitions of several segments, by librdkafka: commits and aborts, with positions of a group."""
    story.create("orders", 1)
    story.produce_raw("orders", 0, [b"order %d" % number for number in range(20)], at_ms=START_MS)
    story.create("payments", 2, segment_bytes="400")
    producer = Confluent(
        story.server.bootstrap, "till", **{"transaction.timeout.ms": TIMEOUT_MS, "linger.ms": 100}
    )
    for number, ends in enumerate(["commit", "abort", "commit", "abort", "abort", "commit"]):
        transaction = f"till/{number}"
        producer.begin()
        for partition in range(2):
            values = [b"payment %d.%d %s" % (number, each, ends.encode()) for each in range(3)]
            for value in values:
                producer.send("payments", value, partition=partition)
            story.ledger.wrote("payments", partition, values, transaction)
        producer.send_offsets("billing", {("orders", 0): number + 1})
        getattr(producer, ends)()
        story.ledger.ended(transaction, commit=ends == "commit")
        if number % 2:  # between the transactions, by nobody's
            values = [b"plain %d" % number]
            story.produce_raw("payments", 0, values, at_ms=START_MS + number)
            story.ledger.wrote("payments", 0, values, "")
    producer.close()


def feed(story: TransactionStory) -> None:
    """What a subscription reads: committed messages of `feed`, and no others."""
    story.create("feed", 1)
    producer = story.named("feeder")
    for number, commit in enumerate([True, False, True]):
        values = [b"feed %d.%d" % (number, each) for each in range(3)]
        opened = producer.run(
            {TopicPartition("feed", 0): values}, commit=commit, at_ms=START_MS + 1000 * number
        )
        if commit:
            for each, value in enumerate(values):
                story.account.sent(
                    ("feed", 0, 4 * number + each), b"t", value, []
                )  # a marker behind each three
        story.ended[:] = [{"opened": list(opened), "commit": commit}]
    aborted = story.named("giver-up").run({TopicPartition("feed", 0): [b"x"]}, commit=False, at_ms=START_MS)
    story.ended.append({"opened": list(aborted), "commit": False})
    with story.client() as client:
        client.create_subscription("watchers", "feed", backoff_ms=0)
        story.account.subscribed("watchers", "feed")
        for message in story.pull(client, "watchers", 4)[:2]:
            story.acknowledge(message)
    story.lose_held()


def balance(story: TransactionStory) -> None:
    """A compacted topic: what was aborted and what is superseded goes, markers get their horizon."""
    story.create(
        "balances", 1, cleanup_policy="compact", segment_bytes="600", delete_retention_ms=str(CENTURY_MS)
    )
    bank, place = story.named("bank"), TopicPartition("balances", 0)
    for number, (word, commit) in enumerate([("old", True), ("bad", False), ("new", True), ("bad", False)]):
        values = [b"balances %s %d.%d" % (word.encode(), number, item) for item in range(4 - number // 2)]
        bank.run({place: values}, commit=commit, at_ms=START_MS + 1000 * number, key=b"k")
    for letter in (b"f", b"g"):  # the last ones are in the newest segment, which is not compacted
        bank.run({place: [letter * 400]}, commit=True, at_ms=START_MS + 9000, key=letter)


def wait_compacted(story: TransactionStory) -> None:
    """Until aborted balances are gone and a marker has its horizon."""

    def compacted() -> bool:
        with connect(story.server.bootstrap) as connection:
            batches = wire.fetch_batches(connection, "balances", 0, 0)
        return not any(_HELD.encode() in each.data for each in batches) and any(
            each.attributes & 96 == 96 for each in batches
        )

    wait_until(compacted, within_s=60, what="balances are not compacted")


def work(story: TransactionStory, *, prefix: str = "task") -> None:
    """Read, process, write: acknowledgements and messages in one transaction; and a dead letter."""
    with story.client() as client:
        one, two, three, four = story.pull(client, "workers", 4)
        with client.transaction() as tx:
            for message in (one, two):
                tx.publish("results", b"result of " + message.body, partition=0)
                tx.ack(message)
        story.account.settled("workers", place_of(one))
        story.account.settled("workers", place_of(two))
        _published(
            story, [b"result of " + one.body, b"result of " + two.body], f"{prefix}/committed", commit=True
        )
        try:
            with client.transaction() as tx:
                tx.publish("results", b"nothing of " + three.body, partition=0)
                tx.ack(three)
                raise KeyError("the worker fails")
        except KeyError:
            _published(story, [b"nothing of " + three.body], f"{prefix}/aborted", commit=False)
        story.refuse(four, reason="not now")
        (letter,) = story.pull(client, "handlers", 1)
        story.refuse(letter, reason="broken", is_dead=True)
        dead = letter.offset + 1
        wait_until(
            lambda: len(get(f"{story.http}/subscriptions/handlers/dead-letters")["dead_letters"]) == dead,
            within_s=60,
            what="no dead letter",
        )
    story.lose_held()


def _published(story: TransactionStory, values: list[bytes], transaction: str, *, commit: bool) -> None:
    story.ledger.wrote("results", 0, values, transaction)
    story.ledger.ended(transaction, commit=commit)


def prepare_work(story: TransactionStory) -> None:
    story.create("results", 1)
    for topic in ("tasks", "fragile", "letters"):
        story.create(topic, 1)
    with story.client() as client:
        for number in range(10):
            story.publish(client, "tasks", f"task {number}", partition=0)
        for number in range(3):
            story.publish(client, "fragile", f"glass {number}", partition=0)
        client.create_subscription("workers", "tasks", backoff_ms=0, ack_timeout_ms=600_000)
        client.create_subscription(
            "handlers", "fragile", max_deliveries=1, backoff_ms=0, dead_letter_topic="letters"
        )
    story.account.subscribed("workers", "tasks")
    story.account.subscribed("handlers", "fragile")


def store_atomically(story: TransactionStory, *, prefix: str = "atomic") -> None:
    """By REST: one request is one transaction."""
    if prefix == "atomic":
        story.create("debits", 1)
        story.create("credits", 1)

    def record(text: str) -> dict[str, Any]:
        return {"key": "k", "value": text, "partition": 0, "timestamp": START_MS}

    both = {topic: [record(f"{prefix} {topic}")] for topic in ("debits", "credits")}
    post(f"{story.http}/transactions", {"topics": both})
    post(f"{story.http}/topics/debits/records", {"records": [record(f"{prefix} more")], "atomic": True})
    story.ledger.ended(prefix, commit=True)
    story.ledger.wrote("debits", 0, [f"{prefix} debits".encode(), f"{prefix} more".encode()], prefix)
    story.ledger.wrote("credits", 0, [f"{prefix} credits".encode()], prefix)


# ---- 2. what is open


def leave_open(story: TransactionStory, name: str, *, group: str, offset: int) -> None:
    """A transaction of librdkafka, with records in `ledger` and a position that waits for its end."""
    producer = Confluent(story.server.bootstrap, name, **{"transaction.timeout.ms": TIMEOUT_MS})
    values = [f"{name} {number}".encode() for number in range(2)]
    producer.begin()
    for value in values:
        producer.send("ledger", value)
    producer.flush()
    producer.send_offsets(group, {("orders", 0): offset})
    story.ledger.wrote("ledger", 0, values, name)
    opened = opened_of(story.server.data_dir, name)
    story.open.append(
        {"opened": list(opened), "transaction": name, "prepared": False, "group": group, "offset": offset}
    )


def leave_prepared(story: TransactionStory, name: str) -> None:
    """A transaction with two-phase commit, which waits without a timeout."""
    places = [TopicPartition("ledger", 0), TopicPartition("ledger", 1)]
    writes = {place: [f"{name} {place.partition}".encode()] for place in places}
    transaction, opened = story.named(name).write(writes, at_ms=START_MS)
    assert prepare(story.server.bootstrap, opened)
    story.open.append(
        {"opened": list(opened), "transaction": transaction, "prepared": True, "group": None, "offset": -1}
    )


def keep_ledger(story: TransactionStory) -> None:
    story.create("ledger", 2)
    story.commit("accounting", [Position("orders", 0, 3, metadata="before")])
    story.commit("forgotten", [Position("orders", 0, 4, metadata="before")])
    for partition in range(2):
        story.named(f"opener-{partition}").run(
            {TopicPartition("ledger", partition): [b"opening"]}, commit=True, at_ms=START_MS
        )
    leave_open(story, "accountant", group="accounting", offset=11)
    leave_open(story, "abandoned", group="forgotten", offset=12)
    leave_prepared(story, "prepared")
    values = [b"behind what is open"]
    story.produce_raw("ledger", 0, values, at_ms=START_MS + 1)
    story.ledger.wrote("ledger", 0, values, "")


# ---- 3. and on, until the kill


def go_on(story: TransactionStory) -> tuple[str, Opened]:
    """More of everything; what is left to be done is the end of the transaction that is returned."""
    story.user("passwd", "bob", password="bobs third own word")
    story.user("create", "erin", password="erins own word")
    work(story, prefix="task again")
    store_atomically(story, prefix="again")
    story.named("late").run(
        {TopicPartition("payments", 0): [b"late and aborted"]}, commit=False, at_ms=START_MS
    )
    committed = story.named("later").run(
        {TopicPartition("payments", 1): [b"late and committed"]}, commit=True, at_ms=START_MS
    )
    story.ended.append({"opened": list(committed), "commit": True})
    prepared = story.open.pop()
    end(story.server.bootstrap, Opened(*prepared["opened"]), commit=True)
    story.ledger.ended(prepared["transaction"], commit=True)
    story.ended.append({"opened": prepared["opened"], "commit": True})
    leave_open(story, "accountant-2", group="late-readers", offset=7)
    leave_prepared(story, "prepared-2")
    story.create("finale", 1)
    return story.named("last").write({TopicPartition("finale", 0): [b"last words"]}, at_ms=START_MS)


def kill_copy(stopped: TransactionStory, place: Path) -> dict[str, Any] | None:
    """Go on with a copy of the stopped directory, and kill it: what it served, None if the kill was late.

    The last commit, a look at what it changed, and the kill come within the time that the applier waits for
    more, which is 50 ms.
    """
    place.mkdir()
    shutil.copytree(stopped.server.data_dir, place / "data")
    story = TransactionStory(
        place,
        account=deepcopy(stopped.account),
        ledger=deepcopy(stopped.ledger),
        logins=deepcopy(stopped.logins),
    )
    story.open, story.ended = deepcopy(stopped.open), deepcopy(stopped.ended)
    story.server = server_on(place / "data", listeners=story.listeners)
    with story.server:
        transaction, opened = go_on(story)
        story.ledger.ended(transaction, commit=True)
        found = variant(story)
        with connect(story.server.bootstrap) as connection:
            wire.end_transaction(connection, *opened, commit=True)
            marker = wire.fetch_batches(connection, "finale", 0, 0)[-1]
            finale = observe_partition(connection, "finale", 0)
            last = get(f"{story.http}/transactions/{opened.transactional_id}")
        story.server.kill()
    if any(marker.data[21:] in path.read_bytes() for path in story.server.data_dir.glob("*/*.log")):
        return None
    found["topics"]["finale"]["partitions"][0] = without_checksums(finale)
    found["transactions"]["ids"] = [
        each if each["transactional_id"] != opened.transactional_id else without_age(last)
        for each in found["transactions"]["ids"]
    ]
    return found


# ---- the machinery


def variant(story: TransactionStory) -> dict[str, Any]:
    """What must be served, as it was observed and as the story knows it."""
    bootstrap, data_dir = story.server.bootstrap, story.server.data_dir
    with connect(f"127.0.0.1:{story.login_port}") as connection:
        salt = salt_of(connection, STRANGER)
    return {
        **observe_all(bootstrap, data_dir),
        **story.ledger.as_json(),
        "latest": {
            "balances": {
                "k0": "balances new 2.0",
                "k1": "balances new 2.1",
                "k2": "balances new 2.2",
                "k3": "balances old 0.3",
            }
        },
        "pending": story.account.pending(),
        "open": story.open,
        "ended": story.ended,
        "logins": [[*login, allowed] for login, allowed in sorted(story.logins.items())],
        "stranger": [STRANGER, salt],
    }


def check(packed: Path, manifest: Any) -> None:
    """Every format is in the directory, and what the writing servers served is what comes back."""
    for name in VARIANTS:
        data_dir = unpack(packed / f"{name}.tar.xz", WORKPLACE / "check" / name)
        code, printed = verify(data_dir)
        assert code == 0, printed
        formats = formats_of(data_dir)
        assert all(formats.values()), f"{name} does not have everything: {formats}"
        with server_on(data_dir, listeners=listeners_with_login(free_port())) as server:
            again = observe_all(server.bootstrap, data_dir)
        for key, value in again.items():
            assert value == manifest[name][key], f"{name}: {key} is {value}, not {manifest[name][key]}"


def main(target: Path) -> None:
    assert not target.exists(), f"{target} exists. A golden directory is never written again: name a new one"
    shutil.rmtree(WORKPLACE, ignore_errors=True)
    WORKPLACE.mkdir(parents=True)
    story = TransactionStory(WORKPLACE)
    data_dir = story.server.data_dir
    make_users(story)
    with story.server:
        pay(story)
        feed(story)
        balance(story)
        prepare_work(story)
        work(story)
        store_atomically(story)
        story.server.restart()  # a checkpoint, above which nothing is compacted
        wait_compacted(story)
    manifest: dict[str, Any] = {"written_by": written_by(), "settings": {"broker": BROKER_SETTINGS}}
    story.server = server_on(data_dir, listeners=story.listeners)
    with story.server:
        keep_ledger(story)
        manifest["stopped"] = deepcopy(variant(story))
    packed = WORKPLACE / "packed"
    packed.mkdir()
    pack(data_dir, packed / "stopped.tar.xz")
    for attempt in range(_KILLS_MAX):
        if (killed := kill_copy(story, WORKPLACE / f"killed-{attempt}")) is not None:
            break
    assert killed is not None, "the machine is too slow: every round was applied before the kill"
    manifest["killed"] = killed
    pack(WORKPLACE / f"killed-{attempt}" / "data", packed / "killed.tar.xz")
    (packed / "manifest.json").write_text(laid_out(manifest) + "\n", encoding="utf-8")
    check(packed, manifest)
    shutil.copytree(packed, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
