"""Several gloo processes that cannot hang a test run."""

from __future__ import annotations

import faulthandler
import os
import socket
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import multiprocessing


def run_processes(work: Callable, world: int, *args: object, seconds: float = 240) -> None:
    """Run ``work(rank, *args)`` in processes of one gloo group, and wait for them.

    The store lives here, so that no port is taken twice; the processes meet over loopback.

    Raises:
        TimeoutError: They have not ended in time; what each of them does stands in its stderr.
        ProcessRaisedException: One of them failed.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    deadline = time.monotonic() + seconds
    context = multiprocessing.spawn(
        _work, (work, world, store.port, seconds * 0.9, args), nprocs=world, join=False, daemon=True
    )
    while not context.join(timeout=max(0.0, deadline - time.monotonic())):
        if time.monotonic() > deadline:
            for process in context.processes:
                process.kill()
                process.join()
            raise TimeoutError(f"{work.__module__}: {world} processes took over {seconds:.0f} s")


def _work(rank: int, work: Callable, world: int, port: int, seconds: float, args: tuple) -> None:
    faulthandler.enable()  # a crash below Python shows where it came from, too
    faulthandler.dump_traceback_later(seconds)
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the parent serves the store
        "GLOO_SOCKET_IFNAME": next(n for _, n in socket.if_nameindex() if n.startswith("lo")),
        "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    dist.init_process_group("gloo", timeout=timedelta(seconds=seconds / 2))
    work(rank, *args)
    dist.destroy_process_group()
