#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Checks the project's shell scripts and package recipes with shellcheck, and the recipes also with
# `bash -n`. It runs neither namcap nor apkbuild-lint, because Debian has no packages of them.
set -eu
cd "$(dirname "$0")/.."

if ! command -v shellcheck >/dev/null; then
    echo "scripts were NOT checked: shellcheck is not installed" >&2
    exit 0
fi
shellcheck --severity=warning scripts/*.sh packaging/debian/limelight.p* packaging/alpine/limelight.p*
# The excluded warnings are about variables that makepkg, abuild or OpenRC sets or uses, about the
# missing #! line, and about `cd` without error handling.
shellcheck --severity=warning --shell=bash --exclude=SC2034,SC2148,SC2154,SC2164 \
    packaging/arch/PKGBUILD.in packaging/arch/limelight.install
shellcheck --severity=warning --shell=sh --exclude=SC2034,SC2148,SC2154 \
    packaging/alpine/APKBUILD.in packaging/openrc/limelightd.initd packaging/openrc/limelightd.confd
bash -n packaging/arch/PKGBUILD.in
bash -n packaging/alpine/APKBUILD.in
echo "scripts and recipes: shellcheck found nothing"
