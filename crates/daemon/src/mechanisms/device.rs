// SPDX-License-Identifier: GPL-2.0-or-later
//! Opens `/dev/limelight` and tracks its lease. Through this device, the kernel learns which
//! processes are topmost; it then recognises their pages by itself.

use std::path::Path;
use std::time::Duration;

use limelight_proto::DeviceStatus;
use limelight_sys::device::{Device, DeviceError, Info, Mechanism, ABI_VERSION};
use tracing::{info, warn};

use crate::config::UseDevice;
use crate::exit::Failure;

pub(crate) const UNDONE_BY: &str = "the kernel, when limelightd ends in any way";

/// The device, or why it is not used.
#[derive(Debug)]
pub enum DeviceDoor {
    /// The device is open.
    Open(Device),
    /// The device is not used; the text says why.
    Unused(String),
}

impl DeviceDoor {
    /// Opens the device as the configuration asks. Fails only if the device is required but cannot
    /// be used.
    pub fn open(path: &Path, wanted: UseDevice) -> Result<DeviceDoor, Failure> {
        let require = wanted == UseDevice::Require;
        if wanted == UseDevice::Off {
            let why = "switched off by the configuration ([kernel] device = \"off\")";
            return Ok(DeviceDoor::Unused(why.to_owned()));
        }
        let device = match Device::open(path) {
            Ok(device) => device,
            Err(error) if !require => {
                match error {
                    DeviceError::Absent { .. } => {
                        info!("{error}; only knobs of the stock kernel are used")
                    }
                    _ => warn!("{error}; only knobs of the stock kernel are used"),
                }
                return Ok(DeviceDoor::Unused(error.to_string()));
            }
            Err(error @ DeviceError::Forbidden { .. }) => {
                return Err(Failure::Permission {
                    what: error.to_string(),
                    cure: "run limelightd as root or give it CAP_SYS_NICE",
                })
            }
            Err(error) => {
                return Err(Failure::Powerless(format!(
                    "{error} ([kernel] device = \"on\")"
                )))
            }
        };
        let fault = match device.info() {
            Ok(info) if !info.is_supported() => Some(format!(
                "{} has ABI version {}, but this limelightd supports {ABI_VERSION}: install a \
                 kernel and a limelightd of the same release",
                path.display(),
                info.abi_version
            )),
            Ok(info) if !info.has(Mechanism::Protect) => {
                Some(format!("{} does not offer protect", path.display()))
            }
            Ok(info) => {
                if info.lease().is_none() {
                    warn!(
                        "{} has ABI version {}, which has no lease: the foreground app stays \
                         protected while limelightd hangs or is stopped; update the kernel",
                        path.display(),
                        info.abi_version
                    );
                }
                None
            }
            Err(error) => Some(error.to_string()),
        };
        match fault {
            None => Ok(DeviceDoor::Open(device)),
            Some(why) if require => Err(Failure::Powerless(format!(
                "{why} ([kernel] device = \"on\")"
            ))),
            Some(why) => {
                warn!("{why}; only knobs of the stock kernel are used");
                Ok(DeviceDoor::Unused(why))
            }
        }
    }

    /// The device, if it is open.
    pub fn device(&self) -> Option<&Device> {
        match self {
            DeviceDoor::Open(device) => Some(device),
            DeviceDoor::Unused(_) => None,
        }
    }

    /// The kernel's mechanisms, topmost set and lease; `None` without a device, or if the query
    /// fails.
    pub fn info(&self) -> Option<Info> {
        self.device().and_then(|device| device.info().ok())
    }

    /// The state of the device, for `status`.
    pub fn status(&self) -> DeviceStatus {
        let device = match self {
            DeviceDoor::Open(device) => device,
            DeviceDoor::Unused(why) => return DeviceStatus::Unused { why: why.clone() },
        };
        let names = |has: &dyn Fn(Mechanism) -> bool| {
            let all = Mechanism::ALL.into_iter().filter(|&each| has(each));
            all.map(|each| each.name().to_owned()).collect()
        };
        match device.info() {
            Ok(info) => DeviceStatus::Open {
                abi_version: info.abi_version,
                built_in: names(&|each| info.has(each)),
                enabled: names(&|each| info.is_enabled(each)),
                generation: info.generation,
                members: info.members,
            },
            Err(error) => DeviceStatus::Unused {
                why: error.to_string(),
            },
        }
    }
}

/// Lease on the kernel's set of topmost processes. The kernel drops the set unless a call on the
/// device renews the lease in time.
#[derive(Debug, Default)]
pub struct Lease {
    /// The length that the kernel last reported.
    length: Option<Duration>,
    /// Time of the last call on the device.
    called: Option<Duration>,
}

impl Lease {
    /// Records a call that has just returned `info`. Returns the time since the previous call if
    /// the lease may have expired: that time is at least the lease, and the kernel has no set now.
    /// Otherwise `None`.
    pub fn renewed(&mut self, info: &Info, now: Duration) -> Option<Duration> {
        self.length = info.lease();
        let since = now.saturating_sub(self.called.replace(now)?);
        let over = self.length.is_some_and(|length| since >= length);
        (over && info.generation == 0).then_some(since)
    }

    /// Longest time between two calls: half the lease, so that the lease survives one failed call.
    /// `None`: no limit, because the kernel has reported no lease.
    pub fn call_within(&self) -> Option<Duration> {
        self.length.map(|length| length / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(lease_ms: u32, generation: u64) -> Info {
        Info::for_tests(lease_ms, generation)
    }

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn set_is_lost_only_after_a_lease_without_calls() {
        let mut lease = Lease::default();
        assert_eq!(lease.call_within(), None);
        assert_eq!(lease.renewed(&info(300_000, 0), s(1000)), None);
        assert_eq!(lease.call_within(), Some(s(150)));
        // No set, but the lease was renewed in time: the processes have exited.
        assert_eq!(lease.renewed(&info(300_000, 0), s(1299)), None);
        assert_eq!(lease.renewed(&info(300_000, 0), s(1600)), Some(s(301)));
        // This call is late, but a set exists: another call has renewed the lease.
        assert_eq!(lease.renewed(&info(300_000, 7), s(2000)), None);
    }

    #[test]
    fn kernel_without_lease_never_drops_the_set() {
        let mut lease = Lease::default();
        assert_eq!(lease.renewed(&info(0, 0), s(1)), None);
        assert_eq!(lease.renewed(&info(0, 0), s(100_000)), None);
        assert_eq!(lease.call_within(), None);
    }
}
