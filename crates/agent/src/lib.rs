// SPDX-License-Identifier: GPL-2.0-or-later
//! limelight-agent: tells limelightd which app of this session is topmost
