// SPDX-License-Identifier: GPL-2.0-or-later
//! What a guest boots from.

pub mod cpio;
