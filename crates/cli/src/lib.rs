// SPDX-License-Identifier: GPL-2.0-or-later
//! limelight: the command line of limelightd
