#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# `make kernel-deb`: makes Debian packages of a kernel with the Limelight series in
# target/kernel-deb.
# Environment:
#   LIMELIGHT_KERNEL_SRC  directory of a kernel source to copy; default: Debian's linux-source-6.12
#   KERNEL_CONFIG         file with the base configuration; default: Debian's for FLAVOUR
#   FLAVOUR               a flavour of Debian's kernel: amd64 (default), cloud-amd64, arm64, ...
#   STEP                  config: stop after patching and configuring; package (default): go on and
#                         build the packages
# A build with Debian's configuration takes hours on two CPUs and about 25 GB of disk space.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ours=$PWD/kernel
wanted=$PWD/packaging/kernel.config
out=$PWD/target/kernel-deb
tree=$out/linux
tarball=/usr/src/linux-source-6.12.tar.xz
flavour=${FLAVOUR:-amd64}
step=${STEP:-package}
compiler=()
if command -v ccache >/dev/null; then
    export CCACHE_NOHASHDIR=1
    compiler=("CC=ccache gcc" "HOSTCC=ccache gcc")
fi

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

case $step in config | package) ;; *) fail "STEP is $step: set it to config or package" ;; esac
for tool in bc bison flex openssl patch rsync cpio dpkg-buildpackage dh; do
    command -v "$tool" >/dev/null || fail "$tool is not installed; on Debian:" \
        "    apt-get install --no-install-recommends build-essential bc bison flex openssl patch rsync cpio kmod debhelper libelf-dev libssl-dev"
done

# Copies Debian's configuration from the headers package, which is much smaller than the image
# package (80 MB).
debian_config() {
    local headers version
    headers=$(apt-cache search --names-only "^linux-headers-6\.12\.[0-9]*\+deb[0-9]*-$flavour\$" |
        cut -d' ' -f1 | sort -V | tail -n 1)
    [ -n "$headers" ] || fail "apt finds no linux-headers-6.12.*-$flavour: run apt-get update, choose another FLAVOUR, or set KERNEL_CONFIG=FILE"
    version=${headers#linux-headers-}
    (cd "$out" && apt-get download -q "$headers" >&2 && dpkg-deb -x "$headers"_*.deb headers && rm -f "$headers"_*.deb)
    cp "$out/headers/usr/src/linux-headers-$version/.config" "$1"
    rm -rf "$out/headers"
    echo "configuration: Debian's, version $version"
}

rm -rf "$out"
mkdir -p "$tree"
if [ -n "${LIMELIGHT_KERNEL_SRC:-}" ]; then
    cp -a "$LIMELIGHT_KERNEL_SRC/." "$tree"
elif [ -e "$tarball" ]; then
    tar -xf "$tarball" -C "$tree" --strip-components=1
else
    fail "no kernel source: set LIMELIGHT_KERNEL_SRC=DIRECTORY, or install linux-source-6.12"
fi
if [ -n "${KERNEL_CONFIG:-}" ]; then
    cp "$KERNEL_CONFIG" "$out/base.config"
    echo "configuration: $KERNEL_CONFIG"
else
    debian_config "$out/base.config"
fi

cp -a "$ours/files/." "$ours/compat/6.12/." "$tree"
cd "$tree"
for patch in "$ours"/patches/6.12/*.patch; do
    patch --strip=1 --fuzz=0 --silent <"$patch"
done
echo "source: $(make -s kernelversion) with the series"

cp "$out/base.config" .config
# packaging/kernel.config sets DEBUG_INFO_NONE, one option of a Kconfig choice. It takes effect only
# if no other option of that choice is set.
scripts/config --disable DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT --disable DEBUG_INFO_DWARF4 --disable DEBUG_INFO_DWARF5
scripts/kconfig/merge_config.sh -m .config "$wanted" >/dev/null
make -s "${compiler[@]}" olddefconfig

# Checks that all of our options have the requested values.
lost=()
while IFS= read -r line; do
    case $line in
    # An option whose requested value is the empty string may be absent.
    CONFIG_*='""') grep -q "^${line%\"}[^\"]" .config && lost+=("$line") ;;
    CONFIG_*=*) grep -qxF -- "$line" .config || lost+=("$line") ;;
    "# CONFIG_"*" is not set")
        name=${line#\# }
        grep -q "^${name% is not set}=" .config && lost+=("$line")
        ;;
    esac
done <"$wanted"
[ ${#lost[@]} -eq 0 ] || fail "make olddefconfig dropped these options (a dependency is missing in ${KERNEL_CONFIG:-Debian\'s configuration}):" "${lost[@]}"
scripts/diffconfig "$out/base.config" .config >"$out/config.diff" || true
echo "configured: all options of packaging/kernel.config are set; differences from the base configuration: target/kernel-deb/config.diff"
[ "$step" = package ] || exit 0

# Modules are stripped, and no debug symbol package is made. DPKG_FLAGS=-d skips the check for build
# dependencies, which does not recognise a compiler behind ccache.
make -s "-j$(nproc)" "${compiler[@]}" INSTALL_MOD_STRIP=1 DPKG_FLAGS=-d KDEB_COMPRESS=xz \
    KDEB_SOURCENAME=linux-limelight KDEB_PKGVERSION="$(make -s kernelversion)-1" bindeb-pkg
cd "$out"
rm -rf "$tree"
ls "$out"/*.deb
