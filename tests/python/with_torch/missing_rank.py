# SPDX-License-Identifier: Apache-2.0
"""Two processes that sum a convolution over channels; the second dies, or is late, before the sum. Arguments: folder, rank, processes and
which of both."""

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import narrows
import narrows.torch

SECONDS = 3  # that the engine waits


def main(folder, rank, world, how):
    limit = datetime.timedelta(seconds=180)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", world), rank=rank, world_size=world, timeout=limit)
    mesh = init_device_mesh("cpu", (world,))
    x, w = (DTensor.from_local(torch.ones(2, 2, n), mesh, [Shard(1)]) for n in (9, 3))
    narrows.conv1d(x, w).full_tensor()  # both are there
    dist.barrier()
    mesh.get_group().set_timeout(datetime.timedelta(seconds=SECONDS))
    if rank == 1 and how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1:
        time.sleep(20 * SECONDS)
    before = time.monotonic()
    y = narrows.conv1d(x, w)
    print("narrows was called", flush=True)
    try:
        y.full_tensor()
    except RuntimeError as error:
        print(error, flush=True)
        os._exit(0 if time.monotonic() - before < 10 * SECONDS else 2)
    os._exit(3)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
