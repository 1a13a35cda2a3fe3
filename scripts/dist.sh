#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# `make dist`: makes the source tarball and package recipes for it. The tarball contains the files
# of the work tree that git tracks, and the untracked files that git does not ignore. It is
# reproducible: the same tree and commit give the same bytes.
set -eu
cd "$(dirname "$0")/.."

version=$(scripts/version.sh)
out=target/dist
name=limelight-$version
tarball=$out/$name.tar.xz

if ! git rev-parse --git-dir >/dev/null 2>&1; then
    echo "make dist needs the git repository, because git lists the files of the source." >&2
    exit 1
fi
rm -rf "$out"
mkdir -p "$out"
time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
# git also lists tracked files that were deleted in the work tree; the loop drops them.
present='for file; do if [ -e "$file" ] || [ -L "$file" ]; then printf "%s\0" "$file"; fi; done'
git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c "$present" sh |
    LC_ALL=C sort -z -u |
    tar --create --null --no-recursion --files-from=- --transform="s|^|$name/|SH" --mtime="@$time" \
        --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w --format=ustar |
    XZ_OPT=-6 xz >"$tarball"

sha256=$(sha256sum "$tarball" | cut -d' ' -f1)
sha512=$(sha512sum "$tarball" | cut -d' ' -f1)
sed -e "s/@VERSION@/$version/" -e "s/@SHA256@/$sha256/" packaging/arch/PKGBUILD.in >"$out/PKGBUILD"
scripts/srcinfo.sh "$out/PKGBUILD" >"$out/.SRCINFO"
cp packaging/arch/limelight.install "$out/"
sed -e "s/@VERSION@/$version/" -e "s/@SHA512@/$sha512/" packaging/alpine/APKBUILD.in >"$out/APKBUILD"
cp packaging/alpine/limelight.post-install packaging/alpine/limelight.pre-deinstall "$out/"
echo "made $tarball, and $out/PKGBUILD, .SRCINFO and APKBUILD"
