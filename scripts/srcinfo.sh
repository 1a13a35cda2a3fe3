#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# srcinfo.sh PKGBUILD: prints the .SRCINFO that the AUR requires, as `makepkg --printsrcinfo` does.
# It works without makepkg, which few distributions have. It covers recipes with one package, and
# the fields of packaging/arch/PKGBUILD.in.
set -eu
# shellcheck disable=SC2016 # bash expands the variables
exec bash -euc '
    . "$1"
    echo "pkgbase = $pkgname"
    for field in pkgdesc pkgver pkgrel url install arch license makedepends depends optdepends \
        backup source sha256sums; do
        declare -n values=$field
        for value in "${values[@]}"; do
            printf "\t%s = %s\n" "$field" "$value"
        done
    done
    printf "\npkgname = %s\n" "$pkgname"
' bash "$(realpath "$1")"
