#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# `make series`: checks that the kernel series is readable and bisectable. Every patch must pass
# checkpatch and compile without warnings on top of the previous patches. The whole series must also
# compile with each of its options disabled. The source is a copy of LIMELIGHT_KERNEL_SRC, or of
# Debian's package linux-source-6.12. Code that the series does not touch is not compiled.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ours=$PWD/kernel
tarball=/usr/src/linux-source-6.12.tar.xz
touched=(fs/exec.o kernel/fork.o mm/)
options=(PROTECT READAHEAD PREMAP PREZERO KUNIT_TEST)
compiler=()
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -n "${LIMELIGHT_KERNEL_SRC:-}" ]; then
    cp -a "$LIMELIGHT_KERNEL_SRC/." "$work"
elif [ -e "$tarball" ]; then
    tar -xf "$tarball" -C "$work" --strip-components=1
else
    echo "no kernel source: set LIMELIGHT_KERNEL_SRC=DIRECTORY, or install linux-source-6.12" >&2
    exit 1
fi
cd "$work"
if command -v ccache >/dev/null; then
    export CCACHE_NOHASHDIR=1
    compiler=("CC=ccache gcc" "HOSTCC=ccache gcc")
fi

# Compiles the code that the series touches; a warning is an error.
compile() {
    make --silent olddefconfig
    make --silent "-j$(nproc)" "${compiler[@]}" "${touched[@]}" 2>"$work/messages" || true
    if [ -s "$work/messages" ]; then
        echo "$1: FAILED" >&2
        cat "$work/messages" >&2
        exit 1
    fi
    echo "$1: compiles without a warning"
}

cp -a "$ours/files/." .
# Tracepoints use a macro language of their own, which checkpatch reports as bad C.
find "$ours/files" -name '*.[ch]' ! -path '*/include/trace/*' -printf '%P\n' |
    xargs scripts/checkpatch.pl --strict --quiet --no-tree --file
for patch in "$ours"/patches/*.patch; do
    scripts/checkpatch.pl --strict --quiet "$patch"
    patch --strip=1 --fuzz=0 --silent <"$patch"
    make --silent tinyconfig
    scripts/kconfig/merge_config.sh -m .config "$ours"/configs/{base,limelight}.config >/dev/null
    compile "$(basename "$patch")"
done
for option in "${options[@]}"; do
    cp .config complete
    scripts/config --disable "LIMELIGHT_$option"
    compile "all patches without CONFIG_LIMELIGHT_$option"
    mv complete .config
done
for option in "${options[@]}"; do
    scripts/config --disable "LIMELIGHT_$option"
done
compile "all patches with /dev/limelight alone"
scripts/config --disable LIMELIGHT
compile "all patches without CONFIG_LIMELIGHT"
