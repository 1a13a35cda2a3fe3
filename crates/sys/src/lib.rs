// SPDX-License-Identifier: GPL-2.0-or-later
//! Limelight's typed doors to Linux, each rooted at a directory or fd given by the caller
