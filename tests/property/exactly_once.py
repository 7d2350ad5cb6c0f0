"""The exactly-once sink of Spark as an executable model: drivers and attempts of tasks over a small cluster.

Every process is a generator that yields requests. The schedule carries each one out: perhaps late, perhaps
twice, perhaps after its sender died. Two kinds of work are modelled:

    stream   one query whose micro-batches are written again by every new driver until the checkpoint has them
    batch    each driver is a run of its own, which is never repeated

Three kinds of cluster:

    two-phase commit      the driver prepares winners: they have no timeout then, and no Init aborts them that
                          does not name them
    Kafka                 without it: decided rows may be lost, and that has to be said
    Kafka in good times   every driver comes back before the timeout, no attempt sleeps until its id is used
                          again, and no request is late on a second connection: nothing may be lost

RULES names what the protocol relies on. Each rule can be left out, and the oracle has to notice.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

RULES = {
    "attempts_have_ids": "attempts that Spark numbers differently share no transactional id",
    "runs_have_ids": "attempts of two drivers share no transactional id",
    "driver_fences": "the driver calls Init before it reads the decisions",
    "decision_is_transactional": "a decision counts when EndTxn of the driver's id has succeeded",
    "decide_before_end": "no winner is committed before the decision",
    "one_decision": "a batch that is decided is not decided again",
    "redrive": "a driver that finds its batch decided ends the winners of that decision",
    "ended_by_identity": "winners are committed by the identity in the decision",
    "listed_before_deciding": "leftovers of any run are those that were open before the decision",
    "only_decider_aborts": "leftovers are aborted by the driver whose decision it was, and by no other",
    "winners_are_prepared": "two-phase commit: every winner is prepared before the decision",
    "refuses_init": "two-phase commit: Init does not abort a prepared transaction that it does not name",
    "no_timeout": "two-phase commit: a prepared transaction does not time out",
    "fenced_is_ended": "two-phase commit: a winner whose identity is gone has been committed before",
    "loss_is_told": "without two-phase commit: a winner that cannot be committed fails the batch",
    "runs_are_finished": "batch: a later run ends the winners of an earlier decision that is not marked done",
}

Identity = tuple[int, int]
AGAIN = object()  # what is asked cannot be answered yet
DRIVER = "driver"
WATCH = "watch"  # Spark's heartbeats: they tell that an attempt is dead
TWO_PHASE, KAFKA, QUICK = "two-phase", "kafka", "kafka, in good times"
SLOTS = 2  # transactional ids are used again after this many batches
BATCHES = 6
ROWS = 3


class Violation(Exception):
    """The oracle found what must never be."""


class Refused(Exception):
    """The cluster says no: CONCURRENT, FENCED or ABORTED."""


class Lost(Exception):
    """A decided winner cannot be committed: the sink fails, loudly."""


class Decision(NamedTuple):
    """Which attempts make up a batch of a query."""

    query: str
    batch: int
    winners: tuple[tuple[str, Identity], ...]


@dataclass
class Transaction:
    """One transactional id, as its coordinator knows it."""

    identity: Identity = (0, -1)
    is_open: bool = False
    is_prepared: bool = False
    written: list[Any] = field(default_factory=list)
    ended: tuple[Identity, bool] | None = None
    opened_at: int = 0


class Cluster:
    """Coordinator, data and decisions. Every method is one request, carried out at once."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.patience = 10**9 if world.is_quick else 250
        self.ids: dict[str, Transaction] = {}
        self.rows: Counter[tuple[str, int, int]] = Counter()  # as readers of committed records see them
        self.decisions: dict[str, Decision] = {}  # by query, the newest
        self.done: set[str] = set()
        self.sequences: set[tuple[str, Identity, int]] = set()

    def init(self, name: str, claim: Identity | None = None) -> Identity:
        txn = self.ids.setdefault(name, Transaction((len(self.ids) + 1, -1)))
        if claim is not None and claim != txn.identity:
            raise Refused("FENCED")
        if txn.is_open:
            if txn.is_prepared and claim is None and self.world.keeps("refuses_init"):
                raise Refused("CONCURRENT")
            self._close(txn, commit=False)
        txn.identity = (txn.identity[0], txn.identity[1] + 1)
        txn.ended = None
        return txn.identity

    def prepare(self, name: str, identity: Identity) -> None:
        """From here on only EndTxn, or an Init that names it, ends the transaction."""
        txn = self.ids[name]
        if identity != txn.identity or not txn.is_open:
            raise Refused("ABORTED")
        txn.is_prepared = True

    def write(self, name: str, identity: Identity, sequence: int, what: Any) -> None:
        txn = self.ids[name]
        if (name, identity, sequence) in self.sequences:
            return
        if identity != txn.identity:
            raise Refused("FENCED")
        if not txn.is_open:
            txn.is_open, txn.written, txn.opened_at = True, [], self.world.now
        self.sequences.add((name, identity, sequence))
        txn.written.append(what)

    def end(self, name: str, identity: Identity, commit: bool) -> None:
        txn = self.ids[name]
        if txn.ended is not None and txn.ended[0] == identity and not txn.is_open:
            if txn.ended[1] != commit:
                raise Refused("ABORTED")
            return
        if identity != txn.identity:
            raise Refused("FENCED")
        if not txn.is_open:
            raise Refused("ABORTED")
        self._close(txn, commit=commit)
        txn.identity = (identity[0], identity[1] + 1)
        txn.ended = identity, commit

    def end_present(self, name: str) -> None:
        """Not in the protocol: commit whatever is open under a name."""
        if self.ids[name].is_open:
            self.end(name, self.ids[name].identity, True)

    def open(self, prefix: str) -> dict[str, Identity]:
        """Names and identities of open transactions of attempts (ListTransactions, DescribeTransactions)."""
        return {n: t.identity for n, t in self.ids.items() if t.is_open and n.startswith(prefix)}

    def read_now(self) -> dict[str, Decision]:
        """The decisions that are not hidden by one that is pending: an attempt does not wait for that."""
        return dict(self.decisions)

    def read(self) -> dict[str, Decision] | object:
        """All decisions; to wait for while one is pending, which hides those behind it."""
        return AGAIN if any(t.is_open for n, t in self.ids.items() if DRIVER in n) else dict(self.decisions)

    def decide_untransactionally(self, decision: Decision) -> None:
        self.decisions[decision.query] = decision

    def mark_done(self, query: str) -> None:
        self.done.add(query)

    def time_out(self) -> None:
        for name, txn in self.ids.items():
            immune = txn.is_prepared and self.world.keeps("no_timeout")
            if (
                txn.is_open
                and not immune
                and self.world.now - txn.opened_at > (60 if DRIVER in name else self.patience)
            ):
                self._close(txn, commit=False)
                txn.ended = txn.identity, False
                txn.identity = (txn.identity[0], txn.identity[1] + 1)

    def _close(self, txn: Transaction, *, commit: bool) -> None:
        txn.is_open = txn.is_prepared = False
        for what in txn.written if commit else ():
            if isinstance(what, Decision):
                self.decisions[what.query] = what
            else:
                self.rows[what] += 1
                if self.rows[what] > 1:
                    raise Violation(f"row {what} is there {self.rows[what]} times")


Request = Callable[[], Any]
Steps = Generator[Request, Any, Any]


class Process:
    """A driver or an attempt that runs."""

    def __init__(self, name: str, steps: Steps, finish: Callable[[Any], None]) -> None:
        self.name, self.steps, self.finish, self.is_alive = name, steps, finish, True


class Message(NamedTuple):
    """A request under way; `sender` is None for a copy, whose answer nobody waits for."""

    due: int
    request: Request
    sender: Process | None


@dataclass
class Job:
    """What a driver knows of the tasks of its batch."""

    splits: list[list[int]]
    results: dict[int, tuple[str, Identity] | None] = field(default_factory=dict)
    failures: Counter[int] = field(default_factory=Counter)
    attempts: Counter[int] = field(default_factory=Counter)


class World:
    """One history."""

    def __init__(
        self, seed: int, kind: str = "stream", cluster: str = TWO_PHASE, off: Iterable[str] = ()
    ) -> None:
        self.rng, self.kind, self.off = random.Random(seed), kind, set(off)
        assert self.off <= RULES.keys()
        self.two_phase, self.is_quick = cluster == TWO_PHASE, cluster == QUICK
        self.slots = 1000 if self.is_quick else SLOTS
        self.now, self.runs, self.checkpoint = 0, 0, 0
        self.cluster = Cluster(self)
        self.processes: list[Process] = []
        self.net: list[Message] = []
        self.succeeded: set[str] = set()  # queries whose batch returned; stream: the checkpoint says it
        self.lost: set[tuple[str, int]] = set()
        self.is_calm = False  # no accidents any more
        self.crash = self.rng.choice((0.0, 0.01, 0.03))
        self.happened: Counter[str] = Counter()

    def keeps(self, rule: str) -> bool:
        assert rule in RULES
        return rule not in self.off

    # ---- the schedule

    def run(self, steps: int = 500) -> None:
        for _ in range(steps):
            self._accidents()
            if not self._drivers() and not self._is_over():
                self._start_driver()
            self._deliver()
        self.is_calm = True
        for _ in range(20):
            while self.net:
                self._deliver()
            if self._is_over():
                break
            self._start_driver()
        self._judge()

    def _drivers(self) -> list[Process]:
        return [each for each in self.processes if each.is_alive and each.name == DRIVER]

    def _is_over(self) -> bool:
        if self.lost:
            return True
        if self.kind == "stream":
            return self.checkpoint >= BATCHES
        return self.runs >= (BATCHES + self.is_calm) and not self._drivers()

    def _accidents(self) -> None:
        for each in [each for each in self.processes if each.name != WATCH]:
            if self.rng.random() < self.crash / (1 if each.name == DRIVER else 3):
                self.happened["kills"] += 1
                self._end(each)
        if self.kind == "stream" and self.rng.random() < 0.01:
            self._start_driver()

    def _end(self, process: Process) -> None:
        process.is_alive = False
        self.processes.remove(process)

    def _deliver(self) -> None:
        self.now += 1
        self.cluster.time_out()
        ready = [each for each in self.net if each.due <= self.now or self.is_calm]
        if not ready:
            return
        message = self.rng.choice(ready)
        self.net.remove(message)
        sender = message.sender
        if (
            not self.is_calm and not self.is_quick and self.rng.random() < 0.05
        ):  # sent again on another connection; this one is late
            self._send(message.request, None)
        answer: Any
        try:
            answer = message.request()
        except Refused as refused:
            answer = refused
        if sender is None or not sender.is_alive:
            return
        is_lost = not self.is_calm and self.rng.random() < 0.03
        if is_lost or answer is AGAIN:
            self._send(message.request, sender)
        else:
            self._resume(sender, answer)

    def _send(self, request: Request, sender: Process | None) -> None:
        late = 0 if self.is_calm else self.rng.choice((0, 0, 0, 0, 1, 2, 4, 8, 8, self.rng.randint(10, 120)))
        self.net.append(Message(self.now + late, request, sender))

    def _resume(self, process: Process, answer: Any) -> None:
        steps = process.steps
        try:
            raised = isinstance(answer, Exception)
            request = steps.throw(answer) if raised else steps.send(answer)
        except StopIteration as stop:
            self._end(process)
            process.finish(stop.value)
        except Refused as refused:
            self._end(process)
            process.finish(refused)
        except Lost as lost:
            self.lost.add(lost.args)
            self._end(process)
        else:
            self._send(request, process)

    def start(self, name: str, steps: Steps, finish: Callable[[Any], None] = lambda _: None) -> Process:
        process = Process(name, steps, finish)
        self.processes.append(process)
        self._resume(process, None)
        return process

    def _start_driver(self) -> None:
        if self.kind == "batch" and self.runs > BATCHES + 1:
            return
        self.runs += 1
        run = f"run{self.runs}"
        self.start(DRIVER, Driver(self, run).steps())

    # ---- the oracle

    def _judge(self) -> None:
        rows = self.cluster.rows
        if self.lost:
            if self.two_phase or self.is_quick:
                raise Violation(f"loss is reported of {self.lost}, and cannot be")
            return
        if self.kind == "stream":
            self.check_batches(BATCHES)
            left = [name for name, txn in self.cluster.ids.items() if txn.is_prepared]
        else:
            for run in range(1, self.runs + 1):
                there = sum(rows[f"run{run}", 0, row] for row in range(ROWS))
                is_cut_off = (
                    not self.two_phase and f"run{run}" in self.cluster.decisions
                )  # and its driver died
                if there not in (0, ROWS) and not (is_cut_off and f"run{run}" not in self.succeeded):
                    raise Violation(f"{there} rows of {ROWS} of run{run} are there")
                if f"run{run}" in self.succeeded and not there:
                    raise Violation(f"run{run} has succeeded, and its rows are not there")
            left = []  # a run that is killed between Prepare and decision leaves them to an administrator
            if self.crash == 0:
                left = [name for name, txn in self.cluster.ids.items() if txn.is_prepared]
        if left and self.two_phase:
            raise Violation(f"{left} is open for ever")

    def check_batches(self, end: int) -> None:
        """Every batch below `end` is there, once; of a batch that was lost, that was said."""
        for batch in range(end):
            missing = [row for row in range(ROWS) if not self.cluster.rows["query", batch, row]]
            if missing and ("query", batch) not in self.lost:
                raise Violation(f"rows {missing} of batch {batch} are gone in silence")


class Driver:
    """A driver of Spark with the sink's part in it."""

    def __init__(self, world: World, run: str) -> None:
        self.world, self.run, self.cluster = world, run, world.cluster
        self.query = "query" if world.kind == "stream" else run
        self.name = f"{self.query}:{DRIVER}"

    def prefix(self, batch: int) -> str:
        run = self.run if self.world.keeps("runs_have_ids") else "run"
        return f"{self.query}:{run}:{batch % self.world.slots}:"

    def steps(self) -> Steps:
        world = self.world
        if world.kind == "batch":
            if (yield from self._batch(0)):
                world.succeeded.add(self.query)
            return
        for batch in range(world.checkpoint, BATCHES):
            if not (yield from self._batch(batch)):
                return
            world.check_batches(batch + 1)
            world.checkpoint = max(world.checkpoint, batch + 1)

    def _batch(self, batch: int) -> Generator[Request, Any, bool]:
        """Spark's part: run the tasks until each has a result, then have the sink commit, or abort."""
        rng = self.world.rng
        rows = list(range(ROWS))
        count = rng.randint(1, ROWS)
        job = Job([rows[first::count] for first in range(count)])
        for split in range(count):
            for _ in range(1 if rng.random() < 0.6 else 2):  # speculation
                self._start_attempt(job, batch, split)
        while len(job.results) < count:
            if any(failures > 2 for failures in job.failures.values()) or (
                not self.world.is_calm and rng.random() < 0.002
            ):
                yield from self._abort(batch, [each for each in job.results.values() if each])
                return False
            yield lambda: AGAIN if rng.random() < 0.5 else None
        written = [each for each in job.results.values() if each]
        try:
            yield from self._commit(batch, written)
        except Refused:
            yield from self._abort(batch, written)
            return False
        return True

    def _abort(self, batch: int, written: list[tuple[str, Identity]]) -> Steps:
        for left in (2, 1, 0):
            try:
                yield from self._give_up(batch, written)
                return
            except Refused:  # by a copy of an earlier Init, or by another driver
                if not left or self.world.kind == "stream":
                    raise

    def _start_attempt(self, job: Job, batch: int, split: int) -> None:
        number = job.attempts[split]
        if not self.world.is_quick and self.world.rng.random() < 0.3:
            number = 0  # a stage that is tried again numbers its attempts from 0, and Python is not told
        job.attempts[split] += 1
        own = f".{number}" if self.world.keeps("attempts_have_ids") else ""
        name = f"{self.prefix(batch)}{split}{own}"

        def finish(result: Any) -> None:
            if isinstance(result, Refused):
                job.failures[split] += 1
                if split not in job.results and job.failures[split] <= 2:
                    self._start_attempt(job, batch, split)
            else:
                job.results.setdefault(split, result)

        process = self.world.start("attempt", self._attempt(name, batch, job.splits[split]), finish)
        if self.world.crash:  # an attempt that was killed is noticed, and run again
            self.world.start(WATCH, self._watch(process, job, batch, split))

    def _watch(self, process: Process, job: Job, batch: int, split: int) -> Steps:
        while process.is_alive:
            yield lambda: AGAIN if process.is_alive else None
        if split not in job.results and job.attempts[split] < 40:
            self._start_attempt(job, batch, split)

    # ---- the sink: a task

    def _attempt(self, name: str, batch: int, rows: list[int]) -> Steps:
        cluster = self.cluster
        if self._is_decided((yield cluster.read_now), batch):
            return None
        name, identity = yield from self._begin_attempt(name)
        for number, row in enumerate(rows):
            what = (self.query, batch, row)
            yield partial(cluster.write, name, identity, number, what)
        return name, identity

    def _begin_attempt(self, base: str) -> Generator[Request, Any, tuple[str, Identity]]:
        """Take the first id under which nothing is open: another attempt may have the same number."""
        cluster = self.cluster
        for further in range(4):
            name = f"{base}+{further}" if further else base
            if not (yield partial(cluster.open, name)):
                return name, (yield partial(cluster.init, name))
        raise Refused("CONCURRENT")

    def _is_decided(self, decisions: Mapping[str, Decision], batch: int) -> bool:
        decision = decisions.get(self.query)
        return decision is not None and decision.batch >= batch

    # ---- the sink: the driver

    def _commit(self, batch: int, winners: list[tuple[str, Identity]]) -> Steps:
        me, decisions = yield from self._begin()
        if self._is_decided(decisions, batch) and self.world.keeps("one_decision"):
            yield from self._redrive(decisions, batch)
            return
        before = yield partial(self.cluster.open, f"{self.query}:")
        if any(before.get(name) != identity for name, identity in winners):
            raise Refused("ABORTED")  # it timed out: better to write the batch again than to decide a loss
        if self.world.two_phase and self.world.keeps("winners_are_prepared"):
            for name, identity in winners:
                yield partial(self.cluster.prepare, name, identity)
        if not self.world.keeps("decide_before_end"):
            yield from self._finish(batch, winners)
        yield from self._decide(me, Decision(self.query, batch, tuple(winners)))
        yield from self._finish(batch, winners)
        if self.world.kind == "batch":
            yield partial(self.cluster.mark_done, self.query)
        if not self.world.keeps("listed_before_deciding"):
            before = yield partial(self.cluster.open, f"{self.query}:")
        yield from self._clean(before, winners)

    def _give_up(self, batch: int, written: list[tuple[str, Identity]]) -> Steps:
        _, decisions = yield from self._begin()
        if self._is_decided(decisions, batch):
            yield from self._redrive(decisions, batch)
            return
        mine = yield partial(self.cluster.open, f"{self.query}:{self.run}:")
        yield from self._clean({**mine, **dict(written)}, [])

    def _begin(self) -> Generator[Request, Any, tuple[Identity, dict[str, Decision]]]:
        decisions: dict[str, Decision] = {}
        if not self.world.keeps("driver_fences"):
            decisions = yield self.cluster.read
        me = yield partial(self.cluster.init, self.name)
        if self.world.keeps("driver_fences"):
            decisions = yield self.cluster.read
        if self.world.kind == "batch" and self.world.keeps("runs_are_finished"):
            for other in decisions.values():
                if other.query not in self.cluster.done:
                    yield from self._finish(other.batch, other.winners)
                    yield partial(self.cluster.mark_done, other.query)
        return me, decisions

    def _redrive(self, decisions: Mapping[str, Decision], batch: int) -> Steps:
        decision = decisions[self.query]
        if decision.batch != batch or not self.world.keeps("redrive"):
            return
        yield from self._finish(batch, decision.winners)
        left = yield partial(self.cluster.open, f"{self.query}:{self.run}:")
        if not self.world.keeps("only_decider_aborts"):
            left = yield partial(self.cluster.open, f"{self.query}:")
        yield from self._clean(left, decision.winners)

    def _decide(self, me: Identity, decision: Decision) -> Steps:
        if self.world.keeps("decision_is_transactional"):
            yield partial(self.cluster.write, self.name, me, 0, decision)
            yield partial(self.cluster.end, self.name, me, True)
        else:
            yield partial(self.cluster.decide_untransactionally, decision)
        self.world.happened["decisions"] += 1

    def _finish(self, batch: int, winners: Iterable[tuple[str, Identity]]) -> Steps:
        for name, identity in winners:
            try:
                if self.world.keeps("ended_by_identity"):
                    yield partial(self.cluster.end, name, identity, True)
                else:
                    yield partial(self.cluster.end_present, name)
            except Refused as refused:
                if (
                    self.world.two_phase
                    and refused.args[0] == "FENCED"
                    and self.world.keeps("fenced_is_ended")
                ):
                    continue
                if self.world.two_phase or self.world.keeps("loss_is_told"):
                    self.world.happened["losses"] += 1
                    raise Lost(self.query, batch) from None

    def _clean(self, before: Mapping[str, Identity], winners: Iterable[tuple[str, Identity]]) -> Steps:
        for name, identity in before.items():
            if (name, identity) not in winners:
                yield from self._abort_one(name, identity)

    def _abort_one(self, name: str, identity: Identity) -> Steps:
        self.world.happened["aborts"] += 1
        with contextlib.suppress(Refused):  # it has ended, or its id has another owner
            yield partial(self.cluster.end, name, identity, False)
