#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# addresses.sh HOME_PAGE REPOSITORY MAIL: replaces the placeholder addresses in all files of the
# work tree by the project's own. REPOSITORY must end in .git; browsers get it without .git.
set -eu

usage() {
    echo "usage: scripts/addresses.sh HOME_PAGE REPOSITORY.git MAIL" >&2
    exit 2
}

[ $# -eq 3 ] || usage
home=$1 repository=$2 mail=$3
case $repository in
*.git) ;;
*) usage ;;
esac

cd "$(dirname "$0")/.."
git grep -lzF limelight.invalid -- ':!scripts/addresses.sh' | xargs -0r sed -i \
    -e "s|https://limelight\.invalid/limelight\.git|$repository|g" \
    -e "s|https://limelight\.invalid/limelight|${repository%.git}|g" \
    -e "s|https://limelight\.invalid/|$home|g" \
    -e "s|maintainers@limelight\.invalid|$mail|g"
git diff --stat
