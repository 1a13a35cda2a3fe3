# SPDX-License-Identifier: GPL-2.0-or-later
# Entry points of the project. They need make and git. Missing packages are installed by
# scripts/deps.sh if make runs as root on Debian 12 or 13, or Ubuntu 24.04; otherwise the script
# lists them.

# Fall back to rustup's cargo if the PATH has none.
export PATH := $(PATH):$(HOME)/.cargo/bin

CARGO ?= cargo
CARGO_TARGET_DIR ?= target
LAB = $(CARGO) run --quiet --locked --package limelight-lab --
# Programs for the guests. They are linked statically, because an initramfs has no shared libraries.
STATIC_PACKAGES = limelight-daemon limelight-cli limelight-agent limelight-bus limelight-apps
STATIC_PROGRAMS = limelightd limelight limelight-agent limelight-bus limelight-guest
# Packages that `make install` builds, and the directories that it installs to. PREFIX: the prefix
# of all paths, such as /usr or /usr/local. DESTDIR: a staging directory, for packagers. SBINDIR:
# directory for the daemons. SYSTEM_LIB: directory above systemd's units and udev's rules.
INSTALLED_PACKAGES = limelight-daemon limelight-cli limelight-agent limelight-bus limelight-premap
PREFIX ?= /usr
SBINDIR ?= $(PREFIX)/sbin
SYSTEM_LIB ?= /usr/lib
# For `kernel` and `series`: the version of Linux, 6.12 or 7.3. For `demo`: `ours` adds our kernel.
KERNEL ?= 6.12
# Packages that `deps` checks: those for the demo, or all. See scripts/deps.sh.
DEPS = test
# Directory with the programs and the library for `install`, `deb` and `rpm`, already built. If it is
# empty, make builds them.
PROGRAMS ?=

# Drawings that graphviz makes from text files, docs/development/*.dot.
DRAWINGS = docs/development/architecture.svg docs/development/click.svg

.DEFAULT_GOAL := help
.PHONY: help demo demo-begin demo-programs test bench record soak fuzz dma report figures drawing pictures schemas kernel series static android aarch build install dist deb rpm kernel-deb lab-deb lint clean deps

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: DEPS = $(if $(filter ours,$(KERNEL)),demo-kernel,demo)
demo: demo-begin demo-programs ## Compare stock Debian, earlyoom and Limelight in a virtual machine (KERNEL=ours: also our kernel)
	$(if $(filter-out 6.12 ours,$(KERNEL)),$(error the demo takes KERNEL=ours only))
	@$(DEMO_PROGRAMS)/limelight-lab demo --programs $(DEMO_PROGRAMS) $(if $(filter ours,$(KERNEL)),--our-kernel)

demo-begin:
	@echo "Limelight's demo. 1: missing packages are installed. 2: Limelight is compiled, which takes"
	@echo "two to four minutes on two processors. 3: a virtual machine runs for some minutes. Nothing"
	@echo "else on this machine changes."

# The lab and the programs for its guests, compiled together and fast.
DEMO_PROGRAMS = target/lab/bin-demo
DEMO_PACKAGES = limelight-daemon limelight-cli limelight-apps limelight-lab
demo-programs: deps
	@triple=$$(rustc -vV | sed -n 's/^host: //p') && \
	RUSTFLAGS='-C target-feature=+crt-static' $(CARGO) build --locked --profile demo \
	    --target "$$triple" $(addprefix --package ,$(DEMO_PACKAGES)) && \
	mkdir -p $(DEMO_PROGRAMS) && \
	for program in limelightd limelight limelight-guest limelight-lab; do \
	    install -C "$(CARGO_TARGET_DIR)/$$triple/demo/$$program" $(DEMO_PROGRAMS)/ || exit 1; \
	done

test: deps ## Check style, run all tests, build the kernel, run the whole-VM tests
	@scripts/test.sh

bench: static ## Run every benchmark, hours without KVM; resumes after an interruption (QUICK=1: only the headline figures; RESTART=1: start anew)
	@$(LAB) bench $(if $(QUICK),--quick) $(if $(RESTART),--restart)

record: static ## Update testing/lab/record.toml, the counters that `make test` compares with, and print the difference
	@$(LAB) record

soak: static ## Run the soak tests on the debug kernel (hours without KVM)
	@$(LAB) soak

fuzz: deps ## Fuzz all parsers of external input, SECONDS_EACH=3 seconds each; see scripts/fuzz.sh
	@scripts/fuzz.sh

dma: deps ## Test zeroing by DMA with our kernel on an emulated RISC-V machine (needs gcc-riscv64-linux-gnu, qemu-system-misc, opensbi)
	@$(LAB) dma

report: deps ## Make target/lab/report.html from docs/results/figures.toml and the results of earlier runs
	@$(LAB) report

pictures: ## Make the pictures of `limelight top` in docs/user
	@LIMELIGHT_PICTURES=1 $(CARGO) test --quiet --locked --package limelight-cli pictures_in_the_documentation

schemas: ## Make the JSON schemas in docs/integrator/schema from the program's types
	@LIMELIGHT_SCHEMAS=1 $(CARGO) test --quiet --locked --package limelight-cli published_schemas

figures: deps ## Make README's table and the drawings in docs/results from docs/results/figures.toml
	@$(LAB) figures

drawing: $(DRAWINGS) ## Make the drawings in docs/development from their sources, *.dot (needs graphviz)

# On dark pages, the drawings are dark, too: inverted, with the hues as they were.
DARK = <style>@media (prefers-color-scheme: dark) { svg { filter: invert(0.9) hue-rotate(180deg) } }<\/style>

# sed removes the comments, which name the version of graphviz.
%.svg: %.dot
	@dot -Tsvg -o $@ $<
	@sed -i -e '/<!--.*-->/d' -e '/<!--/,/-->/d' -e 's/stroke="transparent"/stroke="none"/' $@
	@sed -i '0,/<g /s//$(DARK)\n<g /' $@

kernel: deps ## Build target/lab/kernels/limelight/bzImage (KERNEL=7.3: limelight-7.3)
	@$(LAB) kernel limelight --linux $(KERNEL)

series: ## Make target/series: the kernel series as patches for git am, each checked and compiled (SERIES_COMPILE=no: only checked; SERIES_BOOT=yes: also booted; KERNEL=7.3)
	@KERNEL=$(KERNEL) scripts/series.sh

static: deps ## Build static programs into target/lab/bin
	@triple=$$(rustc -vV | sed -n 's/^host: //p') && \
	RUSTFLAGS='-C target-feature=+crt-static' $(CARGO) build --locked --profile static \
	    --target "$$triple" $(addprefix --package ,$(STATIC_PACKAGES)) && \
	mkdir -p target/lab/bin && \
	for program in $(STATIC_PROGRAMS); do \
	    install -C "$(CARGO_TARGET_DIR)/$$triple/static/$$program" target/lab/bin/ || exit 1; \
	done

android: deps ## Build static programs for 64-bit ARM into target/lab/bin-aarch64 (needs: rustup target add aarch64-unknown-linux-musl)
	@CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld RUSTFLAGS='-C target-feature=+crt-static' \
	$(CARGO) build --locked --profile static --target aarch64-unknown-linux-musl \
	    $(addprefix --package ,$(STATIC_PACKAGES)) && \
	mkdir -p target/lab/bin-aarch64 && \
	for program in $(STATIC_PROGRAMS); do \
	    install -C "$(CARGO_TARGET_DIR)/aarch64-unknown-linux-musl/static/$$program" target/lab/bin-aarch64/ || exit 1; \
	done

aarch: android ## Test the programs of `make android` on an emulated 64-bit ARM machine (needs qemu-system-arm)
	@$(LAB) aarch64

build: ## Build the programs and the library that `make install` installs
	@$(CARGO) build --locked --release $(addprefix --package ,$(INSTALLED_PACKAGES))

install: $(if $(PROGRAMS),,build) ## Install programs, library, units, manual pages (PREFIX=/usr, DESTDIR=)
	@scripts/install.sh "$(or $(PROGRAMS),$(CARGO_TARGET_DIR)/release)" "$(DESTDIR)" "$(PREFIX)" "$(SBINDIR)" "$(SYSTEM_LIB)"

dist: ## Make target/dist: the source tarball with a PKGBUILD (and .SRCINFO) and an APKBUILD
	@scripts/dist.sh

deb: $(if $(PROGRAMS),,build) ## Make target/deb: the Debian package (needs debhelper, lintian)
	@scripts/deb.sh "$(or $(PROGRAMS),$(CARGO_TARGET_DIR)/release)"

rpm: $(if $(PROGRAMS),,build) ## Make target/rpm: RPM packages (needs rpmbuild)
	@scripts/rpm.sh "$(or $(PROGRAMS),$(CARGO_TARGET_DIR)/release)"

kernel-deb: ## Make target/kernel-deb: Debian packages of a kernel with our series (hours; see scripts/kernel-deb.sh)
	@scripts/kernel-deb.sh

# Makes a Debian package of the guests' static programs, for the lab's scenario `package`.
lab-deb: static
	@$(CARGO) build --locked --release --package limelight-premap
	@mkdir -p target/lab/package
	@install -C $(addprefix target/lab/bin/,limelightd limelight limelight-agent limelight-bus) \
	    "$(CARGO_TARGET_DIR)/release/liblimelight_premap.so" target/lab/package/
	@LINTIAN_SUPPRESS=statically-linked-binary,shared-library-lacks-prerequisites \
	    scripts/deb.sh target/lab/package target/lab/deb

lint: deps ## Check formatting and lints
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

clean: ## Remove all build output, except the lab's cache in ~/.cache/limelight
	@rm -rf "$(CARGO_TARGET_DIR)" target

deps:
	@scripts/deps.sh $(DEPS)
