// Puzzle 17 of MAX, a 1-D convolution, from Rust, with rustc alone. The structs are those of dlpack.h, abi.h and ops.h.
//   rustc -O main.rs -o caller_rust -L native=$(pkg-config --variable=libdir narrows) && ./caller_rust
use std::ffi::CStr;
use std::os::raw::{c_char, c_void};
use std::ptr::{null, null_mut};

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct DLDevice {
    device_type: i32,
    device_id: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DLDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DLTensor {
    data: *mut c_void,
    device: DLDevice,
    ndim: i32,
    dtype: DLDataType,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
struct Error {
    status: i32,
    argument: i32,
    native_code: i64,
    message: [c_char; 496],
}

#[repr(C)]
struct Call {
    struct_size: u32,
    flags: u32,
    num_inputs: u32,
    num_outputs: u32,
    op: *const c_char,
    inputs: *const *const DLTensor,
    outputs: *const *const DLTensor,
    params: *const c_void,
    params_size: u64,
    stream: *mut c_void,
    workspace: *mut c_void,
    workspace_size: u64,
    device: DLDevice,
    backend: *const c_char,
    kernel: *const c_char,
}

#[repr(C)]
struct PlanInfo {
    struct_size: u32,
    traits: u32,
    workspace_size: u64,
    kernel: *const c_char,
    backend: *const c_char,
}

#[repr(C)]
struct DeviceInfo {
    struct_size: u32,
    flags: u32,
    name: [c_char; 128],
    arch: [c_char; 128],
    uuid: [u8; 16],
    total_memory: u64,
}

#[repr(C)]
#[derive(Default)]
struct Conv1dParams {
    stride: i64,
    dilation: i64,
    groups: i64,
    pad_left: i64,
    pad_right: i64,
    padding_mode: i64,
}

#[link(name = "narrows")]
extern "C" {
    fn nw_status_name(status: i32) -> *const c_char;
    fn nw_runtime_create(options: *const c_void, out: *mut *mut c_void, error: *mut Error) -> i32;
    fn nw_runtime_destroy(runtime: *mut c_void);
    fn nw_plan_get(runtime: *mut c_void, call: *const Call, out: *mut *mut c_void, info: *mut PlanInfo, error: *mut Error) -> i32;
    fn nw_launch(plan: *const c_void, call: *const Call, error: *mut Error) -> i32;
    fn nw_plan_release(plan: *mut c_void);
    fn nw_device(runtime: *mut c_void, device: DLDevice, out: *mut DeviceInfo, error: *mut Error) -> i32;
}

const CPU: DLDevice = DLDevice { device_type: 1, device_id: 0 };
const F32: DLDataType = DLDataType { code: 2, bits: 32, lanes: 1 };

fn text(s: *const c_char) -> String {
    if s.is_null() { "unnamed".into() } else { unsafe { CStr::from_ptr(s) }.to_string_lossy().into_owned() }
}

/// Turns a status and the error that came with it into a Result.
fn check(f: impl FnOnce(*mut Error) -> i32) -> Result<(), String> {
    let mut error = Error { status: 0, argument: -1, native_code: 0, message: [0; 496] };
    match f(&mut error) {
        0 => Ok(()),
        status => Err(format!("{}: {}", text(unsafe { nw_status_name(status) }), text(error.message.as_ptr()))),
    }
}

/// Destroys the runtime, and releases the plan first, when it goes out of scope.
struct Session {
    runtime: *mut c_void,
    plan: *mut c_void,
}

impl Drop for Session {
    fn drop(&mut self) {
        unsafe {
            nw_plan_release(self.plan);
            nw_runtime_destroy(self.runtime);
        }
    }
}

fn tensor(data: *const f32, shape: &[i64; 1]) -> DLTensor {
    DLTensor { data: data as *mut c_void, device: CPU, ndim: 1, dtype: F32, shape: shape.as_ptr(), strides: null(), byte_offset: 0 }
}

fn run() -> Result<(), String> {
    let x: Vec<f32> = (0..15).map(|i| i as f32).collect();
    let w = [0f32, 1., 2., 3.];
    let mut y = [0f32; 15];
    let (tx, tw, ty) = (tensor(x.as_ptr(), &[15]), tensor(w.as_ptr(), &[4]), tensor(y.as_mut_ptr(), &[15]));
    let (inputs, outputs) = ([&tx as *const DLTensor, &tw], [&ty as *const DLTensor]);
    let params = Conv1dParams { pad_right: 3, ..Default::default() };
    let call = Call {
        struct_size: std::mem::size_of::<Call>() as u32,
        flags: 0,
        num_inputs: 2,
        num_outputs: 1,
        op: b"conv1d\0".as_ptr() as *const c_char,
        inputs: inputs.as_ptr(),
        outputs: outputs.as_ptr(),
        params: &params as *const Conv1dParams as *const c_void,
        params_size: std::mem::size_of::<Conv1dParams>() as u64,
        stream: null_mut(),
        workspace: null_mut(),
        workspace_size: 0,
        device: DLDevice::default(), // where the tensors live
        backend: null(),
        kernel: null(),
    };

    let mut session = Session { runtime: null_mut(), plan: null_mut() };
    let mut info = PlanInfo { struct_size: std::mem::size_of::<PlanInfo>() as u32, traits: 0, workspace_size: 0, kernel: null(), backend: null() };
    let mut device: DeviceInfo = unsafe { std::mem::zeroed() };
    device.struct_size = std::mem::size_of::<DeviceInfo>() as u32;
    unsafe {
        check(|error| nw_runtime_create(null(), &mut session.runtime, error))?;
        check(|error| nw_plan_get(session.runtime, &call, &mut session.plan, &mut info, error))?;
        check(|error| nw_launch(session.plan, &call, error))?;
        check(|error| nw_device(session.runtime, CPU, &mut device, error))?;
    }

    println!("{}", y.map(|v| v.to_string()).join(" "));
    println!("conv1d ran on {}, kernel {}: {}, {}", text(info.backend), text(info.kernel), text(device.name.as_ptr()), text(device.arch.as_ptr()));
    Ok(())
}

fn main() {
    if let Err(message) = run() {
        eprintln!("caller_rust: {message}");
        std::process::exit(1);
    }
}
