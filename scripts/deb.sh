#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# deb.sh PROGRAMS [OUT]: builds OUT/limelight_VERSION_ARCH.deb from the source tarball and from the
# programs and the library in the directory PROGRAMS. OUT is target/deb by default. Then checks the
# package with lintian, if that is installed.
set -eu
cd "$(dirname "$0")/.."

programs=$(realpath "$1")
version=$(scripts/version.sh)
out=$PWD/${2:-target/deb}
changelog=$(sed -n '1s/^limelight (\(.*\)-[^-]*) .*/\1/p' packaging/debian/changelog)
if [ "$changelog" != "$version" ]; then
    echo "the newest entry of packaging/debian/changelog is for version $changelog: add one for $version" >&2
    exit 1
fi
for tool in dh dpkg-buildpackage; do
    command -v "$tool" >/dev/null || {
        echo "$tool is missing: apt-get install --no-install-recommends debhelper lintian" >&2
        exit 1
    }
done

scripts/dist.sh >/dev/null
rm -rf "$out"
mkdir -p "$out"
cp "target/dist/limelight-$version.tar.xz" "$out/limelight_$version.orig.tar.xz"
tar -xf "$out/limelight_$version.orig.tar.xz" -C "$out"
tree=$out/limelight-$version
cp -a packaging/debian "$tree/debian"

# -d: does not check the build dependencies, because the compiler may be rustup's.
(cd "$tree" && PROGRAMS="$programs" dpkg-buildpackage --build=binary --no-sign -d >"$out/build.log" 2>&1) || {
    tail -n 40 "$out/build.log" >&2
    echo "dpkg-buildpackage failed; the full log is $out/build.log" >&2
    exit 1
}
rm -rf "$tree"
package=$(ls "$out"/limelight_*.deb)
if command -v lintian >/dev/null; then
    # The package is Debian's on other distributions, too: Ubuntu's profile refuses the distribution
    # "unstable". The first suppressed tag is only for packages that are uploaded to Debian. The
    # second one is Ubuntu's: the documents refer to CHANGELOG.md by its name. LINTIAN_SUPPRESS:
    # further tags, separated by commas.
    suppressed=initial-upload-closes-no-bugs,wrong-name-for-upstream-changelog
    lintian --allow-root --profile debian --fail-on error,warning \
        --suppress-tags "$suppressed${LINTIAN_SUPPRESS:+,$LINTIAN_SUPPRESS}" \
        "$out"/limelight_*.changes
else
    echo "lintian is not installed: the package was not checked" >&2
fi
echo "$package"
