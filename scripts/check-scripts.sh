#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Has shellcheck and the shells look at the project's scripts and at the recipes of packages. namcap and
# apkbuild-lint are not in Debian.
set -eu
cd "$(dirname "$0")/.."

if ! command -v shellcheck >/dev/null; then
    echo "scripts are NOT checked: shellcheck is not there" >&2
    exit 0
fi
shellcheck --severity=warning scripts/*.sh packaging/debian/limelight.p* packaging/alpine/limelight.p*
# What makepkg, abuild and OpenRC set and use is not in these files.
shellcheck --severity=warning --shell=bash --exclude=SC2034,SC2148,SC2154,SC2164 \
    packaging/arch/PKGBUILD.in packaging/arch/limelight.install
shellcheck --severity=warning --shell=sh --exclude=SC2034,SC2148,SC2154 \
    packaging/alpine/APKBUILD.in packaging/openrc/limelightd.initd packaging/openrc/limelightd.confd
bash -n packaging/arch/PKGBUILD.in
bash -n packaging/alpine/APKBUILD.in
echo "scripts and recipes: shellcheck has nothing to say"
