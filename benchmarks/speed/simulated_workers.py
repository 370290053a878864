"""Workers of Dask that are not there: the scheduler sees real ones, but what they move and compute is only waited for.

Each is Dask's own state machine of a worker, on an address of its own of one server. Time is simulated: seconds pass
while a processor works for the scheduler or the driver, whatever else this machine does, and when both are idle until
the next result has been moved or made. So a round takes as long as with a processor for each of them.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from distributed.batched import BatchedSend
from distributed.comm.core import connect
from distributed.core import Server, Status
from distributed.protocol import to_serialize
from distributed.versions import get_versions
from distributed.worker_state_machine import (
    BaseWorker,
    CancelComputeEvent,
    ComputeTaskEvent,
    ExecuteSuccessEvent,
    FreeKeysEvent,
    GatherDepBusyEvent,
    GatherDepSuccessEvent,
    RefreshWhoHasEvent,
    RemoveReplicasEvent,
    RetryBusyWorkerEvent,
    StateMachineEvent,
    UpdateDataEvent,
    WorkerState,
)

_EVENTS: dict[str, Any] = {
    "compute-task": ComputeTaskEvent, "free-keys": FreeKeysEvent, "remove-replicas": RemoveReplicasEvent,
    "refresh-who-has": RefreshWhoHasEvent, "cancel-compute": CancelComputeEvent,
}  # fmt: skip
_METRICS: dict[str, Any] = {
    "memory": 0, "managed_bytes": 0, "spilled_bytes": {"memory": 0, "disk": 0}, "task_counts": {},
    "bandwidth": {"total": 1e9, "workers": {}, "types": {}}, "digests_total_since_heartbeat": {},
    "event_loop_interval": 0,
}  # fmt: skip
# What Dask's worker does by default: requests it answers and makes at once, bytes of one, wait for one that is busy.
_ANSWERED, _ASKED, _MESSAGE, _RETRY = 10, 50, 50_000_000, 0.15
# Looks, a millisecond apart, in which nobody works: longer than Dask collects messages for.
_QUIET = 5
DRIVER = "driver"


@dataclass(frozen=True)
class Machines:
    """What workers share and return, in bytes, and the machines between which it moves."""

    shared: int
    result: int
    slices: int = 1
    bandwidth: float = 1.25e9  # bytes a second, each way
    latency: float = 1e-3
    merge_rate: float = 3e9


def _sleeps(state: Path) -> bool:
    """Tell whether a thread neither works nor waits for a processor."""
    return state.read_text().rpartition(")")[2].split()[0] == "S"


def process_clock(process: int) -> int:
    """Return Linux's number of the clock that counts the seconds of a process on a processor."""
    return (~process << 3) | 2


class Clock:
    """Simulated seconds.

    Parameters
    ----------
    scheduler : int
        Its process.
    drivers : threads of this process that are the driver's
    """

    def __init__(self, scheduler: int, drivers: Collection[threading.Thread]) -> None:
        threads = [f"/proc/{scheduler}", *(f"/proc/self/task/{thread.native_id}" for thread in drivers)]
        self._states = [Path(thread, "stat") for thread in threads]
        self._clocks = [process_clock(scheduler)]
        self._clocks += [time.pthread_getcpuclockid(thread.ident) for thread in drivers if thread.ident]
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.now, self.heard = 0.0, 0  # messages so far

    def at(self, due: float, action: Callable[[], None]) -> None:
        """Do something when it is time."""
        heapq.heappush(self._due, (due, next(self._numbers), action))

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        woken = asyncio.get_running_loop().create_future()
        self.at(self.now + seconds, partial(woken.set_result, None))
        await woken

    async def run(self) -> None:
        """Keep time."""
        quiet, heard, used = 0, -1, self._used()
        while True:
            await asyncio.sleep(1e-3)
            before, used = used, self._used()
            idle = used == before and heard == self.heard and all(map(_sleeps, self._states))
            quiet, heard = quiet + 1 if idle else 0, self.heard
            self._pass_to(max(self.now + used - before, self._due[0][0] if quiet >= _QUIET and self._due else 0.0))

    def _used(self) -> float:
        return sum(map(time.clock_gettime, self._clocks))

    def _pass_to(self, end: float) -> None:
        while self._due and self._due[0][0] <= end:
            # What ended while the scheduler was busy has ended then.
            self.now, _, action = heapq.heappop(self._due)
            action()
            self.heard += 1
        self.now = end


@dataclass(eq=False)
class _Flow:
    ends: tuple[tuple[str, str], tuple[str, str]]
    left: float
    done: asyncio.Future[None]
    since: float
    rate: float = 0.0
    turn: int = 0


class Links:
    """A link of the same bandwidth for each host, each way, that transfers at the same time share equally."""

    def __init__(self, clock: Clock, bandwidth: float) -> None:
        self._clock, self._bandwidth = clock, bandwidth
        self._flows: dict[tuple[str, str], set[_Flow]] = defaultdict(set)

    async def move(self, source: str, target: str, size: float) -> None:
        """Wait until so many bytes have moved."""
        done = asyncio.get_running_loop().create_future()
        flow = _Flow(((source, "out"), (target, "in")), size, done, self._clock.now)
        for end in flow.ends:
            self._flows[end].add(flow)
        self._share(flow)
        await done

    def _share(self, changed: _Flow) -> None:
        """Give the flows beside one that has come, or gone, what they have from now on."""
        now = self._clock.now
        for flow in {flow for end in changed.ends for flow in self._flows[end]}:
            flow.left -= flow.rate * (now - flow.since)
            flow.since, flow.turn = now, flow.turn + 1
            flow.rate = self._bandwidth / max(len(self._flows[end]) for end in flow.ends)
            self._clock.at(now + max(flow.left, 0.0) / flow.rate, partial(self._end, flow, flow.turn))

    def _end(self, flow: _Flow, turn: int) -> None:
        if turn == flow.turn:
            for end in flow.ends:
                self._flows[end].remove(flow)
            self._share(flow)
            flow.done.set_result(None)


class _Worker(BaseWorker):
    """A worker of one thread; its state, and so whom it asks for what, is Dask's."""

    def __init__(self, pool: SimulatedWorkers, address: str, comm: Any) -> None:
        limits = {"transfer_incoming_count_limit": _ASKED, "transfer_message_bytes_limit": _MESSAGE}
        super().__init__(WorkerState(address=address, validate=False, **limits))
        self._pool, self._stream, self.answering = pool, BatchedSend(interval="2ms"), 0
        self._stream.start(comm)

    async def listen(self, comm: Any) -> None:
        """Do what the scheduler says."""
        while True:
            for message in await comm.read():
                self._pool.clock.heard += 1
                if event := _EVENTS.get(message.pop("op")):
                    self.handle_stimulus(event(**message))

    def batched_send(self, msg: dict[str, Any]) -> None:
        self._stream.send(msg)

    def digest_metric(self, name: Any, value: float) -> None:
        pass

    async def gather_dep(
        self, worker: str, to_gather: Collection[Any], total_nbytes: int, *, stimulus_id: str
    ) -> StateMachineEvent:
        pool, peer = self._pool, self._pool.workers[worker]
        of = {"worker": worker, "total_nbytes": total_nbytes, "stimulus_id": stimulus_id}
        await pool.clock.sleep(2 * pool.machines.latency)
        if peer.answering >= _ANSWERED:
            return GatherDepBusyEvent(**of)
        data = {key: peer.state.data[key] for key in to_gather if key in peer.state.data}
        peer.answering += 1
        await pool.links.move(worker, self.state.address, total_nbytes)
        peer.answering -= 1
        return GatherDepSuccessEvent(data=data, **of)

    async def retry_busy_worker_later(self, worker: str) -> StateMachineEvent:
        await self._pool.clock.sleep(_RETRY)
        return RetryBusyWorkerEvent(worker=worker, stimulus_id="retry")

    async def execute(self, key: Any, *, stimulus_id: str) -> StateMachineEvent:
        task, pool, start = self.state.tasks[key], self._pool, time.time()
        given: dict[Any, Any] = {each.key: self.state.data[each.key] for each in task.dependencies}
        value = pool.held[key] = task.run_spec(given)  # type: ignore[operator]
        machines = pool.machines
        # Slices of what is shared are put together, the results of others merged with the first one.
        merged = machines.result * (sum(each not in pool.sent for each in given) - 1)
        moved = merged if merged >= 0 else machines.shared * (machines.slices > 1)
        await pool.clock.sleep(2 * machines.latency + moved / machines.merge_rate)
        return ExecuteSuccessEvent(
            key=key, run_id=task.run_id, value=value, start=start, stop=time.time(), nbytes=machines.result,
            type=type(value), stimulus_id=stimulus_id,
        )  # fmt: skip


@dataclass
class SimulatedWorkers:
    """Workers of one thread, on addresses of this machine that one server has."""

    clock: Clock
    machines: Machines
    workers: dict[str, _Worker] = field(default_factory=dict)
    held: dict[Any, Any] = field(default_factory=dict)  # all results, for the driver
    sent: set[Any] = field(default_factory=set)  # keys of what the driver has sent

    def __post_init__(self) -> None:
        self.links = Links(self.clock, self.machines.bandwidth)

    async def start(self, scheduler: str, count: int) -> None:
        """Register so many."""
        self._server = Server({"get_data": self._get, "update_data": self._update})
        await self._server.listen("tcp://0.0.0.0:0")
        port, self._comms = self._server.listeners[0].bound_address[1], []
        self._running = [asyncio.create_task(self.clock.run())]
        registered = {
            "op": "register-worker", "reply": False, "status": "running", "nthreads": 1, "now": time.time(),
            "resources": {}, "memory_limit": 0, "local_directory": "", "services": {}, "nanny": None, "pid": 0,
            "versions": get_versions(), "extra": {}, "stimulus_id": "start",
        }  # fmt: skip
        for number in range(count):
            address = f"tcp://127.0.{1 + number // 250}.{1 + number % 250}:{port}"
            comm = await connect(scheduler)
            own = {"address": address, "name": address, "server_id": address, "metrics": dict(_METRICS)}
            await comm.write({**registered, **own}, serializers=["msgpack"])
            await comm.read(deserializers=["msgpack"])
            self.workers[address] = _Worker(self, address, comm)
            self._comms.append(comm)
            self._running.append(asyncio.create_task(self.workers[address].listen(comm)))

    async def close(self) -> None:
        """End them all."""
        for task in self._running:
            task.cancel()
        for comm in self._comms:
            comm.abort()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._server.close()

    async def _get(self, comm: Any, keys: Sequence[str], **_: Any) -> Status:
        self.clock.heard += 1
        await self.links.move(comm.local_address, DRIVER, self.machines.result * len(keys))
        await comm.write({"status": "OK", "data": {key: to_serialize(self.held[key]) for key in keys}})
        await comm.read()
        return Status.dont_reply

    async def _update(self, comm: Any, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.clock.heard += 1
        size = self.machines.shared // self.machines.slices
        self.sent.update(data)
        await self.links.move(DRIVER, comm.local_address, size * len(data))
        self.workers[comm.local_address].handle_stimulus(UpdateDataEvent(data=data, stimulus_id="send"))
        return {"status": "OK", "nbytes": dict.fromkeys(data, size)}


@contextmanager
def simulated(scheduler: str, count: int, machines: Machines, clock: Clock) -> Iterator[Clock]:
    """Yield the clock while there are so many workers, in a thread of their own."""
    loop, pool = asyncio.new_event_loop(), SimulatedWorkers(clock, machines)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(pool.start(scheduler, count), loop).result()
        yield clock
        asyncio.run_coroutine_threadsafe(pool.close(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
