# SPDX-License-Identifier: GPL-2.0-or-later
# Prints a file as it is after one patch of the kernel series: without what later patches add.
# Usage: awk -v name=PATH -f series-filter.awk FILE FILE
# Lists in the environment, one entry a line:
#   OPTIONS   options of later patches. C files lose the code in their #ifdef (the code after #else
#             stays); Kconfig and Makefile lose their entries
#   FILES     files of later patches. C files lose their #includes
#   SECTIONS  sections of later patches. The documentation loses them
#   REGIONS   `now LINE` or `later LINE`. A region reaches from LINE to the first line of the next
#             region; it is kept (now) or left out (later)
# FILE is given twice, because it is read twice: a region begins at the last line that equals LINE.

function fill(list, text,    n, i, lines) {
    n = split(text, lines, "\n")
    for (i = 1; i <= n; i++)
        if (lines[i] != "")
            list[lines[i]] = 1
}

# Prints a line. Where lines were left out, the empty lines around them become one. Empty lines at
# the end of the file are not printed.
function put(line) {
    if (line == "") {
        empty++
        return
    }
    if (dropped && empty)
        empty = 1
    for (; empty; empty--)
        print ""
    dropped = 0
    print line
}

function drop() {
    dropped = 1
}

# Whether every enclosing branch is kept.
function kept(    i) {
    for (i = 1; i <= depth; i++)
        if (skip[i])
            return 0
    return 1
}

function included(line,    parts, path) {
    split(line, parts, "\"")
    path = name
    sub(/[^\/]*$/, "", path)
    return parts[2] != "" && (path parts[2]) in later_file
}

BEGIN {
    regions_wanted = split(ENVIRON["REGIONS"], region, "\n")
    for (i = 1; i <= regions_wanted; i++) {
        text = region[i]
        sub(/^[a-z]* /, "", text)
        later_region[text] = (region[i] ~ /^later /)
    }
    fill(later_option, ENVIRON["OPTIONS"])
    fill(later_file, ENVIRON["FILES"])
    fill(later_section, ENVIRON["SECTIONS"])
    kind = "other"
    if (name ~ /\.[ch]$/)
        kind = "c"
    else if (name ~ /\/Kconfig$/)
        kind = "kconfig"
    else if (name ~ /mm\/limelight\/Makefile$/)
        kind = "makefile"
    else if (name ~ /\.rst$/)
        kind = "rst"
    else if (name ~ /^Documentation\/ABI\//)
        kind = "abi"
}

# First reading: finds where the regions begin. A region whose line is inside a comment begins with
# that comment.
FNR == NR {
    if ($0 == "/*")
        comment = FNR
    if ($0 in later_region) {
        begins[$0] = /^ \*/ ? comment : FNR
        found[$0] = 1
    }
    next
}

FNR == 1 {
    for (text in begins)
        change[begins[text]] = 1 + later_region[text]
    for (text in later_region)
        if (!(text in found)) {
            print name ": no line for the region: " text > "/dev/stderr"
            failed = 1
            exit 1
        }
}

FNR in change {
    outside = change[FNR] == 2
}

outside {
    drop()
    next
}

kind == "c" && /^#[ \t]*if/ {
    depth++
    option = $2
    sub(/^CONFIG_/, "", option)
    mine[depth] = ($1 == "#ifdef" && option in later_option)
    if (mine[depth]) {
        skip[depth] = 1
        drop()
        next
    }
    skip[depth] = 0
}

kind == "c" && /^#[ \t]*(else|endif)/ && mine[depth] {
    skip[depth] = 0
    if ($1 ~ /endif/)
        depth--
    drop()
    next
}

kind == "c" {
    ending = /^#[ \t]*endif/
    if (!kept() || (/^#include "/ && included($0)))
        drop()
    else
        put($0)
    if (ending)
        depth--
    next
}

kind == "kconfig" {
    if (/^[a-z]/)
        skipping = ($1 == "config" && $2 in later_option)
    if (skipping)
        drop()
    else
        put($0)
    next
}

kind == "makefile" {
    if (!continued) {
        skipping = 0
        if (match($0, /\$\(CONFIG_[A-Z0-9_]+\)/))
            skipping = substr($0, RSTART + 9, RLENGTH - 10) in later_option
    }
    continued = /\\$/
    if (skipping)
        drop()
    else
        put($0)
    next
}

# The line under a heading identifies it, so each line is held back until the next one is read.
kind == "rst" {
    if (FNR > 1) {
        if (/^===+$/ && held != "")
            skipping = tolower(held) in later_section
        if (skipping)
            drop()
        else
            put(held)
    }
    held = $0
    next
}

# Entries are paragraphs; the directory below /sys/kernel/mm/limelight names the section.
kind == "abi" {
    if (/^What:/) {
        directory = $2
        sub(/^\/sys\/kernel\/mm\/limelight\/?/, "", directory)
        sub(/\/.*/, "", directory)
        skipping = directory in later_section
    }
    if (skipping)
        drop()
    else
        put($0)
    next
}

{ print }

END {
    if (failed)
        exit 1
    if (kind == "rst" && !skipping)
        put(held)
    if (depth)
        exit 1
}
