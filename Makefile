# SPDX-License-Identifier: GPL-2.0-or-later
# Every way into the project. Needs make and git; the rest is installed on Debian 12 when make runs
# as root, and listed otherwise (scripts/deps.sh).

# rustup's cargo serves where the PATH has none.
export PATH := $(PATH):$(HOME)/.cargo/bin

CARGO ?= cargo
CARGO_TARGET_DIR ?= target
LAB = $(CARGO) run --quiet --locked --package limelight-lab --
# The programs that guests run, without a shared library: an initramfs has none.
STATIC_PACKAGES = limelight-daemon limelight-cli limelight-agent limelight-apps
STATIC_PROGRAMS = limelightd limelight limelight-agent limelight-guest
# What `make install` builds, and where it goes: DESTDIR for packagers, PREFIX for everybody.
INSTALLED_PACKAGES = limelight-daemon limelight-cli limelight-agent limelight-premap
PREFIX ?= /usr
UNITS = $(DESTDIR)/usr/lib/systemd

.DEFAULT_GOAL := help
.PHONY: help demo test bench soak dma report kernel series static install lint clean deps

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

demo: static ## See an image viewer under load, without and with Limelight, in a virtual machine
	@$(LAB) demo

test: deps ## Check style, run all tests, build the kernel, run the whole-VM tests
	@scripts/test.sh

bench: static ## Run every benchmark (hours without KVM)
	@$(LAB) bench

soak: static ## Run the soak tests on the debug kernel (hours without KVM)
	@$(LAB) soak

dma: deps ## Have our kernel zero pages by DMA on an emulated RISC-V machine (gcc-riscv64-linux-gnu, qemu-system-misc, opensbi)
	@$(LAB) dma

report: deps ## Make target/lab/report.html from the results of earlier runs
	@$(LAB) report

kernel: deps ## Build target/lab/kernels/limelight/bzImage
	@$(LAB) kernel limelight

series: ## Check that every patch of the kernel series applies, compiles and passes checkpatch
	@scripts/series.sh

static: deps ## Build static programs into target/lab/bin
	@triple=$$(rustc -vV | sed -n 's/^host: //p') && \
	RUSTFLAGS='-C target-feature=+crt-static' $(CARGO) build --locked --profile static \
	    --target "$$triple" $(addprefix --package ,$(STATIC_PACKAGES)) && \
	mkdir -p target/lab/bin && \
	for program in $(STATIC_PROGRAMS); do \
	    install -C "$(CARGO_TARGET_DIR)/$$triple/static/$$program" target/lab/bin/ || exit 1; \
	done

install: deps ## Install programs, library, units, manual pages (PREFIX=/usr, DESTDIR=)
	@$(CARGO) build --locked --release $(addprefix --package ,$(INSTALLED_PACKAGES))
	@built="$(CARGO_TARGET_DIR)/release"; to="$(DESTDIR)$(PREFIX)"; set -e; \
	install -D "$$built/limelightd" "$$to/sbin/limelightd"; \
	install -D "$$built/limelight" "$$to/bin/limelight"; \
	install -D "$$built/limelight-agent" "$$to/bin/limelight-agent"; \
	install -D -m 644 "$$built/liblimelight_premap.so" "$$to/lib/limelight/liblimelight-premap.so"; \
	install -D -m 644 crates/premap/include/limelight-premap.h "$$to/include/limelight-premap.h"; \
	install -d "$$to/share/man/man1"; \
	"$$built/limelight" man "$$to/share/man/man1"; \
	install -D -m 644 packaging/limelight_premap.3 "$$to/share/man/man3/limelight_premap.3"; \
	install -D -m 644 packaging/limelightd.8 "$$to/share/man/man8/limelightd.8"; \
	for unit in system/limelightd user/limelight-agent; do \
	    install -d "$(UNITS)/$${unit%/*}"; \
	    sed 's|/usr/\(s\?bin\)/|$(PREFIX)/\1/|' "packaging/$${unit#*/}.service" >"$(UNITS)/$$unit.service"; \
	done; \
	install -D -m 644 packaging/60-limelight.rules "$(DESTDIR)/usr/lib/udev/rules.d/60-limelight.rules"; \
	install -D -m 644 packaging/limelight.tmpfiles "$(DESTDIR)/usr/lib/tmpfiles.d/limelight.conf"; \
	install -D -m 644 packaging/classes.toml "$$to/share/doc/limelight/classes.toml"; \
	[ -e "$(DESTDIR)/etc/limelight/limelight.toml" ] || \
	    install -D -m 644 packaging/limelight.toml "$(DESTDIR)/etc/limelight/limelight.toml"

lint: deps ## Check formatting and lints
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

clean: ## Remove what was built here; the lab's cache in ~/.cache/limelight stays
	@rm -rf "$(CARGO_TARGET_DIR)" target

deps:
	@scripts/deps.sh
