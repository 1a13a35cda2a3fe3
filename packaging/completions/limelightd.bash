# SPDX-License-Identifier: GPL-2.0-or-later
_limelightd() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    case $before in
        --config | --runtime-dir) return ;;
    esac
    COMPREPLY=($(compgen -W "--config --dry-run --check-config --restore --runtime-dir --help --version" -- "$word"))
}
complete -F _limelightd -o bashdefault -o default limelightd
