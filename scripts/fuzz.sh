#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# `make fuzz`: libFuzzer searches for inputs that violate the assertions in testing/fuzz.
#   scripts/fuzz.sh [TARGET...]           fuzzes these targets; default: all
#   scripts/fuzz.sh --merge [TARGET...]   reduces the inputs found to the smallest set with the same
#                                         coverage
# Environment: SECONDS_EACH, the seconds per target (default: 3); SEED, the seed of libFuzzer's
# random choices (default: 0, a new seed in each run). Needs a C++ compiler and a stable Rust.
#
# Each target starts from the named seeds in testing/fuzz/corpus and from the inputs that earlier
# runs found, which are stored in ~/.cache/limelight/fuzz. A failing input is stored in
# target/fuzz/failures. Move it into the target's corpus, name it fault-WHAT, and keep it there even
# after the fix: until then, `cargo test -p limelight-fuzz` fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

merge=
if [ "${1:-}" = --merge ]; then
    merge=yes
    shift
fi
seconds=${SECONDS_EACH:-3}
seed=${SEED:-0}
corpora=testing/fuzz/corpus
targets=("$@")
[ $# -gt 0 ] || targets=("$corpora"/*/)
built=${CARGO_TARGET_DIR:-target}
work=$built/fuzz
found=${XDG_CACHE_HOME:-$HOME/.cache}/limelight/fuzz
failures=$work/failures
triple=$(rustc -vV | sed -n 's/^host: //p')

# cargo-fuzz's flags, without the sanitizers, which a stable compiler lacks. With --target, the
# flags do not apply to build scripts and procedural macros, which cannot be linked with libFuzzer.
# cargo then also reuses those that it has built for the tests.
flags="-Cpasses=sancov-module"
for flag in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=" -Cllvm-args=-sanitizer-coverage-$flag"
done
RUSTFLAGS=$flags CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=0 \
    ${CARGO:-cargo} build --quiet --locked --target "$triple" \
    --package limelight-fuzz --features engine --bin limelight-fuzz
program=$built/$triple/debug/limelight-fuzz

# Fuzzes from the seeds and from the inputs found by earlier runs.
fuzz() {
    local name=$1 log=$work/$1.log
    mkdir -p "$found/$name" "$failures"
    if LIMELIGHT_FUZZ=$name RUST_LOG=off "$program" -seed="$seed" -max_total_time="$seconds" -max_len=4096 -timeout=10 \
        -rss_limit_mb=1024 -print_final_stats=1 -artifact_prefix="$failures/$name-" \
        "$found/$name" "$corpora/$name" >"$log" 2>&1; then
        echo "test result: ok. 1 passed; 0 failed; $name," \
            "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs"
    else
        cat "$log" >&2
        echo "test result: FAILED. 0 passed; 1 failed; $name," \
            "the failing input is in $failures; see scripts/fuzz.sh" >&2
        return 1
    fi
}

# Reduces the inputs found to the smallest set that, together with the seeds, has the same coverage.
minimize() {
    local name=$1 kept=$work/kept/$1
    rm -rf "$kept"
    mkdir -p "$kept" "$found/$name"
    LIMELIGHT_FUZZ=$name RUST_LOG=off "$program" -set_cover_merge=1 -use_counters=0 -max_len=4096 \
        "$kept" "$corpora/$name" "$found/$name" >"$work/$name.log" 2>&1
    rm -rf "${found:?}/$name"
    mv "$kept" "$found/$name"
    echo "$name: $(find "$found/$name" -type f | wc -l) inputs, $(du -sk "$found/$name" | cut -f1) KiB"
}

failed=0
for target in "${targets[@]}"; do
    name=$(basename "$target")
    if [ -n "$merge" ]; then
        minimize "$name"
    else
        fuzz "$name" &
        # At most one target per CPU at a time.
        if [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; then
            wait -n || failed=1
        fi
    fi
done
while [ -n "$(jobs -p)" ]; do
    wait -n || failed=1
done
exit "$failed"
