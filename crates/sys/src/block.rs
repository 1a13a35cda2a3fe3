// SPDX-License-Identifier: GPL-2.0-or-later
//! Block devices in sysfs.

use std::path::Path;

use crate::dir::Dir;

/// The queue of a disk or a partition; `None` for a device without one. `block` is the device's
/// directory in sysfs. It is a full path because it contains symbolic links, which
/// [`Dir::open_dir`] does not follow.
pub fn queue(block: &Path) -> Option<Dir> {
    // A partition shares the queue of its disk, one directory above.
    let queues = [block.join("queue"), block.join("../queue")];
    queues.iter().find_map(|queue| Dir::open(queue).ok())
}
