#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Checks that everything the build and the lab need is installed. As root on Debian 12 it installs
# missing packages, otherwise it prints them and exits with 1.
set -eu

# All packages: compilers; the kernel's build; guests and their images; a real X server, window
# managers and compositors for the agent's tests; the Debian package and script checkers; the rest.
packages="
gcc g++ libc6-dev binutils
flex bison bc libelf-dev libssl-dev patch xz-utils ccache
qemu-system-x86 busybox-static e2fsprogs mmdebstrap uidmap zstd cpio
xvfb openbox i3-wm sway phoc kwin-wayland mutter dbus systemd
debhelper lintian shellcheck
make git ca-certificates python3
"
# Debian 12's default Rust packages are too old; these are Debian's own newer ones. They are
# installed only if no cargo of at least this version is found.
rust_packages="cargo-web rustc-web rustfmt-web rust-web-clippy"
rust_minimum=88

recent_cargo() {
    minor=$(cargo --version 2>/dev/null | sed -n 's/^cargo 1\.\([0-9]*\)\..*/\1/p')
    [ -n "$minor" ] && [ "$minor" -ge "$rust_minimum" ]
}

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Uses this user's rustup cargo even if it is not in the shell's PATH.
if ! recent_cargo && [ -x "${CARGO_HOME:-${HOME:-/root}/.cargo}/bin/cargo" ]; then
    PATH="${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:$PATH"
fi

if ! command -v dpkg-query >/dev/null; then
    echo "This is no Debian: install the counterparts of these Debian packages, and a Rust of at" >&2
    echo "least 1.$rust_minimum (https://rustup.rs):" $packages >&2
    echo "The lab fetches Debian's kernel and its source with apt-get; it needs a Debian 12." >&2
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
    apt-get update -q
    apt-get install -q -y --no-install-recommends $missing
    recent_cargo && exit 0
    echo "cargo is still older than 1.$rust_minimum: install Rust from https://rustup.rs" >&2
    exit 1
fi

{
    echo "Missing; as root on Debian 12:"
    echo
    echo "    apt-get update && apt-get install --no-install-recommends$missing"
    echo
    echo "or, for Rust alone, https://rustup.rs (1.$rust_minimum or newer). Then run make again."
} >&2
exit 1
