#compdef limelight-agent
# SPDX-License-Identifier: GPL-2.0-or-later
_arguments \
    '--display[use this X11 display]:display:_x_display' \
    '--source[use only this source of the focus]:source:(sway hyprland niri kwin wlr-foreign-toplevel mutter x11 i3)' \
    '--socket[control socket of the daemon]:file:_files' \
    '--once[print the foreground app as JSON, and exit]' \
    '--explain[print which source would be used here, and exit]' \
    '--stay[wait for a display without a time limit]' \
    '--focus-only[report only the focus]' \
    '--no-own-scopes[leave apps that share a cgroup where they are]' \
    '--no-notifications[show no notification when an app is killed]' \
    '(-v --verbose)'{-v,--verbose}'[log every change of focus]' \
    '(-h --help)'{-h,--help}'[print help]' \
    '(-V --version)'{-V,--version}'[print the version]'
