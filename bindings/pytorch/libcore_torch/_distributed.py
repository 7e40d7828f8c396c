# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""The backend "libcore" of torch.distributed: process groups over communicators
of libcore (comm.h)."""

import contextlib
import importlib
import os
import socket

import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from . import _shim

# Variables with which launchers number the processes, as in comm.h.
_LAUNCHERS = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
              ("PMI_RANK", "PMI_SIZE"))


class ProcessGroupOptions:
    """pg_options of init_process_group("libcore").

    engine: what moves the data, "mpi", "nccl" or "rccl", or that of another
    plugin; None for "nccl" and "rccl" on their devices, otherwise "mpi".
    store: how engines without a launcher connect the ranks, as in comm.h; None
    for an address that rank 0 chooses.
    """

    def __init__(self, engine=None, store=None):
        self.engine = engine
        self.store = store


def _create(options, chosen):
    """A process group of torch's options and ours."""
    if not isinstance(chosen, (ProcessGroupOptions, type(None))):
        raise TypeError("libcore: pg_options must be a "
                        "libcore_torch.ProcessGroupOptions, found "
                        f"{type(chosen).__name__}")
    chosen = chosen or ProcessGroupOptions()
    store = chosen.store or _agree(options.store, options.group_rank)
    return _shim.process_group(options.group_rank, options.group_size,
                               options.timeout.total_seconds(),
                               chosen.engine or "", store)


def _agree(store, rank):
    """An address for comm.h, which rank 0 tells the others through torch's
    store."""
    if rank == 0:
        store.set("libcore", f"tcp:{_own_address()}:{_free_port()}")
    return store.get("libcore").decode()


def _own_address():
    """The address that this machine has towards the master."""
    master = os.environ.get("MASTER_ADDR", "localhost")
    with contextlib.suppress(OSError), socket.socket(
            socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((master, 9))  # sends nothing
        return probe.getsockname()[0]
    return "127.0.0.1"


def _free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def _place():
    """Rank and size of a launcher that does not set torch's variables."""
    if "RANK" in os.environ:
        return None
    for names in _LAUNCHERS:
        with contextlib.suppress(KeyError, ValueError):
            return tuple(int(os.environ[name]) for name in names)
    return None


def _rendezvous(url, timeout=default_pg_timeout, **unused):
    """The store of processes that mpirun has started: rank 0 serves it, and the
    others learn its address through a communicator."""
    place = _place()
    if place is None:
        raise RuntimeError("libcore: the processes were not started by mpirun")
    rank, size = place
    if rank == 0:
        store = dist.TCPStore(_own_address(), 0, size, True, timeout,
                              wait_for_workers=False)
        _shim.share_text(f"{store.host} {store.port}", "mpi")
    else:
        host, port = _shim.share_text("", "mpi").split()
        store = dist.TCPStore(host, int(port), size, False, timeout)
    yield store, rank, size
    raise RuntimeError("libcore: there is no second rendezvous")


def _extend(environment):
    """The handler of "env://", which is what init_process_group uses by default,
    when it has no variables but those of mpirun."""
    def handler(url, **keywords):
        chosen = environment if _place() is None else _rendezvous
        return chosen(url, **keywords)
    return handler


def install():
    """Registers the backend."""
    dist.Backend.register_backend("libcore", _create, extended_api=True,
                                  devices=["libcore"])
    handlers = importlib.import_module(
        "torch.distributed.rendezvous")._rendezvous_handlers
    handlers["env"] = _extend(handlers["env"])
