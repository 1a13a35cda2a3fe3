#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Makes the patches of the kernel series from the files in kernel/files, kernel/compat/VERSION and
# kernel/series/files and the hunks in kernel/patches/VERSION and kernel/series/hunks/VERSION.
# kernel/series/parts assigns the files, and parts of them, to the patches. The descriptions are
# those of Linux 6.12. Called by scripts/series.sh.
# Usage: series-make.sh KERNEL_SOURCE OUT SCRATCH
#   KERNEL_SOURCE  directory of an unpacked kernel source, which is only read
#   OUT            directory for the patches; its old content is deleted
#   SCRATCH        an empty directory, in which the script makes repository/ (the files that the
#                  series touches, with one commit per patch) and complete/ (the same files with
#                  everything applied at once)
# The author and the sign-off are git's identity (git config user.name and user.email, or
# GIT_AUTHOR_NAME, ...), which the entry in MAINTAINERS names as well.
# Environment: KERNEL, the version of the kernel (default 6.12).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

project=$PWD
source=$1
out=$2
scratch=$3
ours=$project/kernel
kernel=${KERNEL:-6.12}
hunks=("$ours/patches/$kernel" "$ours/series/hunks/$kernel")
parts=$ours/series/parts
repository=$scratch/repository
complete=$scratch/complete

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

author=$(git -c user.useConfigOnly=true var GIT_AUTHOR_IDENT) ||
    fail "the series needs an author and a sign-off: git config user.name NAME, git config user.email ADDRESS"
author=${author% * *}
GIT_AUTHOR_NAME=${author% <*}
GIT_AUTHOR_EMAIL=${author##*<}
GIT_AUTHOR_EMAIL=${GIT_AUTHOR_EMAIL%>}
export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL
export GIT_COMMITTER_NAME=$GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL=$GIT_AUTHOR_EMAIL
# A fixed date, so that the same sources give the same patches.
if [ -z "${GIT_AUTHOR_DATE:-}" ]; then
    GIT_AUTHOR_DATE=$(git log -1 --format=%cI -- kernel 2>/dev/null || date -R)
fi
export GIT_AUTHOR_DATE GIT_COMMITTER_DATE=$GIT_AUTHOR_DATE

mapfile -t numbers < <(for file in "$ours"/patches/6.12/*.patch "$ours"/series/*.message; do basename "$file" | cut -c1-4; done | sort -u)

# The entries of kind $2 in kernel/series/parts for the patches after patch $1.
later() {
    awk -v patch="$1" -v kind="$2" '$1 ~ /^[0-9]+$/ && $1 > patch && $2 == kind { $1 = $2 = ""; sub(/^ +/, ""); print }' "$parts"
}

# The regions of the file $2 after patch $1, in the format of REGIONS in series-filter.awk.
regions() {
    local patch kind file line
    while read -r patch kind file; do
        if [ "$kind" = from ] && [ "${file%% *}" = "$2" ]; then
            line=${file#* }
            if ((10#$patch > 10#$1)); then echo "later $line"; else echo "now $line"; fi
        fi
    done <"$parts"
}

# The patch that a file belongs to.
patch_of() {
    local patch kind pattern
    while read -r patch kind pattern; do
        # shellcheck disable=SC2254 # a pattern
        if [ "$kind" = file ]; then
            case $1 in $pattern) echo "$patch" && return ;; esac
        fi
    done <"$parts"
    fail "kernel/series/parts assigns $1 to no patch"
}

# Applies a patch's hunks in the current directory.
apply() {
    local file
    for file in "${hunks[0]}/$1"-*.patch "${hunks[1]}/$1"-*.patch; do
        [ -e "$file" ] || continue
        sed "s|@AUTHOR@|$author|" "$file" | patch --strip=1 --fuzz=0 --silent --no-backup-if-mismatch ||
            fail "$(basename "$file") does not apply"
    done
}

# The commit message of patch $1: its description without the tag [PATCH ...] and the sign-off.
message() {
    local file
    for file in "$ours"/patches/6.12/"$1"-*.patch "$ours"/series/"$1"-*.message; do
        [ -e "$file" ] || continue
        sed -n '1,/^$/s/^Subject: *\(\[[^]]*\] *\)\{0,1\}//p' "$file"
        echo
        sed '1,/^$/d; /^---$/,$d; /^Signed-off-by: /d' "$file"
    done
}

rm -rf "$out"
mkdir -p "$out" "$repository"
cd "$repository"
git init --quiet --initial-branch=series
git config core.hooksPath /dev/null
git config commit.gpgSign false
while IFS= read -r file; do
    [ -e "$source/$file" ] && install -D -m "$(stat -c %a "$source/$file")" "$source/$file" "$file"
done < <(cat "${hunks[0]}"/*.patch "${hunks[1]}"/*.patch | sed -n 's|^--- a/||p' | sort -u)
git add --all --force
version=$(sed -n 's/^\(VERSION\|PATCHLEVEL\|SUBLEVEL\) = //p' "$source/Makefile" | paste -sd.)
git commit --quiet --message "Linux $version"
git tag base

cp -a "$repository" "$complete"
rm -rf "$complete/.git"
cp -a "$ours/files/." "$ours/compat/$kernel/." "$ours/series/files/." "$complete"
(cd "$complete" && for number in "${numbers[@]}"; do apply "$number"; done)

declare -A sources patches
for directory in "$ours/files" "$ours/compat/$kernel" "$ours/series/files"; do
    while IFS= read -r file; do
        sources[$file]=$directory/$file
        patches[$file]=$(patch_of "$file")
    done < <(cd "$directory" && find . -type f -printf '%P\n')
done
while read -r _ kind name; do
    case $kind in
    file) compgen -G "$complete/$name" >/dev/null || fail "kernel/series/parts: no file matches $name" ;;
    from) [ -n "${sources[${name%% *}]:-}" ] || fail "kernel/series/parts: no file ${name%% *}" ;;
    option) grep -q "^config $name\$" "$complete/mm/limelight/Kconfig" || fail "kernel/series/parts: no option $name" ;;
    esac
done < <(grep '^[0-9]' "$parts")

for number in "${numbers[@]}"; do
    apply "$number"
    OPTIONS=$(later "$number" option)
    FILES=$(later "$number" file)
    SECTIONS=$(later "$number" section)
    export OPTIONS FILES SECTIONS
    for file in "${!sources[@]}"; do
        ((10#${patches[$file]} <= 10#$number)) || continue
        mkdir -p "$(dirname "$file")"
        REGIONS=$(regions "$number" "$file") awk -v name="$file" -f "$project/scripts/series-filter.awk" \
            "${sources[$file]}" "${sources[$file]}" >"$file"
    done
    git add --all --force
    message "$number" | git commit --quiet --signoff --file -
done

# After the last commit, the tree must equal the complete source.
diff --recursive --exclude=.git . "$complete" || fail "the series differs from the files and hunks of kernel/"

# Fills git's template of a cover letter: the first line is the subject.
cover() {
    local letter=$1 file=$2
    awk -v letter="$letter" '
        BEGIN { getline subject < letter }
        /\*\*\* SUBJECT HERE \*\*\*/ { sub(/\*\*\* SUBJECT HERE \*\*\*/, subject) }
        /\*\*\* BLURB HERE \*\*\*/ {
            getline line < letter
            while ((getline line < letter) > 0) print line
            next
        }
        { print }' "$file" >"$file.filled"
    mv "$file.filled" "$file"
}

format=(git format-patch --quiet --cover-letter --signature=Limelight --abbrev=12 --no-renames)
"${format[@]}" --output-directory "$out" base..series
cover "$ours/series/cover-letter.txt" "$out/0000-cover-letter.patch"
"${format[@]}" --rfc --output-directory "$out/rfc" "base..series~$((${#numbers[@]} - 2))"
cover "$ours/series/cover-letter-rfc.txt" "$out/rfc/0000-cover-letter.patch"
