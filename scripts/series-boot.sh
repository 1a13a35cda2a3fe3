#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds the kernel in the current directory and boots it in a virtual machine, which runs the KUnit
# tests of the series and its selftest. Fails if the kernel warns, a test fails, or the machine does
# not power itself off. Called by scripts/series.sh after each patch.
# Usage: series-boot.sh NAME SCRATCH [MAKE_VARIABLE...]
#   NAME           name of the kernel in messages
#   SCRATCH        directory for the initramfs and the console's output
#   MAKE_VARIABLE  variables for the kernel's make, such as CC=clang
set -euo pipefail

name=$1
scratch=$2
shift 2
selftest=tools/testing/selftests/mm/limelight.c
console=$scratch/console
# Most time for a boot and its tests, in seconds. They take less than five on an idle host.
limit=600

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

busybox=$(command -v busybox) || fail "busybox is not installed"
! ldd "$busybox" >/dev/null 2>&1 || fail "$busybox is not static: install busybox-static"

started=$SECONDS
make --silent "-j$(nproc)" "$@" bzImage
make --silent headers >/dev/null
gcc -static -O2 -Wall -Werror -D_GNU_SOURCE= -I usr/include \
    -o "$scratch/selftest" "$selftest"
cat >"$scratch/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/selftest
echo "selftest: exit code $?"
/bin/busybox poweroff -f
INIT
cat >"$scratch/files" <<FILES
dir /dev 0755 0 0
nod /dev/console 0600 0 0 c 5 1
dir /proc 0755 0 0
dir /sys 0755 0 0
dir /bin 0755 0 0
file /bin/busybox $busybox 0755 0 0
file /bin/selftest $scratch/selftest 0755 0 0
file /init $scratch/init 0755 0 0
FILES
usr/gen_init_cpio "$scratch/files" >"$scratch/initramfs"
echo "$name: builds ($((SECONDS - started)) s)"

# KVM is not used, because it is missing or does not work on many machines. The emulator executes
# both CPUs in one thread, because code that the kernel patches at run time may otherwise be executed
# in its old form.
started=$SECONDS
timeout "$limit" qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot -M q35 \
    -cpu max -accel tcg,thread=single -smp 2 -m 512 -serial "file:$console" \
    -kernel arch/x86/boot/bzImage -initrd "$scratch/initramfs" \
    -append "console=ttyS0 panic=-1 oops=panic mitigations=off tsc=reliable no_timer_check \
        nosoftlockup rcupdate.rcu_cpu_stall_suppress=1 kunit.enable=1 kunit.filter_glob=limelight*" ||
    fail "$name: QEMU failed or did not end in $limit s" "$(tail -n 40 "$console")"
! grep -E 'WARNING: |BUG: |Oops|Kernel panic' "$console" ||
    fail "$name: the kernel reports an error:" "$(tail -n 200 "$console")"
! grep -E '(^|[] ]) *not ok [0-9]' "$console" || fail "$name: a test failed:" "$(cat "$console")"
grep -q '^selftest: exit code 0' "$console" ||
    fail "$name: the selftest failed or did not run:" "$(tail -n 60 "$console")"
kunit=$(grep -cE '\] {5}ok [0-9]' "$console") || fail "$name: no KUnit test ran" "$(cat "$console")"
echo "$name: boots, $kunit KUnit tests and the selftest pass ($((SECONDS - started)) s)"
