// Puzzle 17 of MAX, a 1-D convolution, from Go.
//
//	go run main.go
package main

/*
#cgo pkg-config: narrows
#include <narrows/narrows.h>

// Builds the call in C: Go may not hand out memory that holds pointers to its own memory.
static int32_t conv1d(nw_runtime* runtime, float* x, int64_t length, float* w, int64_t taps, float* y, int64_t out_length,
                      nw_conv1d_params params, nw_plan** plan, nw_plan_info* info, nw_error* error) {
  const DLDevice cpu = {kDLCPU, 0};
  const DLDataType f32 = {kDLFloat, 32, 1};
  const DLTensor tx = {x, cpu, 1, f32, &length, NULL, 0}, tw = {w, cpu, 1, f32, &taps, NULL, 0};
  const DLTensor ty = {y, cpu, 1, f32, &out_length, NULL, 0};
  const DLTensor *inputs[] = {&tx, &tw}, *outputs[] = {&ty};
  const nw_call call = {.struct_size = sizeof call, .op = "conv1d", .num_inputs = 2, .inputs = inputs, .num_outputs = 1,
                        .outputs = outputs, .params = &params, .params_size = sizeof params};
  const int32_t status = nw_plan_get(runtime, &call, plan, info, error);
  return status == NW_OK ? nw_launch(*plan, &call, error) : status;
}
*/
import "C"

import (
	"fmt"
	"os"
	"strings"
	"unsafe"
)

// check turns a status and the error that came with it into a Go error.
func check(status C.int32_t, e *C.nw_error) error {
	if status == C.NW_OK {
		return nil
	}
	return fmt.Errorf("%s: %s", C.GoString(C.nw_status_name(status)), C.GoString(&e.message[0]))
}

func run() error {
	x := make([]float32, 15)
	for i := range x {
		x[i] = float32(i)
	}
	w := []float32{0, 1, 2, 3}
	y := make([]float32, 15)

	var e C.nw_error
	var runtime *C.nw_runtime
	if err := check(C.nw_runtime_create(nil, &runtime, &e), &e); err != nil {
		return err
	}
	defer C.nw_runtime_destroy(runtime)

	var plan *C.nw_plan
	info := C.nw_plan_info{struct_size: C.sizeof_nw_plan_info}
	status := C.conv1d(runtime, (*C.float)(unsafe.Pointer(&x[0])), C.int64_t(len(x)), (*C.float)(unsafe.Pointer(&w[0])), C.int64_t(len(w)),
		(*C.float)(unsafe.Pointer(&y[0])), C.int64_t(len(y)), C.nw_conv1d_params{pad_right: 3}, &plan, &info, &e)
	defer func() { C.nw_plan_release(plan) }() // runs before the runtime is destroyed
	if err := check(status, &e); err != nil {
		return err
	}
	device := C.nw_device_info{struct_size: C.sizeof_nw_device_info}
	if err := check(C.nw_device(runtime, C.DLDevice{device_type: C.kDLCPU}, &device, &e), &e); err != nil {
		return err
	}

	fmt.Println(strings.Trim(fmt.Sprint(y), "[]"))
	fmt.Printf("conv1d ran on %s, kernel %s: %s, %s\n", C.GoString(info.backend), C.GoString(info.kernel), C.GoString(&device.name[0]),
		C.GoString(&device.arch[0]))
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "caller_go:", err)
		os.Exit(1)
	}
}
