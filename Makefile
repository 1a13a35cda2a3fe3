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

.DEFAULT_GOAL := help
.PHONY: help demo test bench soak report kernel static lint clean deps

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

report: deps ## Make target/lab/report.html from the results of earlier runs
	@$(LAB) report

kernel: deps ## Build target/lab/kernels/limelight/bzImage
	@$(LAB) kernel limelight

static: deps ## Build static programs into target/lab/bin
	@triple=$$(rustc -vV | sed -n 's/^host: //p') && \
	RUSTFLAGS='-C target-feature=+crt-static' $(CARGO) build --locked --profile static \
	    --target "$$triple" $(addprefix --package ,$(STATIC_PACKAGES)) && \
	mkdir -p target/lab/bin && \
	for program in $(STATIC_PROGRAMS); do \
	    install -C "$(CARGO_TARGET_DIR)/$$triple/static/$$program" target/lab/bin/ || exit 1; \
	done

lint: deps ## Check formatting and lints
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

clean: ## Remove what was built here; the lab's cache in ~/.cache/limelight stays
	@rm -rf "$(CARGO_TARGET_DIR)" target

deps:
	@scripts/deps.sh
