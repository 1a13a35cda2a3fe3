// SPDX-License-Identifier: GPL-2.0-or-later
//! The program as a whole, against a daemon that the test plays.

mod asking;
mod daemon;
mod local;
mod watching;
