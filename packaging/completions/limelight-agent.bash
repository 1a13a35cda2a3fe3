# SPDX-License-Identifier: GPL-2.0-or-later
_limelight_agent() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    case $before in
        --socket | --display) return ;;
        --source) COMPREPLY=($(compgen -W "sway hyprland niri kwin wlr-foreign-toplevel mutter x11 i3" -- "$word")) && return ;;
    esac
    COMPREPLY=($(compgen -W "--display --source --socket --once --explain --stay --focus-only \
        --no-own-scopes --no-notifications --verbose --help --version" -- "$word"))
}
complete -F _limelight_agent -o bashdefault -o default limelight-agent
