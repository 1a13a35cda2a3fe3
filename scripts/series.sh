#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# `make series`: makes the kernel series in target/series/KERNEL with scripts/series-make.sh; the
# subdirectory rfc/ gets the RFC, which contains only protect. Then checks that the patches can be
# sent:
#   - `git am` applies them to a fresh kernel source, and the result has exactly our changes;
#   - each patch passes checkpatch, and compiles without warnings on top of the previous patches;
#   - the whole series compiles without warnings with each of its options disabled;
#   - with all of its options disabled, no structure that it adds members to grows.
# Code that the series does not touch is not compiled.
# Environment:
#   KERNEL                version of the kernel: 6.12 (default) or 7.3
#   LIMELIGHT_KERNEL_SRC  an unmodified kernel source; default: Debian's linux-source-KERNEL
#   LIMELIGHT_KERNEL_TAR  the tarball of that package, if it is elsewhere
#   SERIES_COMPILE        no: skip the compiler (minutes)
#   SERIES_BOOT           yes: also build the whole kernel after each patch and boot it in a virtual
#                         machine, with scripts/series-boot.sh (about an hour)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ours=$PWD/kernel
export KERNEL=${KERNEL:-6.12}
out=$PWD/target/series/$KERNEL
make_series=$PWD/scripts/series-make.sh
boot_kernel=$PWD/scripts/series-boot.sh
tarball=${LIMELIGHT_KERNEL_TAR:-/usr/src/linux-source-$KERNEL.tar.xz}
touched=(fs/exec.o kernel/fork.o kernel/sched/ mm/)
options=(PROTECT READAHEAD PREMAP PREZERO PREZERO_BLOCK PREZERO_DMA KUNIT_TEST)
# Structures that the series adds members to, directly or by a member.
structures=(lruvec mem_cgroup mm_struct pglist_data readahead_control reclaim_state scan_control
    task_struct zone)
compiler=()
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
linux=$work/linux
mkdir "$linux" "$work/scratch" "$work/boot"

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

[ -d "$ours/patches/$KERNEL" ] || fail "KERNEL=$KERNEL: no hunks for this version in kernel/patches"
configs=("$ours"/configs/{base,limelight}.config)
[ ! -e "$ours/configs/$KERNEL.config" ] || configs+=("$ours/configs/$KERNEL.config")

case ${SERIES_COMPILE:-yes} in yes | no) ;; *) fail "SERIES_COMPILE=$SERIES_COMPILE: set it to yes or no" ;; esac
case ${SERIES_BOOT:-no}-${SERIES_COMPILE:-yes} in
    no-* | yes-yes) ;;
    yes-no) fail "SERIES_BOOT=yes needs the compiler: do not set SERIES_COMPILE=no" ;;
    *) fail "SERIES_BOOT=$SERIES_BOOT: set it to yes or no" ;;
esac
# The kernel's makefiles must not inherit the options of `make series`, because an inherited
# jobserver causes a warning.
unset MAKEFLAGS MFLAGS
# Without the compiler, the checks need only the files that the series changes, and the kernel's
# makefile and scripts. Since Linux 7, scripts/kernel-doc is a link to a Python program.
scripts=(Makefile scripts)
[ "$KERNEL" = 6.12 ] || scripts+=(tools/docs tools/lib/python)
wanted=()
if [ "${SERIES_COMPILE:-yes}" = no ]; then
    mapfile -t wanted < <(printf '%s\n' "${scripts[@]}" &&
        cat "$ours"/{patches,series/hunks}/"$KERNEL"/*.patch | sed -n 's|^--- a/||p' | sort -u)
fi
if [ -n "${LIMELIGHT_KERNEL_SRC:-}" ]; then
    tar -C "$LIMELIGHT_KERNEL_SRC" --exclude=./.git -c "${wanted[@]-.}" | tar -x -C "$linux"
elif [ -e "$tarball" ]; then
    tar -xf "$tarball" -C "$linux" --strip-components=1 --wildcards --no-wildcards-match-slash \
        ${wanted[@]+"${wanted[@]/#/*/}"}
else
    fail "no kernel source: set LIMELIGHT_KERNEL_SRC=DIRECTORY, or install linux-source-$KERNEL"
fi
if command -v ccache >/dev/null; then
    export CCACHE_NOHASHDIR=1
    compiler=("CC=ccache gcc" "HOSTCC=ccache gcc")
fi

# Compiles the code that the series touches; a warning is an error.
compile() {
    [ "${SERIES_COMPILE:-yes}" = yes ] || return 0
    local started=$SECONDS
    make --silent olddefconfig
    make --silent "-j$(nproc)" "${compiler[@]}" "${touched[@]}" 2>"$work/messages" || true
    if [ -s "$work/messages" ]; then
        echo "$1: FAILED" >&2
        cat "$work/messages" >&2
        exit 1
    fi
    echo "$1: compiles without a warning ($((SECONDS - started)) s)"
}

# Prints the sizes of the structures, one per line, in the current tree and configuration. The
# compiler writes them into an assembler file, as it does for the kernel's asm-offsets.h.
# mm/vmscan.c is included because it defines struct scan_control.
sizes() {
    local structure
    {
        printf '#include "vmscan.c"\nvoid limelight_sizes(void);\nvoid limelight_sizes(void)\n{\n'
        for structure in "${structures[@]}"; do
            printf 'asm volatile(".ascii \\"->%s %%c0\\"" : : "i" (sizeof(struct %s)));\n' \
                "$structure" "$structure"
        done
        echo '}'
    } >mm/limelight-sizes.c
    make --silent olddefconfig
    make --silent "-j$(nproc)" "${compiler[@]}" mm/limelight-sizes.s >&2
    sed -n 's/^.*"->\([a-z_]* [0-9]*\)".*$/\1/p' mm/limelight-sizes.s
    rm mm/limelight-sizes.[cs]
}

# Checks the patch that `git am` has just applied.
check() {
    local number=$1 file entry known skipped=()
    # Each new file must be in the series' entry in MAINTAINERS, which the first patch adds.
    [ "$number" = 0001 ] || skipped=(--ignore FILE_PATH_CHANGES)
    # The sources are shared with Linux 6.12, which has no kzalloc_obj().
    [ "$KERNEL" = 6.12 ] || skipped+=(--ignore ALLOC_WITH_SIZEOF)
    git diff --name-only --diff-filter=A HEAD~ >"$work/added"
    while IFS= read -r file; do
        known=no
        for entry in $(sed -n '/^LIMELIGHT /,/^$/s/^F:[[:space:]]*//p' MAINTAINERS); do
            case $file in "$entry" | "${entry%/}"/*) known=yes ;; esac
        done
        [ "$known" = yes ] || fail "$number: $file is not in the series' entry in MAINTAINERS"
    done <"$work/added"
    # Tracepoints use a macro language of their own, which checkpatch reports as bad C.
    git format-patch --quiet --stdout -1 -- . ':(exclude)include/trace' |
        scripts/checkpatch.pl --no-tree --strict --quiet ${skipped[@]+"${skipped[@]}"} -
    while IFS= read -r file; do
        case $file in *.[ch]) scripts/kernel-doc -none -Werror "$file" ;; esac
    done <"$work/added"
    ! git diff HEAD~ | grep '^+.*[[:space:]]$' || fail "$number: spaces at the end of a line"
    echo "$number: passes git am, checkpatch and the check of MAINTAINERS"
}

"$make_series" "$linux" "$out" "$work/scratch"

# The directory holds the whole kernel source, but only the files that the series touches are added
# to its repository, because adding all files takes minutes.
cd "$linux"
git init --quiet --initial-branch=master
git config user.name series
git config user.email series@localhost
git config core.hooksPath /dev/null
git config commit.gpgSign false
git -C "$work/scratch/repository" ls-tree -r --name-only base >"$work/base"
git add --force --pathspec-from-file="$work/base"
git commit --quiet --message base
git tag base
for patch in "$out"/0*.patch; do
    number=$(basename "$patch" | cut -c1-4)
    [ "$number" != 0000 ] || continue
    git am --quiet "$patch"
    check "$number"
    if [ "${SERIES_COMPILE:-yes}" = yes ]; then
        make --silent tinyconfig
        scripts/kconfig/merge_config.sh -m .config "${configs[@]}" >/dev/null
        compile "$(basename "$patch")"
    fi
    if [ "${SERIES_BOOT:-no}" = yes ]; then
        "$boot_kernel" "$(basename "$patch")" "$work/boot" "${compiler[@]}"
    fi
done

git archive --prefix=am/ HEAD | tar -x -C "$work"
diff --recursive "$work/am" "$work/scratch/complete" ||
    fail "the result of git am differs from the files and hunks of kernel/"
echo "the result of git am has exactly the files and hunks of kernel/"

if [ "${SERIES_COMPILE:-yes}" = yes ]; then
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
    sizes >"$work/sizes"
else
    echo "SERIES_COMPILE=no: nothing was compiled"
fi
git checkout --quiet --force base
if [ "${SERIES_COMPILE:-yes}" = yes ]; then
    sizes >"$work/sizes-of-base"
    [ "$(wc -l <"$work/sizes")" = "${#structures[@]}" ] ||
        fail "the sizes of the structures are not in the assembler file"
    diff "$work/sizes-of-base" "$work/sizes" ||
        fail "without CONFIG_LIMELIGHT, the size of a structure differs from that in base"
    echo "no structure grows without CONFIG_LIMELIGHT: $(paste -sd, "$work/sizes")"
fi
git am --quiet "$out"/rfc/000[1-9]-*.patch
echo "git am applies the RFC"
echo "the series is in ${out#"$OLDPWD"/}"
