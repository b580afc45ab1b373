# SPDX-License-Identifier: Apache-2.0
"""relu(A B) by TVM's compiler under the same steps, where TVM is installed: rows of benchmarks/programs.py."""


class Steps:
    """Lines of a Narrows schedule, applied to TVM's Schedule."""

    def __init__(self, n):
        import tvm
        from tvm import te

        a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
        k = te.reduce_axis((0, n), name="k")
        y = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="Y")
        c = te.compute((n, n), lambda i, j: te.if_then_else(y[i, j] > 0, y[i, j], 0.0), name="C")
        space = tvm.s_tir if hasattr(tvm, "s_tir") else tvm.tir  # its name since TVM 0.27
        self.schedule = space.Schedule(te.create_prim_func([a, b, c]))
        get_block = getattr(self.schedule, "get_sblock", None) or self.schedule.get_block
        self.blocks = {name: get_block(name) for name in "YC"}
        self.loops = dict(zip("ijk", self.schedule.get_loops(self.blocks["Y"]), strict=True))

    def split(self, loop, factors):
        parts = self.schedule.split(self.loops[loop], factors=factors)
        self.loops.update({f"{loop}_{n}": part for n, part in enumerate(parts)})

    def reorder(self, loops):
        self.schedule.reorder(*(self.loops[name] for name in loops))

    def reverse_compute_at(self, block, loop):
        self.schedule.reverse_compute_at(self.blocks[block], self.loops[loop])

    def decompose_reduction(self, block, loop):
        self.schedule.decompose_reduction(self.blocks[block], self.loops[loop])

    def vectorize(self, loop):
        self.schedule.vectorize(self.loops[loop])

    def unroll(self, loop):
        self.schedule.unroll(self.loops[loop])

    def annotate(self, **_):
        """`contract`: TVM's compiler fuses multiplications with additions unasked."""


def compiled(n, steps):
    """A function of three tensors of TVM's. Raises ImportError without TVM."""
    import tvm

    applied = Steps(n)
    # TVM vectorizes no loop of a reduction that was decomposed.
    for line in sorted(steps.splitlines(), key=lambda line: line.startswith("decompose_reduction")):
        eval(f"applied.{line}", {"applied": applied})
    return tvm.compile(applied.schedule.mod, target={"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu()})


def tensors(*arrays):
    """Copies that TVM owns, aligned as it likes them."""
    import tvm

    return [tvm.runtime.tensor(array) for array in arrays]
