#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Checks that all packages that the build and the lab need are installed. As root on Debian 12, the
# script installs missing packages; otherwise it prints their names and exits with 1.
set -eu

# All packages, one line per purpose: compilers; the kernel's build; guests and their images; an X
# server, window managers and compositors for the agent's tests; the Debian package and script
# checkers; other tools.
packages="
gcc g++ libc6-dev binutils
flex bison bc libelf-dev libssl-dev patch xz-utils ccache
qemu-system-x86 busybox-static e2fsprogs mmdebstrap uidmap zstd cpio
xvfb openbox i3-wm sway phoc kwin-wayland mutter dbus systemd
debhelper lintian shellcheck
make git ca-certificates python3
"
# Debian 12's default Rust packages are too old; these are the newer ones that Debian 12 also has.
# They are installed only if there is no cargo 1.$rust_minimum or newer.
rust_packages="cargo-web rustc-web rustfmt-web rust-web-clippy"
rust_minimum=88

recent_cargo() {
    minor=$(cargo --version 2>/dev/null | sed -n 's/^cargo 1\.\([0-9]*\)\..*/\1/p')
    [ -n "$minor" ] && [ "$minor" -ge "$rust_minimum" ]
}

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Uses the user's rustup cargo even if it is not in the PATH.
if ! recent_cargo && [ -x "${CARGO_HOME:-${HOME:-/root}/.cargo}/bin/cargo" ]; then
    PATH="${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:$PATH"
fi

if ! command -v dpkg-query >/dev/null; then
    echo "This is not Debian: install the equivalents of these Debian packages, and Rust" >&2
    echo "1.$rust_minimum or newer (https://rustup.rs):" $packages >&2
    echo "The lab needs Debian 12, because it gets Debian's kernel and its source by apt-get." >&2
    exit 1
fi

missing=
for package in $packages; do
    installed "$package" || missing="$missing $package"
done
if ! recent_cargo; then
    for package in $rust_packages; do
        installed "$package" || missing="$missing $package"
    done
fi
[ -n "$missing" ] || exit 0

codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-unknown}")
if [ "$(id -u)" = 0 ] && [ "$codename" = bookworm ]; then
    echo "installing:$missing"
    export DEBIAN_FRONTEND=noninteractive
    # Another program, such as an automatic upgrade, may hold the lock.
    apt-get update -q -o DPkg::Lock::Timeout=600
    apt-get install -q -y -o DPkg::Lock::Timeout=600 --no-install-recommends $missing
    recent_cargo && exit 0
    echo "cargo is still older than 1.$rust_minimum: install Rust from https://rustup.rs" >&2
    exit 1
fi

{
    echo "Packages are missing. To install them as root on Debian 12:"
    echo
    echo "    apt-get update && apt-get install --no-install-recommends$missing"
    echo
    echo "Rust 1.$rust_minimum or newer may also come from https://rustup.rs. Then run make again."
} >&2
exit 1
