// SPDX-License-Identifier: GPL-2.0-or-later
//! Perf events of single threads, without overhead for other threads. The submodule [`processor`]
//! counts events of whole processors.

pub mod processor;

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::meminfo::page_bytes;

/// The first version of `struct perf_event_attr`, which every kernel accepts
/// (include/uapi/linux/perf_event.h).
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_kind: u32,
    config1: u64,
}

const KIND_SOFTWARE: u32 = 1;
const KIND_TRACEPOINT: u32 = 2;
const PAGE_FAULTS: u64 = 2;
/// Bit of `flags`: records nothing until it is enabled.
const DISABLED: u64 = 1;
/// Bit of `flags`: also counts threads and child processes that are created later.
const INHERIT: u64 = 1 << 1;
const SAMPLE_RAW: u64 = 1 << 10;
const CLOEXEC: libc::c_ulong = 1 << 3;
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
/// Offsets of `data_head` and `data_tail` in the first page of a buffer.
const HEAD: usize = 1024;
const TAIL: usize = 1032;
/// Number of data pages of a buffer, a power of two. They follow the first page.
const DATA_PAGES: usize = 2;
/// Bytes of a sample record before its contents: the header of the record, and the length of the
/// contents.
const SAMPLE_HEAD: usize = 12;

impl Attr {
    /// Opens the event for a thread on all processors.
    fn open(&self, tid: i32) -> std::result::Result<OwnedFd, Errno> {
        self.open_for(tid, -1)
    }

    /// Opens the event for one thread on one processor. `tid` -1 means all threads, and `processor`
    /// -1 means all processors; the kernel refuses both at once.
    fn open_for(&self, tid: i32, processor: i32) -> std::result::Result<OwnedFd, Errno> {
        let none = -1;
        // SAFETY: `self` contains its own size. The other arguments are plain numbers; `none` means
        // that the event belongs to no group.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                self,
                tid,
                processor,
                none,
                CLOEXEC,
            )
        };
        if fd < 0 {
            let error = std::io::Error::last_os_error();
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        }
        // SAFETY: the kernel has just created this descriptor for us.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }
}

/// Counts the page faults that the processor raises for a thread. The counters `ru_minflt` and
/// `pgfault` also include pages that the kernel maps in advance, as `premap` makes it do.
#[derive(Debug)]
pub struct PageFaults(OwnedFd);

impl PageFaults {
    /// Starts to count in the thread `tid`, and in the threads and processes that it creates later.
    ///
    /// # Errors
    ///
    /// As [`Watch::open`].
    pub fn of(tid: i32) -> Result<Self> {
        let attr = Attr {
            kind: KIND_SOFTWARE,
            size: std::mem::size_of::<Attr>() as u32,
            config: PAGE_FAULTS,
            flags: INHERIT,
            ..Attr::default()
        };
        let failed = |errno| Error::new("count page faults of", format!("/proc/{tid}"), errno);
        attr.open(tid).map(PageFaults).map_err(failed)
    }

    /// The count so far. After the end of the thread, this is the total.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the kernel returns no number.
    pub fn count(&self) -> Result<u64> {
        let mut count = [0; 8];
        let failed = |errno| Error::new("read", "a count of page faults", errno);
        match rustix::io::read(&self.0, &mut count).map_err(failed)? {
            8 => Ok(u64::from_ne_bytes(count)),
            _ => Err(failed(Errno::IO)),
        }
    }
}

/// A tracepoint and the layout of its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracepoint {
    id: u64,
    fields: Vec<(String, usize, usize)>,
}

impl Tracepoint {
    /// Looks up a tracepoint in a tracefs.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] if the kernel lacks the tracepoint, [`Error::Malformed`] if its id or fields
    /// cannot be parsed.
    pub fn find(tracefs: &Dir, system: &str, event: &str) -> Result<Self> {
        let dir = tracefs.open_dir(format!("events/{system}/{event}"))?;
        let format = dir.read_text("format")?;
        let parsed = Tracepoint::parse(&dir.read_text("id")?, &format);
        parsed.ok_or_else(|| Error::malformed(dir.path().join("format"), "no fields or no id"))
    }

    /// Parses the files `id` and `format`; `None` if the id is not a number or no field is found.
    pub fn parse(id: &str, format: &str) -> Option<Self> {
        let field = |line: &str| {
            // field:unsigned long index;	offset:24;	size:8;	signed:0;
            let (declared, rest) = line.trim().strip_prefix("field:")?.split_once(';')?;
            let name = declared.split_ascii_whitespace().last()?.to_owned();
            let number = |key: &str| {
                let (_, value) = rest.split_once(key)?;
                value.split_once(';')?.0.parse().ok()
            };
            Some((name, number("offset:")?, number("size:")?))
        };
        let fields: Vec<_> = format.lines().filter_map(field).collect();
        (!fields.is_empty()).then_some(())?;
        Some(Tracepoint {
            id: id.trim().parse().ok()?,
            fields,
        })
    }

    /// Reads the field `name` of a recorded event as an unsigned number; `None` if there is no such
    /// field.
    pub fn number(&self, contents: &[u8], name: &str) -> Option<u64> {
        let (_, offset, size) = self.fields.iter().find(|(field, _, _)| field == name)?;
        let bytes = contents.get(*offset..offset.checked_add(*size)?)?;
        let mut number = [0; 8];
        number.get_mut(..*size)?.copy_from_slice(bytes);
        // A little-endian machine stores the value in the first bytes of `number`, the low ones. On
        // a big-endian machine the first bytes are the high ones.
        Some(match cfg!(target_endian = "little") {
            true => u64::from_le_bytes(number),
            false => u64::from_be_bytes(number) >> (64 - 8 * *size),
        })
    }
}

/// Events that the kernel has recorded for a thread since the last [`Watch::take`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Raw contents of each event, oldest first.
    pub events: Vec<Vec<u8>>,
    /// Whether events were lost because the buffer was full.
    pub lost: bool,
}

/// Ring buffer into which the kernel records an event.
#[derive(Debug)]
struct Buffer {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: only this value uses the mapping, and the mapping is not bound to a thread.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Maps a buffer with `pages` data pages, a power of two.
    fn map(event: &OwnedFd, pages: usize) -> std::result::Result<Buffer, Errno> {
        let bytes = (1 + pages) * page_bytes() as usize;
        // SAFETY: the kernel chooses a free address for the mapping.
        let start = unsafe {
            mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                event,
                0,
            )
        };
        let start = NonNull::new(start?.cast()).ok_or(Errno::FAULT)?;
        Ok(Buffer { start, bytes })
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: both counters are aligned words of the first page, which is mapped as long as
        // `self` exists. The kernel accesses them by single loads and stores.
        unsafe { &*self.start.as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Takes the recorded bytes.
    fn take(&mut self) -> Vec<u8> {
        let (head, tail) = (
            self.counter(HEAD).load(Ordering::Acquire),
            self.counter(TAIL).load(Ordering::Relaxed),
        );
        let page = page_bytes() as usize;
        let size = self.bytes - page;
        let length = (head.wrapping_sub(tail) as usize).min(size);
        let copy = (0..length).map(|at| {
            let at = (tail as usize).wrapping_add(at) % size;
            // SAFETY: the address is inside the data pages, and the kernel does not write between
            // tail and head.
            unsafe { self.start.as_ptr().add(page + at).read_volatile() }
        });
        let records = copy.collect();
        self.counter(TAIL).store(head, Ordering::Release);
        records
    }

    /// Drops the recorded bytes. Returns whether there were any.
    fn clear(&self) -> bool {
        let head = self.counter(HEAD).load(Ordering::Acquire);
        head != self.counter(TAIL).swap(head, Ordering::Release)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the whole mapping is ours, and no reference into it exists.
        let _ = unsafe { mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Records a tracepoint for one thread. Readable (`EPOLLIN`) when events are waiting.
#[derive(Debug)]
pub struct Watch {
    fd: OwnedFd,
    buffer: Buffer,
}

impl Watch {
    /// Starts recording. Recording ends when the `Watch` is dropped or the thread ends.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] if the thread has ended, [`Error::Permission`] without CAP_PERFMON or
    /// CAP_SYS_ADMIN, [`Error::Unsupported`] on a kernel without perf.
    pub fn open(tracepoint: &Tracepoint, tid: i32) -> Result<Self> {
        let attr = Attr {
            kind: KIND_TRACEPOINT,
            size: std::mem::size_of::<Attr>() as u32,
            config: tracepoint.id,
            sample_period: 1,
            sample_type: SAMPLE_RAW,
            wakeup_events: 1,
            ..Attr::default()
        };
        let failed = |errno| Error::new("watch a thread", format!("/proc/{tid}"), errno);
        let fd = attr.open(tid).map_err(failed)?;
        let buffer = Buffer::map(&fd, DATA_PAGES).map_err(failed)?;
        Ok(Watch { fd, buffer })
    }

    /// Takes the recorded events.
    pub fn take(&mut self) -> Batch {
        parse(&self.buffer.take())
    }
}

/// Keeps a tracepoint registered, and records nothing. Without it, closing a tracepoint's last
/// [`Watch`] takes tens of milliseconds: the kernel unregisters the tracepoint and waits until no
/// processor is in it (`perf_trace_event_unreg()` in kernel/trace/trace_event_perf.c).
#[derive(Debug)]
pub struct Registration {
    _event: OwnedFd,
}

impl Registration {
    /// Registers the tracepoint, until the `Registration` is dropped.
    ///
    /// # Errors
    ///
    /// As [`Watch::open`].
    pub fn new(tracepoint: &Tracepoint) -> Result<Self> {
        let attr = Attr {
            kind: KIND_TRACEPOINT,
            size: std::mem::size_of::<Attr>() as u32,
            config: tracepoint.id,
            flags: DISABLED,
            ..Attr::default()
        };
        let own_thread = 0;
        let event = attr.open(own_thread);
        let failed = |errno| Error::new("register", "a tracepoint", errno);
        event
            .map(|event| Registration { _event: event })
            .map_err(failed)
    }
}

/// Splits bytes of a buffer into records. Stops at the first incomplete record.
pub fn parse(mut records: &[u8]) -> Batch {
    let mut batch = Batch::default();
    while let Some((head, _)) = records.split_at_checked(8) {
        let kind = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]);
        let size = usize::from(u16::from_ne_bytes([head[6], head[7]]));
        let Some((record, rest)) = records.split_at_checked(size.max(8)) else {
            break;
        };
        match kind {
            RECORD_SAMPLE => batch
                .events
                .extend(record.get(SAMPLE_HEAD..).map(<[u8]>::to_vec)),
            RECORD_LOST => batch.lost = true,
            _ => {}
        }
        records = rest;
    }
    batch
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORMAT: &str = "name: mm_filemap_add_to_page_cache\nID: 600\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:unsigned long pfn;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long index;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:dev_t s_dev;\toffset:32;\tsize:4;\tsigned:0;\n\n\
        print fmt: \"dev %d:%d\"\n";

    fn record(kind: u32, contents: &[u8]) -> Vec<u8> {
        let mut record = kind.to_ne_bytes().to_vec();
        record.extend(0u16.to_ne_bytes());
        record.extend((SAMPLE_HEAD as u16 + contents.len() as u16).to_ne_bytes());
        record.extend((contents.len() as u32).to_ne_bytes());
        record.extend(contents);
        record
    }

    #[test]
    fn fields_are_found_by_name() {
        let point = Tracepoint::parse("600\n", FORMAT).unwrap();
        let mut contents = vec![0u8; 40];
        contents[24..32].copy_from_slice(&77u64.to_ne_bytes());
        contents[32..36].copy_from_slice(&9u32.to_ne_bytes());
        assert_eq!(point.number(&contents, "index"), Some(77));
        assert_eq!(point.number(&contents, "s_dev"), Some(9));
        assert_eq!(point.number(&contents, "i_ino"), None);
        assert_eq!(point.number(&contents[..30], "index"), None);
        assert_eq!(Tracepoint::parse("x", FORMAT), None);
        assert_eq!(Tracepoint::parse("1", "nothing"), None);
    }

    #[test]
    fn samples_and_losses_are_distinguished_from_other_records() {
        let mut all = record(RECORD_SAMPLE, &[1, 2, 3, 4]);
        all.extend(record(5, &[9, 9, 9, 9]));
        all.extend(record(RECORD_SAMPLE, &[5, 6, 7, 8]));
        let batch = parse(&all);
        assert_eq!(batch.events, [vec![1, 2, 3, 4], vec![5, 6, 7, 8]]);
        assert!(!batch.lost);
        all.extend(record(RECORD_LOST, &[0; 12]));
        assert!(parse(&all).lost);
    }

    proptest! {
        #[test]
        fn any_buffer_is_parsed_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let batch = parse(&bytes);
            prop_assert!(batch.events.len() <= bytes.len() / 8 + 1);
        }
    }

    #[test]
    fn faults_of_this_thread_are_counted() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let faults = match PageFaults::of(tid) {
            Ok(faults) => faults,
            Err(error) if error.is_permission() || error.is_unsupported() => {
                eprintln!("SKIPPED: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let before = faults.count().unwrap();
        let page = page_bytes() as usize;
        let mut fresh = vec![0u8; 1000 * page];
        (0..1000).for_each(|at| fresh[at * page] = 1);
        assert!(std::hint::black_box(&fresh)[0] == 1);
        let seen = faults.count().unwrap() - before;
        assert!(seen > 0, "no page fault was counted");
    }

    /// Skipped without privileges or a tracefs, because the feature needs both.
    #[test]
    fn events_of_this_thread_arrive() {
        let Ok(tracefs) = Dir::open("/sys/kernel/tracing") else {
            eprintln!("SKIPPED: no tracefs");
            return;
        };
        let Ok(point) = Tracepoint::find(&tracefs, "filemap", "mm_filemap_add_to_page_cache")
        else {
            eprintln!("SKIPPED: no such tracepoint");
            return;
        };
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let mut watch = match Watch::open(&point, tid) {
            Ok(watch) => watch,
            Err(error) if error.is_permission() || error.is_unsupported() => {
                eprintln!("SKIPPED: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("data");
        std::fs::write(&path, vec![7; 3 * page_bytes() as usize]).unwrap();
        let stat = rustix::fs::stat(&path).unwrap();
        let batch = watch.take();
        let of_file = batch
            .events
            .iter()
            .filter(|event| point.number(event, "i_ino") == Some(stat.st_ino));
        let pages: Vec<_> = of_file
            .filter_map(|event| point.number(event, "index"))
            .collect();
        assert_eq!(pages.first(), Some(&0), "{batch:?}");
        assert_eq!(watch.take(), Batch::default());
    }
}
