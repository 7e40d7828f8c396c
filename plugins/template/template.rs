// SPDX-License-Identifier: Apache-2.0 OR MIT-0
// Copyright The libcore authors

//! The smallest plugin in Rust: a note, an entry, an init that registers
//! nothing.  The types are those of plugin.h (ABI 0.1), written by hand; see
//! docs/plugin-languages.md.  Rust 1.77 or later.

#![allow(non_upper_case_globals)]

use std::mem::{offset_of, size_of};
use std::os::raw::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

type Status = i32;
const CORE_OK: Status = 0;
const CORE_ERROR_INCOMPATIBLE: Status = 15;
const CORE_ERROR_INTERNAL: Status = 22;
const ABI_MAJOR: u32 = 0;
const ABI_MINOR: u32 = 1;

#[repr(C)]
pub struct Text {
    data: *const u8,
    size: u64,
}

#[repr(C)]
pub struct Offer {
    struct_size: u32,
    abi_major: u32,
    abi_minor_min: u32,
    abi_minor_max: u32,
    runtime_version: Text,
}

type Init =
    unsafe extern "C" fn(*const c_void, *mut c_void, *mut *mut c_void) -> Status;
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
}

// The sizes and offsets that plugin.h asserts for the same structs.
const _: () = {
    assert!(size_of::<Text>() == 16);
    assert!(size_of::<Offer>() == 32);
    assert!(offset_of!(Offer, runtime_version) == 16);
    assert!(size_of::<Answer>() == 48);
    assert!(offset_of!(Answer, refusal) == 16);
    assert!(offset_of!(Answer, init) == 32);
    assert!(offset_of!(Answer, shutdown) == 40);
    assert!(size_of::<Note>() == 320);
    assert!(offset_of!(Note, name) == 32);
    assert!(offset_of!(Note, device_types) == 192);
    assert!(offset_of!(NoteInFile, content) == 20);
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
    content_size: 320,
    kind: 0x434f_5245,
    owner: *b"libcore\0",
    content: Note {
        magic: *b"LIBCORE\0",
        note_version: 1,
        abi_major: ABI_MAJOR,
        abi_minor_min: 1,
        abi_minor_max: ABI_MINOR,
        flags: 0,
        reserved: 0,
        name: padded(b"template_rs"),
        vendor: padded(b"libcore"),
        version: padded(b"1.0"),
        license: padded(b"MIT-0"),
        device_types: padded(b""),
        minimum_driver: padded(b""),
    },
};

// ------------------------------------------------------------ the plugin --

static HOST: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

fn guarded<F: FnOnce() -> Status>(body: F) -> Status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(status) => status,
        Err(_) => CORE_ERROR_INTERNAL,
    }
}

unsafe extern "C" fn init(
    host: *const c_void,
    _registry: *mut c_void,
    out_plugin: *mut *mut c_void,
) -> Status {
    guarded(|| {
        HOST.store(host as *mut c_void, Ordering::Release);
        unsafe { *out_plugin = ptr::null_mut() };
        CORE_OK
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
    static WHY: &[u8] = b"supports only plugin ABI 0.1";
    let (offer, answer) = unsafe { (&*offer, &mut *answer) };
    answer.struct_size = size_of::<Answer>() as u32;
    answer.abi_minor = ABI_MINOR;
    answer.host_minor_min = ABI_MINOR;
    answer.flags = 0;
    answer.init = Some(init);
    answer.shutdown = Some(shutdown);
    answer.refusal = Text { data: ptr::null(), size: 0 };
    if offer.abi_major == ABI_MAJOR
        && offer.abi_minor_min <= ABI_MINOR
        && offer.abi_minor_max >= ABI_MINOR
    {
        return CORE_OK;
    }
    answer.refusal = Text { data: WHY.as_ptr(), size: WHY.len() as u64 };
    CORE_ERROR_INCOMPATIBLE
}
