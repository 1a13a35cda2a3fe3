// SPDX-License-Identifier: GPL-2.0-or-later
//! What a guest boots from and what its disks hold. Nothing here needs root.

pub mod cpio;
pub mod disk;
pub mod initramfs;
pub mod package;
pub mod rootfs;
