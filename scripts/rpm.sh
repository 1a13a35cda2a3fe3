#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# rpm.sh PROGRAMS: builds target/rpm/ARCH/limelight-*.rpm from the source tarball and from the
# programs and the library in the directory PROGRAMS. Then checks the packages with rpmlint, if that
# is installed.
set -eu
cd "$(dirname "$0")/.."

programs=$(realpath "$1")
version=$(scripts/version.sh)
out=$PWD/target/rpm
command -v rpmbuild >/dev/null || {
    echo "rpmbuild is missing: install the package rpm-build (Fedora) or rpm (Debian)" >&2
    exit 1
}
scripts/dist.sh >/dev/null
rm -rf "$out"
mkdir -p "$out"
sed "s/@VERSION@/$version/g" packaging/rpm/limelight.spec.in >"$out/limelight.spec"
rpmbuild -bb --quiet --define "_topdir $out/build" --define "_sourcedir $PWD/target/dist" \
    --define "_rpmdir $out" --define "programs $programs" "$out/limelight.spec" >"$out/build.log" 2>&1 || {
    tail -n 40 "$out/build.log" >&2
    echo "rpmbuild failed; the full log is $out/build.log" >&2
    exit 1
}
rm -rf "$out/build"
if command -v rpmlint >/dev/null; then
    rpmlint --rpmlintrc packaging/rpm/rpmlintrc "$out/limelight.spec" "$out"/*/*.rpm
else
    echo "rpmlint is not installed: the packages were not checked" >&2
fi
ls "$out"/*/*.rpm
