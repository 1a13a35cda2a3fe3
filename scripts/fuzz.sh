#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# `make fuzz`: libFuzzer looks for texts that break what crates/fuzz promises, SECONDS_EACH (3) for
# each target, or for each one that is named; SEED (0: another one each time) is that of its random
# choices. Needs a C++ compiler and a stable Rust.
#   scripts/fuzz.sh --merge [TARGET...]   takes what was found into the corpora, the smallest
#                                         set that reaches as much
# A text that breaks something is left in target/fuzz/failures: move it into the target's corpus as
# fault-WHAT, and `cargo test -p limelight-fuzz` fails on it until it is mended. It stays for ever.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

merge=
if [ "${1:-}" = --merge ]; then
    merge=yes
    shift
fi
seconds=${SECONDS_EACH:-3}
seed=${SEED:-0}
corpora=crates/fuzz/corpus
targets=("$@")
[ $# -gt 0 ] || targets=("$corpora"/*/)
built=${CARGO_TARGET_DIR:-target}
work=$built/fuzz
found=$work/found
failures=$work/failures
triple=$(rustc -vV | sed -n 's/^host: //p')

# What cargo-fuzz passes, but for the sanitizers, which a stable compiler does not have. --target
# keeps build scripts and macros, which are not linked with the engine, out of it: they are those
# that the tests were built with.
flags="-Cpasses=sancov-module"
for flag in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=" -Cllvm-args=-sanitizer-coverage-$flag"
done
RUSTFLAGS=$flags CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=0 \
    ${CARGO:-cargo} build --quiet --locked --target "$triple" \
    --package limelight-fuzz --features engine --bin limelight-fuzz
program=$built/$triple/debug/limelight-fuzz

# Looks for texts from the corpus and what earlier runs found.
look() {
    local name=$1 log=$work/$1.log
    mkdir -p "$found/$name" "$failures"
    if LIMELIGHT_FUZZ=$name RUST_LOG=off "$program" -seed="$seed" -max_total_time="$seconds" -max_len=4096 -timeout=10 \
        -rss_limit_mb=1024 -print_final_stats=1 -artifact_prefix="$failures/$name-" \
        "$found/$name" "$corpora/$name" >"$log" 2>&1; then
        echo "test result: ok. 1 passed; 0 failed; $name," \
            "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log") texts"
    else
        cat "$log" >&2
        echo "test result: FAILED. 0 passed; 1 failed; $name," \
            "the text is in $failures; see scripts/fuzz.sh" >&2
        return 1
    fi
}

# Keeps of the corpus and of what was found the smallest set that reaches as much.
keep() {
    local name=$1 kept=$work/kept/$1
    rm -rf "$kept"
    mkdir -p "$kept"
    LIMELIGHT_FUZZ=$name RUST_LOG=off "$program" -set_cover_merge=1 -use_counters=0 -max_len=4096 "$kept" "$corpora/$name" "$found/$name" \
        >"$work/$name.log" 2>&1
    find "$corpora/$name" -name 'fault-*' -exec cp -t "$kept" {} +
    rm -rf "${corpora:?}/$name"
    mv "$kept" "$corpora/$name"
    echo "$name: $(find "$corpora/$name" -type f | wc -l) texts, $(du -sk "$corpora/$name" | cut -f1) KiB"
}

failed=0
for target in "${targets[@]}"; do
    name=$(basename "$target")
    if [ -n "$merge" ]; then
        keep "$name"
    else
        look "$name" &
        # One for each processor.
        if [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; then
            wait -n || failed=1
        fi
    fi
done
while [ -n "$(jobs -p)" ]; do
    wait -n || failed=1
done
exit "$failed"
