#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Checks the project's shell scripts and package recipes with shellcheck, and the recipes also with
# `bash -n`. It runs neither namcap nor apkbuild-lint, because Debian has no packages of them.
set -eu
cd "$(dirname "$0")/.."

# The packages of each target include those of the smaller target before it.
for distribution in debian-12 debian-13 ubuntu-24.04 fedora; do
    smaller=
    for target in build demo demo-kernel test; do
        packages=$(scripts/deps.sh --list "$distribution" "$target")
        for package in $smaller; do
            if ! printf '%s\n' "$packages" | grep -qxF "$package"; then
                echo "scripts/deps.sh: $package is missing for $target on $distribution" >&2
                exit 1
            fi
        done
        if [ "$packages" = "$smaller" ]; then
            echo "scripts/deps.sh: $target on $distribution needs nothing of its own" >&2
            exit 1
        fi
        smaller=$packages
    done
    if scripts/deps.sh --list "$distribution" demo | grep -E '^(kwin|mutter|sway|phoc|openbox|gcc-c|g\+\+)'; then
        echo "scripts/deps.sh: the demo needs no such package" >&2
        exit 1
    fi
done
# Each distribution gets a command of its own package manager, and exits with 1 or has everything.
release=$(mktemp)
trap 'rm -f "$release"' EXIT
for case in "ID=fedora VERSION_ID=43 dnf install gcc" "ID=arch VERSION_ID=1 gcc libc6-dev"; do
    # shellcheck disable=SC2086
    set -- $case
    printf '%s\n%s\n' "$1" "$2" >"$release"
    shift 2
    if OS_RELEASE=$release scripts/deps.sh demo 2>"$release.out"; then
        echo "scripts/deps.sh: exit code 0 on $case" >&2
        exit 1
    fi
    grep -qF "    $*" "$release.out"
    rm -f "$release.out"
done
if scripts/deps.sh nonsense 2>/dev/null || scripts/deps.sh --list debian-12 2>/dev/null; then
    echo "scripts/deps.sh accepts a wrong argument" >&2
    exit 1
fi

# The .SRCINFO has every field of the recipe, as makepkg writes them. makepkg refuses to run as root,
# and needs no pacman to print.
recipe=$(mktemp -d)
trap 'rm -rf "$release" "$recipe"' EXIT
sed -e "s/@VERSION@/0.1.0/" -e "s/@SHA256@/$(echo | sha256sum | cut -d' ' -f1)/" \
    packaging/arch/PKGBUILD.in >"$recipe/PKGBUILD"
scripts/srcinfo.sh "$recipe/PKGBUILD" >"$recipe/SRCINFO"
cp packaging/arch/limelight.install "$recipe/"
if ! command -v makepkg >/dev/null; then
    echo "the .SRCINFO was NOT checked: makepkg is not installed" >&2
else
    user=
    if [ "$(id -u)" = 0 ]; then
        chown -R nobody "$recipe"
        user="setpriv --reuid=nobody --clear-groups"
    fi
    (cd "$recipe" && HOME=$recipe PACMAN=true $user makepkg --printsrcinfo) |
        diff "$recipe/SRCINFO" - || {
        echo "scripts/srcinfo.sh: the .SRCINFO differs from makepkg's" >&2
        exit 1
    }
fi

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
# SC2207: mapfile would split nothing else than these words.
shellcheck --severity=warning --shell=bash --exclude=SC2207 packaging/completions/*.bash
bash -n packaging/arch/PKGBUILD.in
bash -n packaging/alpine/APKBUILD.in
echo "scripts and recipes: shellcheck found nothing"
