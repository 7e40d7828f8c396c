// SPDX-License-Identifier: Apache-2.0 OR MIT-0
// Copyright The libcore authors

//! template.rs: the skeleton in Rust, to be copied: a device in host memory and
//! three kernels, as in the C++ template.  The types are those of plugin.h,
//! kernel.h and backend.h, written by hand as far as they are used; see
//! docs/plugin-languages.md.  Rust 1.77 or later.

#![allow(non_upper_case_globals)]

use std::alloc::{self, dealloc, Layout};
use std::mem::{offset_of, size_of, transmute};
use std::os::raw::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

type Status = i32;
const CORE_OK: Status = 0;
const CORE_ERROR_OUT_OF_MEMORY: Status = 2;
const CORE_ERROR_UNSUPPORTED: Status = 3;
const CORE_ERROR_INCOMPATIBLE: Status = 15;
const CORE_ERROR_INTERNAL: Status = 22;
const CORE_F64: u32 = 1;
const CORE_F32: u32 = 2;
const CORE_DEVICE_FLAT: u32 = 1 << 0;
const CORE_DEVICE_HAS_F64: u32 = 1 << 3;
const CORE_OPERAND_IMMEDIATE: u32 = 1 << 1;
const ABI_MAJOR: u32 = 0;
const ABI_MINOR_MIN: u32 = 1; // the oldest libcore that it runs in
const ABI_MINOR: u32 = 6; // the headers that the types below are from

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text {
    data: *const u8,
    size: u64,
}

const fn text(from: &'static str) -> Text {
    Text { data: from.as_ptr(), size: from.len() as u64 }
}

#[repr(C)]
pub struct Offer {
    struct_size: u32,
    abi_major: u32,
    abi_minor_min: u32,
    abi_minor_max: u32,
    runtime_version: Text,
}

type Registry = c_void;
type Init =
    unsafe extern "C" fn(*const Host, *mut Registry, *mut *mut c_void) -> Status;
type Shutdown = unsafe extern "C" fn(*mut c_void, u64) -> Status;

#[repr(C)]
pub struct Answer {
    struct_size: u32,
    abi_minor: u32,
    host_minor_min: u32,
    flags: u32,
    refusal: Text,
    init: Option<Init>,
    shutdown: Option<Shutdown>,
}

// ------------------------------------------- plugin.h: the host's table --

#[repr(C)]
pub struct ErrorInfo {
    struct_size: u32,
    code: Status,
    severity: u32,
    retryable: u32,
    vendor_code: i64,
    component: Text,
    text: Text,
}

/// The first members of core_host; libcore's is longer.
#[repr(C)]
pub struct Host {
    struct_size: u32,
    abi_minor: u32,
    error: unsafe extern "C" fn(*const ErrorInfo) -> Status,
    log: unsafe extern "C" fn(u32, Text, Text),
    setting: unsafe extern "C" fn(Text) -> Text,
    register_backend: unsafe extern "C" fn(*mut Registry, *const Backend) -> Status,
    register_kernels:
        unsafe extern "C" fn(*mut Registry, Text, *const *const Kernel, u32) -> Status,
}

// ---------------------------------------------------- backend.h, kernel.h --

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Memory {
    handle: *mut c_void,
    offset: u64,
}

/// The first members of core_device_properties: libcore's may be longer.
#[repr(C)]
pub struct Properties {
    struct_size: u32,
    flags: u32,
    base_alignment: u64,
    granularity: u64,
    tail_padding: u64,
    largest_allocation: u64,
    total_memory: u64,
    compute_units: u32,
    numa_node: u32,
    max_streams: u32,
    reserved: u32,
}

#[repr(C)]
pub struct MemoryTable {
    struct_size: u32,
    reserved: u32,
    alloc: Option<unsafe extern "C" fn(*mut c_void, u64, *mut Memory) -> Status>,
    free: Option<unsafe extern "C" fn(*mut c_void, Memory, u64)>,
    info: Option<unsafe extern "C" fn(*mut c_void, *mut u64, *mut u64) -> Status>,
    copy_from_host: Option<
        unsafe extern "C" fn(*mut c_void, *mut c_void, Memory, *const u8, u64) -> Status,
    >,
    copy_to_host: Option<
        unsafe extern "C" fn(*mut c_void, *mut c_void, *mut u8, Memory, u64) -> Status,
    >,
    copy: Option<
        unsafe extern "C" fn(*mut c_void, *mut c_void, Memory, Memory, u64) -> Status,
    >,
    fill: Option<
        unsafe extern "C" fn(*mut c_void, *mut c_void, Memory, u64, u64, u32) -> Status,
    >,
}

#[repr(C)]
pub struct Backend {
    struct_size: u32,
    flags: u32,
    device_type: Text,
    user: *mut c_void,
    enumerate: Option<unsafe extern "C" fn(*mut c_void, *mut u32, *mut Text) -> Status>,
    device_open:
        Option<unsafe extern "C" fn(*mut c_void, u32, *mut *mut c_void) -> Status>,
    device_close: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    device_information: Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> Status>,
    device_properties:
        Option<unsafe extern "C" fn(*mut c_void, *mut Properties) -> Status>,
    device_status: Option<unsafe extern "C" fn(*mut c_void) -> Status>,
    get_interface:
        Option<unsafe extern "C" fn(*mut c_void, Text, u32) -> *const c_void>,
    memory: *const MemoryTable,
    streams: *const c_void,
    events: *const c_void,
}

#[repr(C)]
pub struct Operand {
    memory: Memory,
    strides: *const i64, // in bytes, innermost dimension first
    dtype: u32,
    flags: u32,
    immediate: u64,
    reserved: u64,
}

#[repr(C)]
pub struct Loop {
    struct_size: u32,
    flags: u32,
    ndim: u32,
    noperands: u32,
    noutputs: u32,
    reduced: u32,
    numel: i64,
    sizes: *const i64,
    operands: *const Operand,
}

/// The first members of core_call.
#[repr(C)]
pub struct Call {
    struct_size: u32,
    flags: u32,
    host: *const Host,
    user: *mut c_void,
    op: *mut c_void,
    keys: u64,
    r#loop: *const Loop,
}

type Launch = unsafe extern "C" fn(
    *mut Call,
    *const c_void, // core_value
    u32,
    *mut c_void,
    u32,
) -> Status;

#[repr(C)]
pub struct Kernel {
    struct_size: u32,
    demands: u32,
    name: Text,
    signature: [u32; 8],
    max_ndim: u32,
    reserved: u32,
    launch: Option<Launch>,
    user: *mut c_void,
    supports: Option<unsafe extern "C" fn(*const Call, *const c_void, u32) -> Status>,
    prepare: *const c_void,
    plan_destroy: *const c_void,
}

// ------------------------------------------------------------- the note --

#[repr(C)]
pub struct Note {
    magic: [u8; 8],
    note_version: u32,
    abi_major: u32,
    abi_minor_min: u32,
    abi_minor_max: u32,
    flags: u32,
    reserved: u32,
    name: [u8; 32],
    vendor: [u8; 64],
    version: [u8; 32],
    license: [u8; 32],
    device_types: [u8; 64],
    minimum_driver: [u8; 64],
}

#[repr(C, align(4))]
pub struct NoteInFile {
    owner_size: u32,
    content_size: u32,
    kind: u32,
    owner: [u8; 8],
    content: Note,
    seal: [u8; 32], // which `core-info --seal` fills
}

// The offsets in the headers, and the sizes of structs that never grow.  Others
// may be longer in a later minor; struct_size says how long.
const _: () = {
    assert!(size_of::<Text>() == 16);
    assert!(size_of::<Offer>() == 32);
    assert!(offset_of!(Offer, runtime_version) == 16);
    assert!(size_of::<Answer>() == 48);
    assert!(offset_of!(Answer, refusal) == 16);
    assert!(offset_of!(Answer, init) == 32);
    assert!(offset_of!(Answer, shutdown) == 40);
    assert!(offset_of!(ErrorInfo, vendor_code) == 16);
    assert!(offset_of!(ErrorInfo, text) == 40);
    assert!(offset_of!(Host, error) == 8);
    assert!(offset_of!(Host, register_backend) == 32);
    assert!(offset_of!(Host, register_kernels) == 40);
    assert!(size_of::<Memory>() == 16);
    assert!(offset_of!(Properties, base_alignment) == 8);
    assert!(offset_of!(Properties, numa_node) == 52);
    assert!(offset_of!(MemoryTable, alloc) == 8);
    assert!(offset_of!(MemoryTable, fill) == 56);
    assert!(offset_of!(Backend, device_properties) == 64);
    assert!(offset_of!(Backend, memory) == 88);
    assert!(offset_of!(Backend, events) == 104);
    assert!(size_of::<Operand>() == 48);
    assert!(offset_of!(Operand, strides) == 16);
    assert!(offset_of!(Operand, immediate) == 32);
    assert!(offset_of!(Loop, sizes) == 32);
    assert!(offset_of!(Loop, operands) == 40);
    assert!(offset_of!(Call, user) == 16);
    assert!(offset_of!(Call, r#loop) == 40);
    assert!(offset_of!(Kernel, signature) == 24);
    assert!(offset_of!(Kernel, launch) == 64);
    assert!(offset_of!(Kernel, user) == 72);
    assert!(offset_of!(Kernel, plan_destroy) == 96);
    assert!(size_of::<Note>() == 320);
    assert!(offset_of!(Note, name) == 32);
    assert!(offset_of!(Note, device_types) == 192);
    assert!(offset_of!(NoteInFile, content) == 20);
    assert!(offset_of!(NoteInFile, seal) == 340);
};

const fn padded<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut to = [0u8; N];
    let mut i = 0;
    while i < text.len() {
        to[i] = text[i];
        i += 1;
    }
    to
}

#[used]
#[link_section = ".note.libcore"]
pub static NOTE: NoteInFile = NoteInFile {
    owner_size: 8,
    content_size: 352, // of the note and the seal
    kind: 0x434f_5245,
    owner: *b"libcore\0",
    content: Note {
        magic: *b"LIBCORE\0",
        note_version: 1,
        abi_major: ABI_MAJOR,
        abi_minor_min: ABI_MINOR_MIN,
        abi_minor_max: ABI_MINOR,
        flags: 0,
        reserved: 0,
        name: padded(b"template_rs"),
        vendor: padded(b"libcore"),
        version: padded(b"1.0"),
        license: padded(b"MIT-0"),
        device_types: padded(b"rust"),
        minimum_driver: padded(b""),
    },
    seal: padded(b"UNSEALED"),
};

// ---------------------------------------------------------------- errors --

static HOST: AtomicPtr<Host> = AtomicPtr::new(ptr::null_mut());

fn host() -> &'static Host {
    unsafe { &*HOST.load(Ordering::Acquire) } // as long as the process
}

/// Reports an error and returns its code.
fn fail(code: Status, why: &str) -> Status {
    let info = ErrorInfo {
        struct_size: size_of::<ErrorInfo>() as u32,
        code,
        severity: 0,
        retryable: 0,
        vendor_code: 0,
        component: text("rust"),
        text: Text { data: why.as_ptr(), size: why.len() as u64 },
    };

    unsafe { (host().error)(&info) }
}

fn guarded<F: FnOnce() -> Status>(body: F) -> Status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(status) => status,
        Err(_) => CORE_ERROR_INTERNAL,
    }
}

// --------------------------------------------------------------- devices --

unsafe extern "C" fn enumerate(_: *mut c_void, count: *mut u32, why: *mut Text) -> Status {
    unsafe {
        *count = 1;
        *why = text("");
    }
    CORE_OK
}

unsafe extern "C" fn device_open(
    backend: *mut c_void,
    _index: u32,
    out_device: *mut *mut c_void,
) -> Status {
    unsafe { *out_device = backend };
    CORE_OK
}

unsafe extern "C" fn device_close(_: *mut c_void, _: *mut c_void) {}

unsafe extern "C" fn device_properties(_: *mut c_void, out: *mut Properties) -> Status {
    let out = unsafe { &mut *out }; // an old libcore's is shorter: set only what is used

    out.flags = CORE_DEVICE_FLAT | CORE_DEVICE_HAS_F64;
    out.base_alignment = 64;
    out.granularity = 64;
    out.numa_node = u32::MAX;
    CORE_OK
}

// ---------------------------------------------------------------- memory --

fn address(memory: Memory) -> *mut u8 {
    (memory.handle as *mut u8).wrapping_add(memory.offset as usize)
}

unsafe extern "C" fn alloc(_: *mut c_void, size: u64, out: *mut Memory) -> Status {
    guarded(|| {
        let data = match Layout::from_size_align(size as usize, 64) {
            // Not zeroed, which takes seconds for blocks of gigabytes.
            Ok(layout) if size > 0 => unsafe { alloc::alloc(layout) },
            _ => ptr::null_mut(),
        };

        if data.is_null() {
            return fail(CORE_ERROR_OUT_OF_MEMORY, &format!("no host memory for {size} bytes"));
        }
        unsafe { *out = Memory { handle: data as *mut c_void, offset: 0 } };
        CORE_OK
    })
}

unsafe extern "C" fn release(_: *mut c_void, memory: Memory, size: u64) {
    if let Ok(layout) = Layout::from_size_align(size as usize, 64) {
        unsafe { dealloc(memory.handle as *mut u8, layout) };
    }
}

unsafe extern "C" fn copy_from_host(
    _: *mut c_void,
    _: *mut c_void,
    to: Memory,
    from: *const u8,
    size: u64,
) -> Status {
    unsafe { ptr::copy(from, address(to), size as usize) };
    CORE_OK
}

unsafe extern "C" fn copy_to_host(
    _: *mut c_void,
    _: *mut c_void,
    to: *mut u8,
    from: Memory,
    size: u64,
) -> Status {
    unsafe { ptr::copy(address(from) as *const u8, to, size as usize) };
    CORE_OK
}

unsafe extern "C" fn copy(
    _: *mut c_void,
    _: *mut c_void,
    to: Memory,
    from: Memory,
    size: u64,
) -> Status {
    unsafe { ptr::copy(address(from) as *const u8, address(to), size as usize) };
    CORE_OK
}

unsafe extern "C" fn fill(
    _: *mut c_void,
    _: *mut c_void,
    to: Memory,
    size: u64,
    pattern: u64,
    pattern_size: u32,
) -> Status {
    let pattern = pattern.to_le_bytes();

    for i in 0..size as usize {
        unsafe { *address(to).add(i) = pattern[i % pattern_size as usize] };
    }
    CORE_OK
}

// --------------------------------------------------------------- kernels --

const OPERANDS: usize = 2;
const DIMENSIONS: usize = 32;

trait Element: Copy {
    fn wide(self) -> f64;
    fn narrow(from: f64) -> Self;
}

impl Element for f32 {
    fn wide(self) -> f64 {
        self as f64
    }
    fn narrow(from: f64) -> f32 {
        from as f32
    }
}

impl Element for f64 {
    fn wide(self) -> f64 {
        self
    }
    fn narrow(from: f64) -> f64 {
        from
    }
}

/// Calls row(data, strides, count) for every row of an element-wise loop.
unsafe fn rows<F: FnMut([*mut u8; OPERANDS], [i64; OPERANDS], i64)>(l: &Loop, mut row: F) -> Status {
    let ndim = l.ndim as usize;
    let mut data = [ptr::null_mut(); OPERANDS];
    let mut index = [0i64; DIMENSIONS];

    if l.noperands as usize != OPERANDS || ndim > DIMENSIONS {
        return CORE_ERROR_UNSUPPORTED;
    }
    let operand = |k: usize| unsafe { &*l.operands.add(k) };
    let size = |d: usize| unsafe { *l.sizes.add(d) };
    let stride = |k: usize, d: usize| {
        if d >= ndim || operand(k).flags & CORE_OPERAND_IMMEDIATE != 0 {
            return 0; // an immediate has no strides
        }
        unsafe { *operand(k).strides.add(d) }
    };
    for k in 0..OPERANDS {
        data[k] = if operand(k).flags & CORE_OPERAND_IMMEDIATE != 0 {
            ptr::addr_of!(operand(k).immediate) as *mut u8
        } else {
            address(operand(k).memory)
        };
    }
    loop {
        row(data, [stride(0, 0), stride(1, 0)], if ndim > 0 { size(0) } else { 1 });
        let mut d = 1;
        while d < ndim {
            index[d] += 1;
            let back = index[d] == size(d);
            for k in 0..OPERANDS {
                let steps = if back { 1 - size(d) } else { 1 };
                data[k] = data[k].wrapping_offset((stride(k, d) * steps) as isize);
            }
            if !back {
                break;
            }
            index[d] = 0;
            d += 1;
        }
        if d >= ndim {
            return CORE_OK;
        }
    }
}

/// One function for a family: the user pointer selects the operator.
unsafe extern "C" fn unary<T: Element>(
    call: *mut Call,
    _args: *const c_void,
    _nargs: u32,
    _results: *mut c_void,
    _nresults: u32,
) -> Status {
    guarded(|| unsafe {
        let function: fn(f64) -> f64 = transmute((*call).user);

        rows(&*(*call).r#loop, |data, strides, count| {
            for i in 0..count {
                let from = data[1].wrapping_offset((i * strides[1]) as isize) as *const T;
                let to = data[0].wrapping_offset((i * strides[0]) as isize) as *mut T;

                to.write_unaligned(T::narrow(function(from.read_unaligned().wide())));
            }
        })
    })
}

fn unary_of(name: &'static str, dtype: u32, launch: Launch, function: fn(f64) -> f64) -> Kernel {
    let mut signature = [0; 8];

    signature[0] = 1 << dtype;
    signature[1] = 1 << dtype;
    Kernel {
        struct_size: size_of::<Kernel>() as u32,
        demands: 0,
        name: text(name),
        signature,
        max_ndim: 0,
        reserved: 0,
        launch: Some(launch),
        user: function as *mut c_void,
        supports: None,
        prepare: ptr::null(),
        plan_destroy: ptr::null(),
    }
}

fn register_kernels(registry: *mut Registry) -> Status {
    let family: [(&'static str, fn(f64) -> f64); 3] =
        [("exp", f64::exp), ("sqrt", f64::sqrt), ("tanh", f64::tanh)];
    let mut status = CORE_OK;

    for (name, function) in family {
        let narrow = unary_of(name, CORE_F32, unary::<f32>, function);
        let wide = unary_of(name, CORE_F64, unary::<f64>, function);
        let both: [*const Kernel; 2] = [&narrow, &wide];

        // Everything is copied before the call returns.
        if status == CORE_OK {
            status =
                unsafe { (host().register_kernels)(registry, text("rust"), both.as_ptr(), 2) };
        }
    }
    status
}

// ------------------------------------------------------------ the plugin --

unsafe extern "C" fn init(
    given: *const Host,
    registry: *mut Registry,
    out_plugin: *mut *mut c_void,
) -> Status {
    guarded(|| {
        let memory = MemoryTable {
            struct_size: size_of::<MemoryTable>() as u32,
            reserved: 0,
            alloc: Some(alloc),
            free: Some(release),
            info: None,
            copy_from_host: Some(copy_from_host),
            copy_to_host: Some(copy_to_host),
            copy: Some(copy),
            fill: Some(fill),
        };
        let backend = Backend {
            struct_size: size_of::<Backend>() as u32,
            flags: 0,
            device_type: text("rust"),
            user: ptr::addr_of!(NOTE) as *mut c_void, // any handle but NULL
            enumerate: Some(enumerate),
            device_open: Some(device_open),
            device_close: Some(device_close),
            device_information: None,
            device_properties: Some(device_properties),
            device_status: None,
            get_interface: None,
            memory: &memory,
            streams: ptr::null(), // synchronous
            events: ptr::null(),
        };

        HOST.store(given as *mut Host, Ordering::Release);
        unsafe { *out_plugin = ptr::null_mut() };
        match unsafe { (host().register_backend)(registry, &backend) } {
            CORE_OK => register_kernels(registry),
            status => status,
        }
    })
}

unsafe extern "C" fn shutdown(_plugin: *mut c_void, _deadline_ns: u64) -> Status {
    CORE_OK
}

/// # Safety
/// libcore calls it with an offer and an answer that are its own.
#[no_mangle]
pub unsafe extern "C" fn core_plugin_entry(
    offer: *const Offer,
    answer: *mut Answer,
) -> Status {
    let (offer, answer) = unsafe { (&*offer, &mut *answer) };

    answer.struct_size = size_of::<Answer>() as u32;
    answer.abi_minor = ABI_MINOR.min(offer.abi_minor_max);
    answer.host_minor_min = ABI_MINOR_MIN;
    answer.flags = 0; // std has thread-locals, so it is not safe to unload
    answer.init = Some(init);
    answer.shutdown = Some(shutdown);
    answer.refusal = Text { data: ptr::null(), size: 0 };
    if offer.abi_major == ABI_MAJOR
        && offer.abi_minor_max >= ABI_MINOR_MIN
        && answer.abi_minor >= offer.abi_minor_min
    {
        return CORE_OK;
    }
    answer.refusal = text("has no plugin ABI in common with this libcore");
    CORE_ERROR_INCOMPATIBLE
}
