#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# `make test`: runs all steps, stops at the first failing step, and prints the duration of each
# step.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo=${CARGO:-cargo}
times=()

step() {
    local name=$1 started=$SECONDS
    shift
    echo "== $name"
    "$@"
    times+=("$(printf '%5d s  %s' $((SECONDS - started)) "$name")")
}

# rustfmt and clippy are not part of cargo, so their steps are skipped if they are missing.
# scripts/deps.sh installs them.
if "$cargo" fmt --version >/dev/null 2>&1; then
    step "format" "$cargo" fmt --all --check
else
    echo "== format: skipped, rustfmt is not installed"
fi
if "$cargo" clippy --version >/dev/null 2>&1; then
    step "lints" "$cargo" clippy --locked --workspace --all-targets -- -D warnings
else
    echo "== lints: skipped, clippy is not installed"
fi
step "scripts" scripts/check-scripts.sh
step "unit and integration tests" "$cargo" test --locked --workspace
# The next steps leave a processor idle for half of the time, so the kernel is built beside them.
kernel_log=$(mktemp)
nice -n 19 make --no-print-directory kernel >"$kernel_log" 2>&1 &
kernel=$!
trap 'rm -f "$kernel_log"; [ -z "$kernel" ] || kill "$kernel" 2>/dev/null || true' EXIT
finish_kernel() {
    local status=0
    wait "$kernel" || status=$?
    kernel=
    cat "$kernel_log"
    return "$status"
}
# With a fixed seed, libFuzzer makes the same random choices in every run. `make fuzz` uses a new
# seed each time.
step "fuzzing" env SEED=1 scripts/fuzz.sh
step "static programs" make --no-print-directory static
step "package" make --no-print-directory lab-deb
step "rest of the kernel" finish_kernel
step "whole-VM tests" "$cargo" run --quiet --locked --package limelight-lab -- test

printf '\n'
printf '%s\n' "${times[@]}"
