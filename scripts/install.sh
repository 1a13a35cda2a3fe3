#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# install.sh PROGRAMS DESTDIR PREFIX SBINDIR SYSTEM_LIB: implements `make install`. PROGRAMS is the
# directory with the programs and the library to install; the Makefile describes the other
# arguments. The programs generate their own manual pages and completions.
set -eu
cd "$(dirname "$0")/.."

built=$1 dest=$2 prefix=$3 sbin=$4 system_lib=$5
to=$dest$prefix
share=$to/share

# Installs a configuration file unless it exists already.
keep() {
    [ -e "$3" ] || install -D -m "$1" "$2" "$3"
}

install -D -m 755 "$built/limelightd" "$dest$sbin/limelightd"
install -D -m 755 "$built/limelight-bus" "$dest$sbin/limelight-bus"
install -D -m 755 "$built/limelight" "$to/bin/limelight"
install -D -m 755 "$built/limelight-agent" "$to/bin/limelight-agent"
install -D -m 644 "$built/liblimelight_premap.so" "$to/lib/limelight/liblimelight-premap.so"
install -D -m 644 crates/premap/include/limelight-premap.h "$to/include/limelight-premap.h"

install -d "$share/man/man1" "$share/man/man5" "$share/man/man8"
"$built/limelight" man "$share/man/man1"
"$built/limelight" man --configuration "$share/man/man5"
"$built/limelight-agent" --man "$share/man/man1"
"$built/limelight-bus" --man "$share/man/man8"
install -D -m 644 packaging/limelight_premap.3 "$share/man/man3/limelight_premap.3"
install -D -m 644 packaging/limelightd.8 "$share/man/man8/limelightd.8"

install -d "$share/bash-completion/completions" "$share/zsh/site-functions" "$share/fish/vendor_completions.d"
"$built/limelight" completions bash >"$share/bash-completion/completions/limelight"
"$built/limelight" completions zsh >"$share/zsh/site-functions/_limelight"
"$built/limelight" completions fish >"$share/fish/vendor_completions.d/limelight.fish"
for program in limelightd limelight-agent; do
    from=packaging/completions/$program
    install -m 644 "$from.bash" "$share/bash-completion/completions/$program"
    install -m 644 "$from.zsh" "$share/zsh/site-functions/_$program"
    install -m 644 "$from.fish" "$share/fish/vendor_completions.d/$program.fish"
done

# Installs a file that names programs.
unit() {
    install -d "$(dirname "$2")"
    sed -e "s|/usr/sbin/|$sbin/|" -e "s|/usr/bin/|$prefix/bin/|" "packaging/$1" >"$2"
    chmod 644 "$2"
}
unit limelightd.service "$dest$system_lib/systemd/system/limelightd.service"
unit limelight-bus.service "$dest$system_lib/systemd/system/limelight-bus.service"
unit dbus/org.limelight.Limelight1.service "$dest/usr/share/dbus-1/system-services/org.limelight.Limelight1.service"
install -D -m 644 packaging/dbus/org.limelight.Limelight1.conf "$dest/usr/share/dbus-1/system.d/org.limelight.Limelight1.conf"
install -D -m 644 packaging/dbus/org.limelight.Limelight1.policy "$dest/usr/share/polkit-1/actions/org.limelight.Limelight1.policy"
unit limelight-agent.service "$dest/usr/lib/systemd/user/limelight-agent.service"
install -D -m 644 packaging/60-limelight.rules "$dest$system_lib/udev/rules.d/60-limelight.rules"
install -D -m 644 packaging/limelight.tmpfiles "$dest/usr/lib/tmpfiles.d/limelight.conf"
install -D -m 644 packaging/limelight.sysusers "$dest/usr/lib/sysusers.d/limelight.conf"
install -D -m 644 packaging/limelight.metainfo.xml "$share/metainfo/invalid.limelight.limelight.metainfo.xml"
install -D -m 644 packaging/classes.toml "$share/doc/limelight/classes.toml"
# Messages and help texts cite pages as docs/..., relative to the directory of the documentation.
for page in README.md SECURITY.md CONTRIBUTING.md CHANGELOG.md $(find docs -name '*.md' -o -name '*.svg' -o -name '*.json'); do
    install -D -m 644 "$page" "$share/doc/limelight/$page"
done
keep 644 packaging/limelight.toml "$dest/etc/limelight/limelight.toml"
