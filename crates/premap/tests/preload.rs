// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests the library as programs use it: preloaded, and by a call of its function.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const PAGE: usize = 4096;

/// Path of the library, in the parent of the tests' directory. Cargo does not build a library that
/// a test does not link with, so the first test builds the library.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().unwrap().parent().unwrap();
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", env!("CARGO_PKG_NAME")])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("CARGO_TARGET_DIR", profile.parent().unwrap())
            .status()
            .unwrap();
        assert!(built.success(), "the library cannot be built");
        let library = profile.join("liblimelight_premap.so");
        assert!(library.exists(), "there is no {}", library.display());
        library
    })
}

/// Runs one of the ignored tests below in a new process, on its main thread, with the library
/// preloaded. Returns the library's log.
fn child(test: &str, environment: &[(&str, &str)]) -> String {
    let log = tempfile::NamedTempFile::new().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--test-threads=1", test])
        .env("LD_PRELOAD", library())
        .env("LIMELIGHT_PREMAP_LOG", log.path())
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
    fs::read_to_string(log.path()).unwrap()
}

/// The number that precedes these words in the log.
fn logged(log: &str, words: &str) -> usize {
    let before = log.split(words).next().unwrap();
    before
        .split(' ')
        .rfind(|word| !word.is_empty())
        .unwrap()
        .parse()
        .unwrap()
}

fn resident(start: usize, pages: usize) -> usize {
    let mut map = vec![0u8; pages];
    // SAFETY: `map` has a byte for each page; a range that is not mapped is refused.
    let failed =
        unsafe { libc::mincore(start as *mut libc::c_void, pages * PAGE, map.as_mut_ptr()) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    map.iter().filter(|&&byte| byte & 1 != 0).count()
}

#[test]
#[ignore = "runs in a process of its own"]
fn heap_is_resident_before_it_is_touched() {
    // SAFETY: blocks of the allocator, which are leaked; the break is only read.
    unsafe {
        let mut grown = 0;
        let mut end = libc::sbrk(0) as usize;
        for _ in 0..2000 {
            assert!(!libc::malloc(2000).is_null());
            let now = libc::sbrk(0) as usize;
            if now != end && end != 0 {
                grown += 1;
                let pages = (now - end) / PAGE;
                assert_eq!(resident(end, pages), pages);
            }
            end = now;
        }
        assert!(grown >= 8, "the break moved only {grown} times");
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn large_block_is_resident_and_zeroed_block_is_not() {
    let large = 400 << 10;
    // SAFETY: blocks of the allocator, which are leaked and not accessed.
    unsafe {
        let block = libc::malloc(large) as usize;
        assert_eq!(resident(block / PAGE * PAGE, 100), 100);
        let zeroed = libc::calloc(1, large) as usize;
        assert!(resident(zeroed / PAGE * PAGE + PAGE, 98) < 10);
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn block_is_not_resident_before_it_is_touched() {
    // SAFETY: a block of the allocator, which is leaked and not accessed.
    let block = unsafe { libc::malloc(400 << 10) } as usize;
    assert!(resident(block / PAGE * PAGE + PAGE, 98) < 10);
}

#[test]
#[ignore = "runs in a process of its own"]
fn commits_are_populated_and_files_are_not() {
    // SAFETY: mappings of this test, which are leaked.
    unsafe {
        let map = |protection, flags, file| {
            let start = libc::mmap(std::ptr::null_mut(), 64 * PAGE, protection, flags, file, 0);
            assert_ne!(start, libc::MAP_FAILED);
            start
        };
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let reserved = map(libc::PROT_NONE, anonymous, -1);
        assert_eq!(libc::mprotect(reserved, 16 * PAGE, both), 0);
        assert_eq!(resident(reserved as usize, 16), 16);
        assert_eq!(resident(reserved as usize + 16 * PAGE, 48), 0);
        let fresh = map(both, anonymous, -1);
        assert_eq!(resident(fresh as usize, 64), 64);
        let lazy = map(both, anonymous | libc::MAP_NORESERVE, -1);
        assert_eq!(resident(lazy as usize, 64), 0);
    }
}

#[test]
fn heap_is_populated() {
    // With one arena, all threads, including the test's, use the main heap.
    let one_arena = [("MALLOC_ARENA_MAX", "1")];
    let log = child("heap_is_resident_before_it_is_touched", &one_arena);
    assert!(logged(&log, " extensions") >= 8, "{log}");
    assert!(logged(&log, " KiB populated") >= 8 * 100, "{log}");
}

#[test]
fn large_blocks_are_populated() {
    child("large_block_is_resident_and_zeroed_block_is_not", &[]);
}

#[test]
fn reservations_are_populated_when_committed() {
    child("commits_are_populated_and_files_are_not", &[]);
}

#[test]
fn environment_variable_limits_the_extensions() {
    let log = child(
        "block_is_not_resident_before_it_is_touched",
        &[("LIMELIGHT_PREMAP_MAX_KIB", "0")],
    );
    assert_eq!(logged(&log, " KiB populated"), 0, "{log}");
}

#[test]
fn allocator_can_call_the_library() {
    let path = CString::new(library().to_str().unwrap()).unwrap();
    // SAFETY: the library has the symbol with this type (include/limelight-premap.h); the mapping
    // belongs to this test and is leaked.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!handle.is_null());
        let symbol = libc::dlsym(handle, c"limelight_premap".as_ptr());
        assert!(!symbol.is_null());
        let premap: extern "C" fn(*mut libc::c_void, usize) -> libc::c_long =
            std::mem::transmute(symbol);
        let start = libc::mmap(
            std::ptr::null_mut(),
            64 * PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(start, libc::MAP_FAILED);
        // Whole pages only.
        assert_eq!(
            premap(start.byte_add(1), 3 * PAGE),
            2 * PAGE as libc::c_long
        );
        assert_eq!(resident(start as usize, 64), 2);
        // Larger than the largest extension.
        assert_eq!(premap(start, 2 << 20), 0);
        // Unmapped memory.
        let gone = start.byte_add(32 * PAGE);
        assert_eq!(libc::munmap(gone, 32 * PAGE), 0);
        assert_eq!(premap(gone, 4 * PAGE), -1);
        assert_eq!(*libc::__errno_location(), libc::ENOMEM);
    }
}
