// SPDX-License-Identifier: GPL-2.0-or-later
//! `/dev/limelight`: the ABI of `kernel/files/include/uapi/linux/limelight.h`.
//!
//! All kernel state belongs to the open file. When the [`Device`] is dropped or the process that
//! opened it dies, the kernel empties the topmost set and switches every mechanism off.

use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::zero_extent::ZeroExtent;

/// Default path of the device.
pub const DEVICE_PATH: &str = "/dev/limelight";

/// ABI version that this module implements.
pub const ABI_VERSION: u32 = 2;

/// Oldest ABI version that this module supports. It has no lease: see [`Info::lease`].
pub const ABI_VERSION_OLDEST: u32 = 1;

/// Largest number of processes in a topmost set.
pub const TOPMOST_MAX: usize = 4096;

/// Bit numbers in [`Info::built_in`] and [`Info::enabled`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Mechanism {
    /// Keep the topmost app's pages in memory.
    Protect = 0,
    /// Map the topmost app's heap ahead of its faults.
    Premap = 1,
    /// Read further ahead for the topmost app.
    Readahead = 2,
    /// Give the topmost app pages that were zeroed in advance.
    Prezero = 3,
}

impl Mechanism {
    /// All mechanisms, ordered by bit number.
    pub const ALL: [Mechanism; 4] = [
        Mechanism::Protect,
        Mechanism::Premap,
        Mechanism::Readahead,
        Mechanism::Prezero,
    ];

    /// Name of the mechanism in all interfaces.
    pub const fn name(self) -> &'static str {
        match self {
            Mechanism::Protect => "protect",
            Mechanism::Premap => "premap",
            Mechanism::Readahead => "readahead",
            Mechanism::Prezero => "prezero",
        }
    }
}

/// Request to switch on a mechanism, with its parameter. The value 0 leaves the parameter
/// unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting<'a> {
    /// Protect the topmost app up to this footprint.
    Protect {
        /// Largest protected footprint, in percent of the memory that reclaim can reach: 1 to 90.
        budget_percent: u32,
    },
    /// Map several pages of the topmost app with one fault.
    Premap {
        /// Maximum number of pages that one fault maps, 1 to 512.
        window_pages: u32,
    },
    /// Read further ahead than by default.
    Readahead {
        /// Read-ahead as a multiple of the default, 1 to 64.
        factor: u32,
    },
    /// Keep a pool of zeroed pages.
    Prezero {
        /// Size of the pool in pages. The kernel limits it to a twelfth of memory.
        target_pages: u32,
        /// Engine that zeroes the pages.
        engine: Zeroing<'a>,
    },
}

/// Engine that zeroes pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zeroing<'a> {
    /// The CPU, bypassing its caches.
    Cpu,
    /// A disk that returns zeroes when read.
    Block(&'a ZeroExtent),
    /// A channel of a DMA controller.
    Dma,
}

impl Setting<'_> {
    /// The mechanism that this setting switches on.
    pub const fn mechanism(self) -> Mechanism {
        match self {
            Setting::Protect { .. } => Mechanism::Protect,
            Setting::Premap { .. } => Mechanism::Premap,
            Setting::Readahead { .. } => Mechanism::Readahead,
            Setting::Prezero { .. } => Mechanism::Prezero,
        }
    }
}

/// `struct limelight_info`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Info {
    size: u32,
    /// ABI version of the running kernel.
    pub abi_version: u32,
    /// Bit mask of mechanisms compiled in.
    pub built_in: u64,
    /// Bit mask of mechanisms switched on through this file.
    pub enabled: u64,
    /// Number of the topmost set in force; 0 if there is none.
    pub generation: u64,
    /// Live processes that belong to the topmost set.
    pub members: u32,
    lease_ms: u32,
}

impl Info {
    /// Whether this module supports the kernel's ABI version.
    pub fn is_supported(&self) -> bool {
        (ABI_VERSION_OLDEST..=ABI_VERSION).contains(&self.abi_version)
    }

    /// Builds an [`Info`] for tests; all other fields are 0.
    #[doc(hidden)]
    pub fn for_tests(lease_ms: u32, generation: u64) -> Info {
        Info {
            lease_ms,
            generation,
            ..Info::default()
        }
    }

    /// How long the topmost set stays in force after the last call on the device. `None`: until the
    /// device is closed, even if the process is stopped or hangs.
    pub fn lease(&self) -> Option<Duration> {
        (self.lease_ms > 0).then(|| Duration::from_millis(u64::from(self.lease_ms)))
    }

    /// Whether the kernel was built with this mechanism.
    pub fn has(&self, mechanism: Mechanism) -> bool {
        self.built_in >> mechanism as u32 & 1 == 1
    }

    /// Whether this mechanism is switched on.
    pub fn is_enabled(&self, mechanism: Mechanism) -> bool {
        self.enabled >> mechanism as u32 & 1 == 1
    }
}

/// `struct limelight_topmost`.
#[repr(C)]
struct Topmost {
    size: u32,
    nr: u32,
    pidfds: u64,
    flags: u64,
}

/// `struct limelight_mechanism`.
#[repr(C)]
struct MechanismRequest {
    size: u32,
    id: u32,
    flags: u32,
    budget_percent: u32,
    factor: u32,
    window_pages: u32,
    target_pages: u32,
    engine: u32,
    block_fd: i32,
    prezero_flags: u32,
    block_offset: u64,
    block_len: u64,
}

impl MechanismRequest {
    fn new(mechanism: Mechanism, flags: u32) -> Self {
        MechanismRequest {
            size: size_of::<MechanismRequest>() as u32,
            id: mechanism as u32,
            flags,
            budget_percent: 0,
            factor: 0,
            window_pages: 0,
            target_pages: 0,
            engine: ENGINE_CPU,
            block_fd: 0,
            prezero_flags: 0,
            block_offset: 0,
            block_len: 0,
        }
    }
}

const MECHANISM_ON: u32 = 1;
const ENGINE_CPU: u32 = 0;
const ENGINE_BLOCK: u32 = 1;
const ENGINE_DMA: u32 = 2;
const PREZERO_TRUST: u32 = 2;

/// `struct limelight_window`.
#[repr(C)]
struct Window {
    size: u32,
    flags: u32,
    deadline_ns: u64,
}

const WINDOW_OPEN: u32 = 1;
const WINDOW_CLOSE: u32 = 2;

const _: () = assert!(size_of::<Info>() == 40);
const _: () = assert!(size_of::<Topmost>() == 24);
const _: () = assert!(size_of::<MechanismRequest>() == 56);
const _: () = assert!(size_of::<Window>() == 16);

/// Computes an ioctl number as `_IOC()` in `asm-generic/ioctl.h` does.
const fn ioc(direction: u32, number: u32, size: usize) -> u32 {
    const MAGIC: u32 = 0xF5;
    direction << 30 | (size as u32) << 16 | MAGIC << 8 | number
}

const WRITE: u32 = 1;
const READ: u32 = 2;
const GET_INFO: u32 = ioc(READ | WRITE, 0, size_of::<Info>());
const SET_TOPMOST: u32 = ioc(WRITE, 1, size_of::<Topmost>());
const SET_MECHANISM: u32 = ioc(WRITE, 2, size_of::<MechanismRequest>());
const SET_WINDOW: u32 = ioc(WRITE, 3, size_of::<Window>());

/// Failure to open or use the device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The kernel has no such device, or `/dev` has no node for it.
    #[error("{} does not exist: this kernel was built without CONFIG_LIMELIGHT, or the device node was not created ({errno})", path.display())]
    Absent {
        /// The device.
        path: PathBuf,
        /// The kernel's error number.
        errno: Errno,
    },
    /// Another process has the device open; the kernel allows only one at a time.
    #[error("{} is held by another process: stop the other daemon", path.display())]
    Held {
        /// The device.
        path: PathBuf,
    },
    /// The caller lacks CAP_SYS_NICE, or the mode of the device node forbids the access.
    #[error("no permission to open {}: run as root or with CAP_SYS_NICE ({errno})", path.display())]
    Forbidden {
        /// The device.
        path: PathBuf,
        /// The kernel's error number.
        errno: Errno,
    },
    /// The file at the path is not the Limelight device.
    #[error("{} is not Limelight's device", path.display())]
    Foreign {
        /// The device.
        path: PathBuf,
    },
    /// A call on the open device failed.
    #[error("{call} on {} failed: {errno}", path.display())]
    Call {
        /// Name of the ioctl.
        call: &'static str,
        /// The device.
        path: PathBuf,
        /// The kernel's error number.
        errno: Errno,
    },
}

/// The open device.
#[derive(Debug)]
pub struct Device {
    fd: OwnedFd,
    path: PathBuf,
}

impl Device {
    /// Opens the device, usually at [`DEVICE_PATH`], and checks that it is the Limelight device.
    pub fn open(path: &Path) -> Result<Self, DeviceError> {
        let fd = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let path = path.to_owned();
        let device = match fd {
            Ok(fd) => Device { fd, path },
            Err(Errno::BUSY) => return Err(DeviceError::Held { path }),
            Err(errno @ (Errno::PERM | Errno::ACCESS)) => {
                return Err(DeviceError::Forbidden { path, errno })
            }
            Err(errno @ (Errno::NOENT | Errno::NODEV | Errno::NXIO)) => {
                return Err(DeviceError::Absent { path, errno })
            }
            Err(errno) => {
                return Err(DeviceError::Call {
                    call: "open",
                    path,
                    errno,
                })
            }
        };
        match device.info() {
            Err(DeviceError::Call {
                errno: Errno::NOTTY,
                ..
            }) => Err(DeviceError::Foreign { path: device.path }),
            result => result.map(|_| device),
        }
    }

    /// Queries the features of this kernel and the current state.
    pub fn info(&self) -> Result<Info, DeviceError> {
        let mut info = Info {
            size: size_of::<Info>() as u32,
            ..Info::default()
        };
        self.call("LIMELIGHT_GET_INFO", GET_INFO, &mut info)?;
        Ok(info)
    }

    /// Replaces the topmost set. Each call on the device keeps the set in force for another
    /// [`Info::lease`]. Processes that have exited are skipped. An empty slice means that no app is
    /// topmost. EINVAL: a descriptor is not the pidfd of a process, or there are more than
    /// [`TOPMOST_MAX`] descriptors.
    pub fn set_topmost<F: AsFd>(&self, pidfds: &[F]) -> Result<(), DeviceError> {
        let raw: Vec<i32> = pidfds.iter().map(|fd| fd.as_fd().as_raw_fd()).collect();
        let nr = u32::try_from(raw.len()).unwrap_or(u32::MAX);
        let mut topmost = Topmost {
            size: size_of::<Topmost>() as u32,
            nr,
            pidfds: raw.as_ptr() as u64,
            flags: 0,
        };
        // `raw` outlives the call.
        self.call("LIMELIGHT_SET_TOPMOST", SET_TOPMOST, &mut topmost)
    }

    /// Switches a mechanism on, or changes its parameter. EOPNOTSUPP: the kernel was built without
    /// the mechanism; EINVAL: the parameter is out of range.
    pub fn switch_on(&self, setting: Setting<'_>) -> Result<(), DeviceError> {
        let mut request = MechanismRequest::new(setting.mechanism(), MECHANISM_ON);
        match setting {
            Setting::Protect { budget_percent } => request.budget_percent = budget_percent,
            Setting::Premap { window_pages } => request.window_pages = window_pages,
            Setting::Readahead { factor } => request.factor = factor,
            Setting::Prezero {
                target_pages,
                engine,
            } => {
                request.target_pages = target_pages;
                request.engine = match engine {
                    Zeroing::Cpu => ENGINE_CPU,
                    Zeroing::Dma => ENGINE_DMA,
                    Zeroing::Block(extent) => {
                        request.block_fd = extent.as_fd().as_raw_fd();
                        request.block_offset = extent.offset();
                        request.block_len = extent.bytes();
                        request.prezero_flags = if extent.is_trusted() {
                            PREZERO_TRUST
                        } else {
                            0
                        };
                        ENGINE_BLOCK
                    }
                };
            }
        }
        self.call("LIMELIGHT_SET_MECHANISM", SET_MECHANISM, &mut request)
    }

    /// Switches a mechanism off.
    pub fn switch_off(&self, mechanism: Mechanism) -> Result<(), DeviceError> {
        let mut request = MechanismRequest::new(mechanism, 0);
        self.call("LIMELIGHT_SET_MECHANISM", SET_MECHANISM, &mut request)
    }

    /// Whether this kernel supports response windows. The probe closes the response window if one
    /// is open.
    pub fn has_windows(&self) -> Result<bool, DeviceError> {
        match self.close_window() {
            Err(DeviceError::Call {
                errno: Errno::NOTTY,
                ..
            }) => Ok(false),
            result => result.map(|()| true),
        }
    }

    /// Opens a response window, the time in which the user waits for the topmost app. The window
    /// ends after `within` at the latest. EINVAL: `within` is not 1 ns to 10 s. If a window is
    /// already open, the call moves its deadline.
    pub fn open_window(&self, within: Duration) -> Result<(), DeviceError> {
        self.window(
            WINDOW_OPEN,
            u64::try_from(within.as_nanos()).unwrap_or(u64::MAX),
        )
    }

    /// Closes the response window. Not an error if none is open.
    pub fn close_window(&self) -> Result<(), DeviceError> {
        self.window(WINDOW_CLOSE, 0)
    }

    fn window(&self, flags: u32, deadline_ns: u64) -> Result<(), DeviceError> {
        let mut window = Window {
            size: size_of::<Window>() as u32,
            flags,
            deadline_ns,
        };
        self.call("LIMELIGHT_SET_WINDOW", SET_WINDOW, &mut window)
    }

    fn call<T>(&self, call: &'static str, number: u32, value: &mut T) -> Result<(), DeviceError> {
        loop {
            // SAFETY: `value` is a repr(C) struct of the size encoded in `number`. It is alive and
            // exclusively borrowed during the call, and the kernel accesses no more than that size.
            // The address inside `Topmost` points to `nr` ints that the caller keeps alive.
            let answer =
                unsafe { libc::ioctl(self.fd.as_raw_fd(), number as libc::Ioctl, value as *mut T) };
            if answer >= 0 {
                return Ok(());
            }
            let error = std::io::Error::last_os_error();
            match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
                Errno::INTR => {}
                errno => {
                    return Err(DeviceError::Call {
                        call,
                        path: self.path.clone(),
                        errno,
                    })
                }
            }
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    const HEADER: &str = include_str!("../../../kernel/files/include/uapi/linux/limelight.h");

    #[test]
    fn layouts_match_the_header() {
        assert_eq!(offset_of!(Info, built_in), 8);
        assert_eq!(offset_of!(Info, generation), 24);
        assert_eq!(offset_of!(Info, members), 32);
        assert_eq!(offset_of!(Info, lease_ms), 36);
        assert_eq!(offset_of!(Topmost, pidfds), 8);
        assert_eq!(offset_of!(MechanismRequest, budget_percent), 12);
        assert_eq!(offset_of!(MechanismRequest, factor), 16);
        assert_eq!(offset_of!(MechanismRequest, window_pages), 20);
        assert_eq!(offset_of!(MechanismRequest, target_pages), 24);
        assert_eq!(offset_of!(MechanismRequest, block_fd), 32);
        assert_eq!(offset_of!(MechanismRequest, block_offset), 40);
        assert_eq!(offset_of!(MechanismRequest, block_len), 48);
        assert_eq!(offset_of!(Window, deadline_ns), 8);
    }

    #[test]
    fn mechanism_numbers_match_the_header() {
        for mechanism in Mechanism::ALL {
            let name = mechanism.name().to_uppercase();
            let line = format!("LIMELIGHT_MECHANISM_{name}\t= {},", mechanism as u32);
            assert!(HEADER.contains(&line), "{line}");
        }
    }

    /// Size of a struct in the header, computed from the text of the header.
    fn header_size(name: &str) -> usize {
        let start = HEADER.find(&format!("struct {name} {{")).expect(name);
        let body = HEADER[start..].split("};").next().unwrap();
        let fields = body
            .lines()
            .skip(1)
            .filter_map(|line| line.trim().strip_suffix(';'));
        fields
            .map(|field| {
                let (kind, name) = field.split_once(' ').unwrap();
                let each = match kind {
                    "__u32" | "__s32" => 4,
                    "__u64" => 8,
                    other => panic!("unexpected type {other}"),
                };
                let count = name.split_once('[').map_or(1, |(_, n)| {
                    n.trim_end_matches(']').parse::<usize>().unwrap()
                });
                each * count
            })
            .sum()
    }

    #[test]
    fn ioctl_numbers_match_the_header() {
        for (name, number, structure) in [
            ("LIMELIGHT_GET_INFO", GET_INFO, "limelight_info"),
            ("LIMELIGHT_SET_TOPMOST", SET_TOPMOST, "limelight_topmost"),
            (
                "LIMELIGHT_SET_MECHANISM",
                SET_MECHANISM,
                "limelight_mechanism",
            ),
            ("LIMELIGHT_SET_WINDOW", SET_WINDOW, "limelight_window"),
        ] {
            let line = HEADER
                .lines()
                .find(|line| line.split_ascii_whitespace().nth(1) == Some(name))
                .expect(name);
            let direction = if line.contains("_IOWR(") { 3 } else { 1 };
            let nr = line.split("0x").nth(1).unwrap().split(',').next().unwrap();
            let nr = u32::from_str_radix(nr, 16).unwrap();
            assert!(line.contains(&format!("struct {structure})")), "{line}");
            // _IOC(dir, type, nr, size): 2 bits, 14 bits of size, 8 of type, 8 of number.
            let expected =
                (direction << 30) | ((header_size(structure) as u32) << 16) | (0xF5 << 8) | nr;
            assert_eq!(number, expected, "{name}");
        }
        assert!(HEADER.contains("LIMELIGHT_IOC_MAGIC\t0xF5"));
        assert!(HEADER.contains("LIMELIGHT_ABI_VERSION\t2"));
        assert!(HEADER.contains("LIMELIGHT_TOPMOST_MAX\t4096"));
    }

    #[test]
    fn kernel_without_lease_is_supported() {
        let with = |abi_version, lease_ms| Info {
            abi_version,
            lease_ms,
            ..Info::default()
        };
        assert!(!with(0, 0).is_supported());
        assert!(with(1, 0).is_supported());
        assert_eq!(with(1, 0).lease(), None);
        assert!(with(2, 300_000).is_supported());
        assert_eq!(with(2, 300_000).lease(), Some(Duration::from_secs(300)));
        assert!(!with(3, 300_000).is_supported());
    }

    #[test]
    fn missing_device_is_reported_as_absent() {
        let error = Device::open(Path::new("/nonexistent/limelight")).unwrap_err();
        assert!(matches!(error, DeviceError::Absent { .. }));
        assert!(error.to_string().contains("CONFIG_LIMELIGHT"), "{error}");
    }

    #[test]
    fn another_device_is_refused() {
        let error = Device::open(Path::new("/dev/null")).unwrap_err();
        assert!(matches!(error, DeviceError::Foreign { .. }), "{error}");
    }
}
