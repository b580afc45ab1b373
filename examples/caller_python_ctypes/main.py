# SPDX-License-Identifier: Apache-2.0
"""Puzzle 17 of MAX, a 1-D convolution, from Python's standard library. The structs are those of dlpack.h, abi.h and ops.h.

python3 main.py
"""

import sys
from ctypes import CDLL, POINTER, Structure, addressof, byref, c_char, c_char_p, c_float, c_int32, c_int64
from ctypes import c_uint8, c_uint16, c_uint32, c_uint64, c_void_p, sizeof


def struct(name, /, **fields):
    return type(name, (Structure,), {"_fields_": list(fields.items())})


DLDevice = struct("DLDevice", device_type=c_int32, device_id=c_int32)
DLDataType = struct("DLDataType", code=c_uint8, bits=c_uint8, lanes=c_uint16)
DLTensor = struct("DLTensor", data=c_void_p, device=DLDevice, ndim=c_int32, dtype=DLDataType, shape=POINTER(c_int64),
                  strides=POINTER(c_int64), byte_offset=c_uint64)  # fmt: skip
Error = struct("Error", status=c_int32, argument=c_int32, native_code=c_int64, message=c_char * 496)
Call = struct("Call", struct_size=c_uint32, flags=c_uint32, num_inputs=c_uint32, num_outputs=c_uint32, op=c_char_p,
              inputs=POINTER(POINTER(DLTensor)), outputs=POINTER(POINTER(DLTensor)), params=c_void_p, params_size=c_uint64,
              stream=c_void_p, workspace=c_void_p, workspace_size=c_uint64, device=DLDevice, backend=c_char_p,
              kernel=c_char_p)  # fmt: skip
PlanInfo = struct("PlanInfo", struct_size=c_uint32, traits=c_uint32, workspace_size=c_uint64, kernel=c_char_p, backend=c_char_p)
DeviceInfo = struct("DeviceInfo", struct_size=c_uint32, flags=c_uint32, name=c_char * 128, arch=c_char * 128, uuid=c_uint8 * 16,
                    total_memory=c_uint64)  # fmt: skip
Conv1dParams = struct("Conv1dParams", stride=c_int64, dilation=c_int64, groups=c_int64, pad_left=c_int64, pad_right=c_int64,
                      padding_mode=c_int64)  # fmt: skip

library = CDLL("libnarrows.so.1")
library.nw_status_name.restype = c_char_p
library.nw_device.argtypes = [c_void_p, DLDevice, c_void_p, c_void_p]
library.nw_runtime_destroy.argtypes = library.nw_plan_release.argtypes = [c_void_p]
library.nw_runtime_destroy.restype = library.nw_plan_release.restype = None

CPU = DLDevice(1, 0)
F32 = DLDataType(2, 32, 1)


def call(function, *arguments):
    """Calls a function that returns a status; a failure is raised."""
    error = Error()
    status = function(*arguments, byref(error))
    if status != 0:
        raise RuntimeError(f"{library.nw_status_name(status).decode()}: {error.message.decode()}")


def tensor(values):
    """A DLTensor over a ctypes array, which it keeps alive."""
    shape = (c_int64 * 1)(len(values))
    t = DLTensor(addressof(values), CPU, 1, F32, shape, None, 0)
    t.owner = values
    return t


def tensors(*list_of_tensors):
    return (POINTER(DLTensor) * len(list_of_tensors))(*map(POINTER(DLTensor), list_of_tensors))


def conv1d(runtime, x, w, y, **fields):
    """Computes y from x and w; gives what ran."""
    inputs, outputs, params = tensors(tensor(x), tensor(w)), tensors(tensor(y)), Conv1dParams(**fields)
    c = Call(struct_size=sizeof(Call), op=b"conv1d", num_inputs=2, inputs=inputs, num_outputs=1, outputs=outputs,
             params=addressof(params), params_size=sizeof(params))  # fmt: skip
    plan, info = c_void_p(), PlanInfo(struct_size=sizeof(PlanInfo))
    call(library.nw_plan_get, runtime, byref(c), byref(plan), byref(info))
    try:
        call(library.nw_launch, plan, byref(c))
        return info.backend.decode(), (info.kernel or b"unnamed").decode()
    finally:
        library.nw_plan_release(plan)


def main():
    x, w, y = (c_float * 15)(*range(15)), (c_float * 4)(0, 1, 2, 3), (c_float * 15)()
    runtime, device = c_void_p(), DeviceInfo(struct_size=sizeof(DeviceInfo))
    call(library.nw_runtime_create, None, byref(runtime))
    try:
        backend, kernel = conv1d(runtime, x, w, y, pad_right=3)
        call(library.nw_device, runtime, CPU, byref(device))
    finally:
        library.nw_runtime_destroy(runtime)
    print(*(f"{value:g}" for value in y))
    print(f"conv1d ran on {backend}, kernel {kernel}: {device.name.decode()}, {device.arch.decode()}")


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        sys.exit(f"caller_python_ctypes: {error}")
