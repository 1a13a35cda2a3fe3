// SPDX-License-Identifier: GPL-2.0-or-later
//! Limelight's model and policy: events and a snapshot in, actions out; no I/O

#![forbid(unsafe_code)]

pub mod control;
