#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Prints the workspace version from Cargo.toml.
set -eu
cd "$(dirname "$0")/.."
sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml
