// SPDX-License-Identifier: GPL-2.0-or-later
//! Makes a guest's boot files and disk images. Nothing here needs root.

pub mod cpio;
pub mod disk;
pub mod initramfs;
pub mod package;
pub mod rootfs;
