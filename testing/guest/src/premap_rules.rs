// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks premap's limits: the topmost app grows its heap next to every kind of limit and boundary,
//! and reads from its own page table which pages are mapped.

use std::fs::{self, File};
use std::io::{self, BufRead, Write};
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr;

use anyhow::{bail, Context, Result};
use limelight_sys::perf::PageFaults;
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::counters::keyed;
use crate::daemon::{focus, Daemon};
use crate::dispatch::Stage;
use crate::gallery::APP;
use crate::heap::map_anonymous;
use crate::memory::PAGE;
use crate::plan::Arm;
use crate::process::{Conversation, Start};

/// The cases, in the order in which they run. The first case enlarges premap's window to its
/// maximum, so that the others run with the largest window.
const CASES: [Case; 13] = [
    Case::Sequential,
    Case::Zeroes,
    Case::Border,
    Case::Guard,
    Case::Sparse,
    Case::NoReserve,
    Case::OnFault,
    Case::Locked,
    Case::Userfault,
    Case::Fork,
    Case::DataLimit,
    Case::SpaceLimit,
    Case::MemoryMax,
];

/// A limit or mechanism that premap must respect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// 2048 pages from start to end: premap's use case.
    Sequential,
    /// Memory that was used before is zeroed when it is mapped again.
    Zeroes,
    /// The end of a mapping, with an adjacent mapping that the kernel does not merge with it.
    Border,
    /// A PROT_NONE page between two used ranges.
    Guard,
    /// A large mapping of which one page in sixteen is used.
    Sparse,
    /// As [`Case::Sparse`], with MAP_NORESERVE.
    NoReserve,
    /// MLOCK_ONFAULT: pages are locked when they are mapped.
    OnFault,
    /// mlock() of the first half of an area: mlock() itself maps every page of that half, and no
    /// page of the other half may be mapped ahead.
    Locked,
    /// userfaultfd: the kernel must ask the program for each missing page of the range, so no page
    /// may be mapped ahead.
    Userfault,
    /// Pages mapped ahead are copied on write between parent and child.
    Fork,
    /// Growth up to RLIMIT_DATA.
    DataLimit,
    /// Growth up to RLIMIT_AS.
    SpaceLimit,
    /// Growth near memory.max of the app's cgroup, which the runner sets.
    MemoryMax,
}

/// Result of a case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Seen {
    /// Whether the limit was respected.
    pub passed: bool,
    /// The observed figures.
    pub seen: String,
}

fn seen(passed: bool, seen: impl Into<String>) -> Result<Seen> {
    Ok(Seen {
        passed,
        seen: seen.into(),
    })
}

/// The app's process: reports that it is ready, then reads cases from standard input, runs each of
/// them and reports its result.
pub fn app() -> Result<()> {
    println!("true");
    io::stdout().flush()?;
    for line in io::stdin().lock().lines() {
        let case = serde_json::from_str(&line?)?;
        let answer = match case {
            Case::Sequential => sequential()?,
            Case::Zeroes => zeroes()?,
            Case::Border => border()?,
            Case::Guard => guard()?,
            Case::Sparse => sparse(0)?,
            Case::NoReserve => sparse(libc::MAP_NORESERVE)?,
            Case::OnFault => on_fault()?,
            Case::Locked => locked()?,
            Case::Userfault => userfault()?,
            Case::Fork => fork()?,
            Case::DataLimit => limit("VmData:")?,
            Case::SpaceLimit => limit("VmSize:")?,
            Case::MemoryMax => memory_max()?,
        };
        println!("{}", serde_json::to_string(&answer)?);
    }
    Ok(())
}

/// Private anonymous memory of this process.
struct Area {
    start: *mut u8,
    pages: usize,
}

impl Area {
    fn new(pages: usize, flags: i32) -> Result<Area> {
        let start = map_anonymous(pages, libc::PROT_READ | libc::PROT_WRITE, flags)?;
        Ok(Area { start, pages })
    }

    fn at(&self, page: usize) -> *mut u8 {
        assert!(page < self.pages);
        // SAFETY: the page lies inside the mapping.
        unsafe { self.start.add(page * PAGE) }
    }

    fn write(&self, page: usize, byte: u8) {
        // SAFETY: the mapping is writable and used by this process only.
        unsafe { ptr::write_volatile(self.at(page), byte) }
    }

    fn fill(&self, byte: u8) {
        for page in 0..self.pages {
            // SAFETY: as in `write`; the page has PAGE bytes.
            unsafe { ptr::write_bytes(self.at(page), byte, PAGE) }
        }
    }

    fn is_zero(&self, page: usize) -> bool {
        // SAFETY: as in `write`; nothing changes the page meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts(self.at(page), PAGE) };
        bytes.iter().all(|&byte| byte == 0)
    }

    /// Number of pages of a range that are present in the page table.
    fn present(&self, first: usize, pages: usize) -> Result<usize> {
        let map = File::open("/proc/self/pagemap")?;
        let mut entries = vec![0; pages * 8];
        map.read_exact_at(&mut entries, (self.at(first) as usize / PAGE * 8) as u64)?;
        let present = |entry: &&[u8]| entry.last().is_some_and(|byte| byte & 0x80 != 0);
        Ok(entries.chunks_exact(8).filter(present).count())
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by us and no reference into it outlives `self`.
        unsafe { libc::munmap(self.start.cast(), self.pages * PAGE) };
    }
}

fn check(result: i32, what: &str) -> Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()).with_context(|| format!("{what} failed")),
    }
}

fn sequential() -> Result<Seen> {
    let area = Area::new(2048, 0)?;
    let faults = PageFaults::of(0)?;
    for page in 0..area.pages {
        area.write(page, 1);
    }
    let count = faults.count()?;
    seen(count < 200, format!("{count} faults for 2048 pages"))
}

fn zeroes() -> Result<Seen> {
    let mut dirty = 0;
    for _ in 0..8 {
        let area = Area::new(1024, 0)?;
        let mut page = 0;
        while page < area.pages {
            // The write faults in one page; the 63 pages after it may have been mapped ahead.
            area.write(page, 0);
            let ahead = page..(page + 64).min(area.pages);
            dirty += ahead.clone().filter(|&page| !area.is_zero(page)).count();
            page = ahead.end;
        }
        area.fill(0xa5);
    }
    seen(dirty == 0, format!("{dirty} of 8192 pages were not zero"))
}

fn border() -> Result<Seen> {
    let area = Area::new(256, 0)?;
    // Advice that keeps the two halves from being merged into one mapping.
    // SAFETY: the range is our own mapping.
    let advised = unsafe { libc::madvise(area.at(128).cast(), 128 * PAGE, libc::MADV_DONTDUMP) };
    check(advised, "MADV_DONTDUMP")?;
    (0..128).for_each(|page| area.write(page, 1));
    let beyond = area.present(128, 128)?;
    seen(
        beyond == 0,
        format!("{beyond} pages mapped beyond the border"),
    )
}

fn guard() -> Result<Seen> {
    let area = Area::new(129, 0)?;
    // SAFETY: the range is our own mapping.
    let result = unsafe { libc::mprotect(area.at(64).cast(), PAGE, libc::PROT_NONE) };
    check(result, "mprotect")?;
    (0..64).for_each(|page| area.write(page, 1));
    let beyond = area.present(64, 65)?;
    seen(
        beyond == 0,
        format!("{beyond} pages mapped at and beyond the guard page"),
    )
}

fn sparse(flags: i32) -> Result<Seen> {
    let area = Area::new(4096, flags)?;
    // From end to start, in steps that leave 15 pages in between.
    let touched = area.pages / 16;
    for index in (0..touched).rev() {
        area.write(index * 16 + 3, 1);
    }
    let present = area.present(0, area.pages)?;
    seen(
        present <= touched * 5 / 4,
        format!("{present} pages present, {touched} used"),
    )
}

fn on_fault() -> Result<Seen> {
    let area = Area::new(256, 0)?;
    // SAFETY: the range is our own mapping.
    let locked = unsafe { libc::mlock2(area.start.cast(), area.pages * PAGE, libc::MLOCK_ONFAULT) };
    check(locked, "mlock2")?;
    (0..32).for_each(|page| area.write(page, 1));
    let present = area.present(0, area.pages)?;
    seen(present == 32, format!("{present} pages present, 32 used"))
}

fn locked() -> Result<Seen> {
    let area = Area::new(256, 0)?;
    // SAFETY: the range is our own mapping.
    let result = unsafe { libc::mlock(area.start.cast(), 128 * PAGE) };
    check(result, "mlock")?;
    let (present, beyond) = (area.present(0, 128)?, area.present(128, 128)?);
    seen(
        present == 128 && beyond == 0,
        format!("{present} of 128 locked pages are mapped, and {beyond} pages beyond them"),
    )
}

/// `linux/userfaultfd.h`.
#[repr(C)]
struct UffdioApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct UffdioRegister {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct UffdioZeropage {
    start: u64,
    len: u64,
    mode: u64,
    zeroed: i64,
}

const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_ZEROPAGE: u64 = 0xc020_aa04;
const UFFD_API: u64 = 0xaa;
const MODE_MISSING: u64 = 1;
const MESSAGE: usize = 32;

fn userfault() -> Result<Seen> {
    let area = Area::new(64, 0)?;
    // Using the range from start to end makes premap's window large.
    area.fill(1);
    // SAFETY: the range is our own mapping; its contents are not needed.
    let dropped =
        unsafe { libc::madvise(area.start.cast(), area.pages * PAGE, libc::MADV_DONTNEED) };
    check(dropped, "MADV_DONTNEED")?;
    // SAFETY: a system call without pointers; nothing else uses the descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) } as i32;
    if fd < 0 {
        return Err(io::Error::last_os_error()).context("userfaultfd failed");
    }
    // SAFETY: the descriptor was just created, and nothing else owns it.
    let mut messages = unsafe { File::from_raw_fd(fd) };
    let call = |number: u64, argument: *mut libc::c_void, what: &str| {
        // SAFETY: each request gets the struct that the header defines for it, which outlives the
        // call.
        check(unsafe { libc::ioctl(fd, number as _, argument) }, what)
    };
    let mut api = UffdioApi {
        api: UFFD_API,
        features: 0,
        ioctls: 0,
    };
    call(UFFDIO_API, (&raw mut api).cast(), "UFFDIO_API")?;
    let mut register = UffdioRegister {
        start: area.start as u64,
        len: (area.pages * PAGE) as u64,
        mode: MODE_MISSING,
        ioctls: 0,
    };
    call(
        UFFDIO_REGISTER,
        (&raw mut register).cast(),
        "UFFDIO_REGISTER",
    )?;

    let start = area.start as usize;
    let pages = area.pages;
    let writer = std::thread::spawn(move || {
        for page in 0..pages {
            // SAFETY: the area outlives the thread, which is joined below.
            unsafe { ptr::write_volatile((start + page * PAGE) as *mut u8, 1) };
        }
    });
    let mut asked = 0;
    while asked < pages {
        let mut message = [0; MESSAGE];
        io::Read::read_exact(&mut messages, &mut message)?;
        let address = message
            .get(16..24)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u64::from_ne_bytes)
            .context("the userfaultfd message has no address")?;
        let mut zero = UffdioZeropage {
            start: address / PAGE as u64 * PAGE as u64,
            len: PAGE as u64,
            mode: 0,
            zeroed: 0,
        };
        call(UFFDIO_ZEROPAGE, (&raw mut zero).cast(), "UFFDIO_ZEROPAGE")?;
        asked += 1;
    }
    if writer.join().is_err() {
        bail!("the writer panicked");
    }
    seen(
        asked == pages,
        format!("{asked} of {pages} pages were requested"),
    )
}

fn fork() -> Result<Seen> {
    let area = Area::new(512, 0)?;
    (0..300).for_each(|page| area.write(page, 7));
    // Some pages from 300 on have been mapped ahead by now.
    let ahead = area.present(300, 212)?;
    // SAFETY: the child only touches memory and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let clean = (300..512).all(|page| area.is_zero(page));
        area.fill(9);
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!clean)) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid, and the child is ours.
    if child < 0 || unsafe { libc::waitpid(child, &mut status, 0) } != child {
        return Err(io::Error::last_os_error()).context("fork or waitpid failed");
    }
    let changed = (300..512).filter(|&page| !area.is_zero(page)).count();
    seen(
        status == 0 && changed == 0 && ahead > 0,
        format!(
            "{ahead} pages mapped ahead; child's status {status}; \
             {changed} pages of the parent changed"
        ),
    )
}

/// Sets a limit with room for 64 pages, maps and uses 60, and tries to map 16 more. `name` is the
/// limited counter of `/proc/PID/status`: `VmSize:` for all mappings, `VmData:` for data without
/// the stack.
fn limit(name: &str) -> Result<Seen> {
    let resource = match name {
        "VmSize:" => libc::RLIMIT_AS,
        _ => libc::RLIMIT_DATA,
    };
    let status = fs::read_to_string("/proc/self/status")?;
    let used: u64 = status
        .lines()
        .find_map(|line| {
            line.strip_prefix(name)?
                .trim()
                .strip_suffix(" kB")?
                .parse()
                .ok()
        })
        .with_context(|| format!("/proc/self/status has no {name}"))?;
    let mut before = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: valid structs.
    let result = unsafe { libc::getrlimit(resource, &mut before) };
    check(result, "getrlimit")?;
    let limit = libc::rlimit {
        rlim_cur: (used << 10) + 64 * PAGE as u64,
        rlim_max: before.rlim_max,
    };
    // SAFETY: as above.
    let result = unsafe { libc::setrlimit(resource, &limit) };
    check(result, "setrlimit")?;
    let outcome = (|| {
        let area = Area::new(60, 0)?;
        area.fill(1);
        let beyond = Area::new(16, 0).is_ok();
        Ok::<_, anyhow::Error>((area.present(0, 60)?, beyond))
    })();
    // SAFETY: as above.
    let result = unsafe { libc::setrlimit(resource, &before) };
    check(result, "setrlimit")?;
    let (present, beyond) = outcome?;
    seen(
        present == 60 && !beyond,
        format!("{present} of 60 pages are mapped; growth beyond the limit succeeded: {beyond}"),
    )
}

/// Uses 128 pages at the start of a larger area. memory.max has room for 192 pages.
fn memory_max() -> Result<Seen> {
    let area = Area::new(2048, 0)?;
    (0..128).for_each(|page| area.write(page, 1));
    let present = area.present(0, area.pages)?;
    seen(present >= 128, format!("{present} pages mapped, 128 used"))
}

/// Runs the cases with the app in the foreground.
pub fn run(stage: Stage) -> Result<()> {
    if stage.arm != Arm::Limelight {
        bail!("premap-rules needs our kernel");
    }
    let cgroup = Cgroup::create(APP)?;
    let start = |cgroup| -> Result<Conversation> {
        let start = Start::in_cgroup(cgroup);
        let mut talk = start.conversation("heap-rules", &())?;
        let _ready: bool = talk.hear()?;
        Ok(talk)
    };
    let mut app = start(Some(&cgroup))?;
    let mut other = start(None)?;
    let daemon = Daemon::start(&[])?;
    focus(app.process.pid())?;
    let run_case = |talk: &mut Conversation, case: Case| -> Result<Seen> {
        talk.ask(&serde_json::to_string(&case)?)
    };
    for case in CASES {
        let room = case == Case::MemoryMax;
        if room {
            let bytes = cgroup.number("memory.current")? + 192 * PAGE as u64;
            cgroup.set("memory.max", &bytes.to_string())?;
        }
        let answer = run_case(&mut app, case)?;
        stage
            .reporter
            .check(name(case), answer.passed, answer.seen)?;
        if room {
            let events = keyed(&cgroup.path().join("memory.events"), "max")?;
            stage.reporter.check(
                "mapping ahead never hits the cgroup's memory.max",
                events == 0,
                format!("the limit was hit {events} times"),
            )?;
            cgroup.set("memory.max", "max")?;
        }
    }
    let answer = run_case(&mut other, Case::Sequential)?;
    stage.reporter.check(
        "premap does not act on a process that is not in the foreground",
        !answer.passed,
        answer.seen,
    )?;
    let before = daemon.kill()?;
    let answer = run_case(&mut app, Case::Sequential)?;
    stage.reporter.check(
        "premap does not act after the daemon is killed",
        !answer.passed,
        answer.seen,
    )?;
    let mapped = keyed(Path::new("/proc/vmstat"), "limelight_premap_mapped")?;
    stage.reporter.check(
        "pages mapped ahead are counted in /proc/vmstat",
        mapped > 0,
        format!("{mapped} pages counted"),
    )?;
    drop(app);
    Daemon::start_after(before)?.stop(&stage.reporter)?;
    stage.reporter.finish()
}

fn name(case: Case) -> &'static str {
    match case {
        Case::Sequential => "a heap used from start to end takes few faults",
        Case::Zeroes => "pages mapped ahead are zero",
        Case::Border => "no page beyond the end of a mapping is mapped ahead",
        Case::Guard => "no page beyond a guard page is mapped ahead",
        Case::Sparse => "few pages of a sparsely used mapping are mapped ahead",
        Case::NoReserve => "few pages of a sparse MAP_NORESERVE mapping are mapped ahead",
        Case::OnFault => "MLOCK_ONFAULT locks only touched pages",
        Case::Locked => "mlock locks its range and no other page",
        Case::Userfault => "each page of a userfaultfd range is requested",
        Case::Fork => "after fork, parent and child have their own copies of pages mapped ahead",
        Case::DataLimit => "RLIMIT_DATA is enforced",
        Case::SpaceLimit => "RLIMIT_AS is enforced",
        Case::MemoryMax => "an app near its cgroup's memory.max can still grow",
    }
}
