"""A worker of several processes that hold one copy of a model together (`parallelType` of model-config.yaml).

The worker that the server knows is the first of the group. It forks the others before the model is loaded, sets the environment variables
of torchrun (RANK, WORLD_SIZE, MASTER_ADDR, ...), and forwards every batch; only its own answers go back. The others end with it, and it
ends with any of them: the server then starts a new group."""

from __future__ import annotations

import os
import signal
import socket
from typing import Any

from .channel import BlockingChannel


class Group:
    """Membership of this process in its group: the first has `channels` to the others, each other a `leader` channel to the first."""

    def __init__(self, rank: int, leader: BlockingChannel | None, channels: list[BlockingChannel]):
        self.rank, self.leader, self.channels = rank, leader, channels

    def pass_on(self, message: Any) -> None:
        for channel in self.channels:
            channel.send(message)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def form(order: dict[str, Any]) -> Group:
    """Fork the other processes of the group; returns in each of them."""
    size = order["processes"]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(_free_port()), RANK="0", LOCAL_RANK="0",
                      WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size))  # fmt: skip
    pids: set[int] = set()
    channels: list[BlockingChannel] = []
    for rank in range(1, size):
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            for end in (ours, *(channel.connection for channel in channels)):
                end.close()
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            if order["gpu"] is not None:
                order["gpu"] += rank
            return Group(rank, BlockingChannel(theirs), [])
        theirs.close()
        pids.add(pid)
        channels.append(BlockingChannel(ours))

    def child_ended(number: int, stack: Any) -> None:
        for pid in pids:  # the handler's own children end as they like
            if os.waitpid(pid, os.WNOHANG)[0]:
                os._exit(1)

    signal.signal(signal.SIGCHLD, child_ended)
    return Group(0, None, channels)
