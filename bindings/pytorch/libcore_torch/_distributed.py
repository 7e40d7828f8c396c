# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""The backend "libcore" of torch.distributed: process groups over communicators
of libcore (comm.h)."""

import contextlib
import importlib
import os
import re
import socket
import urllib.parse

import torch
import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from . import _shim

# Variables with which mpirun numbers the processes.
_LAUNCHERS = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
              ("PMI_RANK", "PMI_SIZE"))


class ProcessGroupOptions:
    """pg_options of init_process_group("libcore").

    engine: what moves the data, by its name in libcore, such as "mpi" or "nccl";
    None for the engine of the plugin that provides the device, if it has one, and
    otherwise "mpi".
    store: how engines without a launcher connect the ranks, as in comm.h; None
    for an address that rank 0 chooses.  To the path of "file:PATH" the name of
    the group is added.
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
    return _shim.process_group(options.group_rank, options.group_size,
                               options.timeout.total_seconds(),
                               chosen.engine or "",
                               _of_group(chosen.store or "", options.group_id),
                               _own_address(), options.store)


def _of_group(store, name):
    """The store of a group, as two groups cannot meet in one file."""
    if not store.startswith("file:"):
        return store
    return f"{store}.{re.sub(r'[^A-Za-z0-9_]', '_', name)}"


def _source(host):
    """The address from which this machine would send to a host, or None."""
    with contextlib.suppress(OSError), socket.socket(
            socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing
        return probe.getsockname()[0]
    return None


def _own_address():
    """The address at which other ranks reach this machine: the one that it has
    towards MASTER_ADDR.  Without that variable, or if it is the name of this
    machine and that is a loopback address: towards other networks; a loopback
    address if there are none."""
    master = os.environ.get("MASTER_ADDR", "")
    if master == "localhost" or master.startswith("127."):
        return "127.0.0.1"  # all ranks are on this machine
    hosts = [master] if master else []
    # An address for documentation, which the default route leads to.
    for host in (*hosts, "192.0.2.1", socket.gethostname()):
        address = _source(host)
        if address and not address.startswith("127."):
            return address
    return "127.0.0.1"


def _place():
    """Rank and size that mpirun has given to this process, or None."""
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
    raise RuntimeError("libcore: a second rendezvous of the same URL is not "
                       "supported")


def _says_nothing(url):
    """Whether neither the arguments of init_process_group, which come in the
    URL, nor torch's variables have a rank or a size: an error of torch."""
    given = urllib.parse.parse_qs(urllib.parse.urlparse(url).query)
    return not ({"RANK", "WORLD_SIZE"} & set(os.environ)
                or {"rank", "world_size"} & set(given))


def _extend(environment):
    """The handler of "env://", which is what init_process_group uses by default,
    for what torch's own would refuse: mpirun's variables are all there is."""
    def handler(url, **keywords):
        ours = _says_nothing(url) and _place() is not None
        return (_rendezvous if ours else environment)(url, **keywords)
    return handler


def _drop_batch(group):
    """What an exception has left of a batch of a group with our backend; others
    are left to torch."""
    group = group or dist.distributed_c10d._get_default_group()
    with contextlib.suppress(RuntimeError):  # no backend for the devices
        _shim.drop_batch(group._get_backend(torch.device("libcore")))
        dist.distributed_c10d._world.pg_coalesce_state.pop(group, None)


def _ending(manager):
    """torch's manager of batches.  It does not end one in which something was
    thrown, and later calls would be added to that batch and never made."""
    @contextlib.contextmanager
    def coalescing_manager(group=None, device=None, async_ops=False):
        try:
            with manager(group, device, async_ops) as batch:
                yield batch
        except BaseException:
            _drop_batch(group)
            raise
    return coalescing_manager


def install():
    """Registers the backend."""
    for module in (dist, dist.distributed_c10d):
        module._coalescing_manager = _ending(module._coalescing_manager)
    dist.Backend.register_backend("libcore", _create, extended_api=True,
                                  devices=["libcore"])
    handlers = importlib.import_module(
        "torch.distributed.rendezvous")._rendezvous_handlers
    handlers["env"] = _extend(handlers["env"])
