# SPDX-License-Identifier: Apache-2.0
"""JAX over several processes: a long signal is cut along its length, each device convolves its part, and neighbours swap the samples at the
cuts. Two processes on the CPU, which this program starts:

python3 examples/distributed_jax.py [PROCESSES]
"""

import functools
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

LENGTH, CHANNELS, FILTERS, TAPS = 1 << 16, 4, 8, 129


def convolve_part(x, w, axis, devices):
    """What one device does: its part of narrows.conv1d(x, w, padding="same"), for an odd number of taps. At both ends of the signal no
    neighbour sends anything, and zeros are what the padding has."""
    import jax
    import jax.numpy as jnp

    import narrows

    reach = w.shape[2] // 2
    if w.shape[2] % 2 == 0:
        raise ValueError(f"w has {w.shape[2]} taps; expected an odd number, of which as many reach to each side")
    if x.shape[2] < reach:
        raise ValueError(f"a device has {x.shape[2]} samples; expected {reach} or more, half of the {w.shape[2]} taps")
    to_right = [(d, d + 1) for d in range(devices - 1)]
    to_left = [(d + 1, d) for d in range(devices - 1)]
    left = jax.lax.ppermute(x[:, :, x.shape[2] - reach :], axis, to_right)
    right = jax.lax.ppermute(x[:, :, :reach], axis, to_left)
    return narrows.conv1d(jnp.concatenate([left, x, right], 2), w)


def convolution(mesh):
    """The jitted convolution of signals that lie along the mesh's only axis."""
    import jax
    from jax.sharding import PartitionSpec as P

    (axis,) = mesh.axis_names
    part = functools.partial(convolve_part, axis=axis, devices=mesh.size)
    return jax.jit(jax.shard_map(part, mesh=mesh, in_specs=(P(None, None, axis), P()), out_specs=P(None, None, axis)))


def meet(folder, rank, processes, platform="cpu"):
    """Brings the processes together, by a port that the first one finds free and leaves in a file. On cuda each has a GPU of its own."""
    import jax

    path = pathlib.Path(folder, "port")
    if rank == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            path.with_suffix(".new").write_text(str(free.getsockname()[1]))
        path.with_suffix(".new").rename(path)
    until = time.monotonic() + 60
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.05)
    jax.config.update("jax_platforms", "cpu" if platform == "cpu" else f"{platform},cpu")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    own = None if platform == "cpu" else [rank]
    jax.distributed.initialize(f"127.0.0.1:{path.read_text()}", processes, rank, own, initialization_timeout=60)


def work(folder, rank, processes):
    """Each process: convolves, and compares its part with the whole convolution, which it computes too."""
    meet(folder, rank, processes)
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    import narrows

    generator = np.random.default_rng(0)
    x = generator.standard_normal((1, CHANNELS, LENGTH), "float32")
    w = generator.standard_normal((FILTERS, CHANNELS, TAPS), "float32") / TAPS
    mesh = Mesh(np.array(jax.devices()), ("length",))
    lies = NamedSharding(mesh, P(None, None, "length"))
    signal = jax.make_array_from_callback(x.shape, lies, lambda index: x[index])
    weights = jax.make_array_from_callback(w.shape, NamedSharding(mesh, P()), lambda index: w[index])
    run = convolution(mesh)
    found = run(signal, weights)
    text = run.lower(signal, weights).compile().as_text() or ""
    expected = np.asarray(narrows.conv1d(x, w, padding="same"))
    error = max(np.abs(np.asarray(part.data) - expected[part.index]).max() for part in found.addressable_shards)
    swapped = (TAPS // 2) * CHANNELS * x.itemsize
    print(
        f"process {rank} of {processes}: {LENGTH // mesh.size} samples, {swapped} bytes to each neighbour, largest error {error:.1e}"
    )
    if error > 1e-5 or "all-gather" in text or "collective-permute" not in text:
        raise SystemExit(f"process {rank}: the parts differ from the whole, or more is communicated than the samples at the cuts")


def main():
    if len(sys.argv) == 4:
        return work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with tempfile.TemporaryDirectory() as folder:
        started = [subprocess.Popen([sys.executable, __file__, folder, str(rank), str(processes)]) for rank in range(processes)]
        codes = [process.wait() for process in started]
    sys.exit(max(codes, key=abs))


if __name__ == "__main__":
    main()
