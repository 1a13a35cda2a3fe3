#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# deps.sh [TARGET]: checks that the packages for a target are installed. As root on Debian 12,
# Debian 13 and Ubuntu 24.04, it installs missing packages; otherwise it prints the command that
# does, and exits with 1.
#
# deps.sh --list DISTRIBUTION TARGET: prints the packages, without Rust's. DISTRIBUTION: debian-12,
# debian-13, ubuntu-24.04 or fedora.
#
# TARGET: what the packages are for.
#   build        the programs
#   demo         make demo
#   demo-kernel  make demo KERNEL=ours, which also builds a kernel
#   test         everything (default)
set -eu

rust_minimum=88

usage() {
    echo "usage: scripts/deps.sh [TARGET], or scripts/deps.sh --list DISTRIBUTION TARGET" >&2
    echo "targets: build demo demo-kernel test" >&2
    echo "distributions: debian-12 debian-13 ubuntu-24.04 fedora" >&2
    exit 2
}

# Packages of Debian and Ubuntu, by purpose.
apt_build="gcc libc6-dev make"
# Debian's kernel and earlyoom for the guests come from apt, which Debian and Ubuntu have.
apt_guest="qemu-system-x86 busybox-static e2fsprogs xz-utils git ca-certificates"
apt_kernel="g++ binutils flex bison bc libelf-dev libssl-dev patch ccache python3"
# Images; an X server, window managers, compositors and PipeWire with a recorder for the agent's
# tests; the checkers of packages and scripts; GNOME's and Qt's runtimes for the examples that use
# D-Bus.
apt_test="mmdebstrap uidmap zstd cpio
xvfb openbox i3-wm sway phoc kwin-wayland mutter dbus systemd
pipewire gstreamer1.0-pipewire gstreamer1.0-tools gstreamer1.0-plugins-base
debhelper lintian shellcheck makepkg
gjs python3-pyqt6"
# Debian's keys, for its kernel.
ubuntu_guest="debian-archive-keyring"

dnf_build="gcc glibc-devel glibc-static make"
dnf_guest="qemu-system-x86-core busybox e2fsprogs xz git ca-certificates"
dnf_kernel="gcc-c++ binutils flex bison bc elfutils-libelf-devel openssl-devel patch ccache python3"
dnf_test="mmdebstrap shadow-utils zstd cpio
xorg-x11-server-Xvfb openbox i3 sway phoc kwin mutter dbus-daemon systemd
pipewire pipewire-utils pipewire-gstreamer gstreamer1 gstreamer1-plugins-base
debhelper rpm-build ShellCheck
gjs python3-pyqt6"

# The packages for target $2 on distribution $1, one a line.
list() {
    case $1 in
    debian-12 | debian-13) build=$apt_build guest=$apt_guest kernel=$apt_kernel tests=$apt_test ;;
    ubuntu-24.04)
        build=$apt_build guest="$apt_guest $ubuntu_guest" kernel=$apt_kernel tests=$apt_test
        ;;
    fedora) build=$dnf_build guest=$dnf_guest kernel=$dnf_kernel tests=$dnf_test ;;
    *) usage ;;
    esac
    case $2 in
    build) set -- $build ;;
    demo) set -- $build $guest ;;
    demo-kernel) set -- $build $guest $kernel ;;
    test) set -- $build $guest $kernel $tests ;;
    *) usage ;;
    esac
    printf '%s\n' "$@"
}

# Rust's packages for target $2 on distribution $1. The default packages of Debian 12 (1.63) and
# Debian 13 (1.85) are too old; cargo-web and rustc-web are the newer ones that both also have.
rust_list() {
    case $1-$2 in
    debian-*-test) echo cargo-web rustc-web rustfmt-web rust-web-clippy ;;
    debian-*) echo cargo-web rustc-web ;;
    ubuntu-*) echo rustup ;;
    fedora-test) echo cargo rust rustfmt clippy ;;
    fedora-*) echo cargo rust ;;
    esac
}

recent_cargo() {
    minor=$(cargo --version 2>/dev/null | sed -n 's/^cargo 1\.\([0-9]*\)\..*/\1/p')
    [ -n "$minor" ] && [ "$minor" -ge "$rust_minimum" ]
}

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

if [ "${1-}" = --list ]; then
    [ $# = 3 ] || usage
    list "$2" "$3"
    exit 0
fi
[ $# -le 1 ] || usage
target=${1:-test}
case $target in
build | demo | demo-kernel | test) ;;
*) usage ;;
esac

# Uses the user's rustup cargo even if it is not in the PATH.
if ! recent_cargo && [ -x "${CARGO_HOME:-${HOME:-/root}/.cargo}/bin/cargo" ]; then
    PATH="${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:$PATH"
fi

# OS_RELEASE: the file to read instead, for tests.
distribution=$(
    # shellcheck source=/dev/null
    . "${OS_RELEASE:-/etc/os-release}"
    case ${ID:-}-${VERSION_ID:-} in
    debian-12 | debian-13 | ubuntu-24.04) echo "$ID-$VERSION_ID" ;;
    fedora-*) echo fedora ;;
    *) echo other ;;
    esac
)

# Without dpkg, the script cannot see what is installed.
if [ "$distribution" = fedora ] || [ "$distribution" = other ]; then
    if [ "$target" = build ] && command -v cc >/dev/null && command -v make >/dev/null && recent_cargo; then
        exit 0
    fi
    if [ "$distribution" = fedora ]; then
        echo "On Fedora, these packages are needed for $target, and Rust 1.$rust_minimum or later:"
        echo
        echo "    dnf install $(list fedora "$target" | tr '\n' ' ')$(rust_list fedora "$target")"
    else
        echo "This distribution is unknown to Limelight. These packages of Debian 13 are needed"
        echo "for $target; install their equivalents, and Rust 1.$rust_minimum or later:"
        echo
        echo "    $(list debian-13 "$target" | tr '\n' ' ')"
    fi >&2
    # Without apt, the lab cannot fetch Debian's kernel.
    if [ "$target" != build ]; then
        echo
        echo "The virtual machines run Debian's kernel, which apt fetches. On a system without"
        echo "apt, run make in a container of Debian 13."
    fi >&2
    exit 1
fi

missing=
for package in $(list "$distribution" "$target"); do
    installed "$package" || missing="$missing $package"
done
if ! recent_cargo; then
    for package in $(rust_list "$distribution" "$target"); do
        installed "$package" || missing="$missing $package"
    done
fi
if [ -z "$missing" ]; then
    recent_cargo && exit 0
    echo "cargo is older than 1.$rust_minimum, or missing: run \`rustup default stable\`, or install" >&2
    echo "Rust from https://rustup.rs" >&2
    exit 1
fi

if [ "$(id -u)" = 0 ] && [ -z "${OS_RELEASE-}" ]; then
    echo "installing:$missing"
    export DEBIAN_FRONTEND=noninteractive
    # Another program, such as an automatic upgrade, may hold the lock.
    apt-get update -q -o DPkg::Lock::Timeout=600
    apt-get install -q -y -o DPkg::Lock::Timeout=600 --no-install-recommends $missing
    recent_cargo && exit 0
    echo "cargo is older than 1.$rust_minimum: run \`rustup default stable\`, or install Rust from" >&2
    echo "https://rustup.rs" >&2
    exit 1
fi

{
    echo "Packages are missing. To install them as root on $distribution:"
    echo
    echo "    apt-get update && apt-get install --no-install-recommends$missing"
    echo
    echo "Rust 1.$rust_minimum or newer may also come from https://rustup.rs. Then run make again."
} >&2
exit 1
