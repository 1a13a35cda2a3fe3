// SPDX-License-Identifier: GPL-2.0-or-later
//! limelightd: one epoll loop of sources, model, policy and actuators
