#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Prints the version that Cargo.toml gives to all crates.
set -eu
cd "$(dirname "$0")/.."
sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml
