// SPDX-License-Identifier: GPL-2.0-or-later
//! The program as a whole, against a simulated daemon.

mod asking;
mod daemon;
mod local;
mod schemas;
mod watching;
