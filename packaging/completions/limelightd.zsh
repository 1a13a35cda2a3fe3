#compdef limelightd
# SPDX-License-Identifier: GPL-2.0-or-later
_arguments \
    '--config[read this configuration and no drop-ins]:file:_files' \
    '--dry-run[plan and explain, but change nothing]' \
    '--check-config[check the configuration and exit]' \
    '--restore[put back what a dead limelightd left changed, and exit]' \
    '--runtime-dir[directory of the control socket, the restore record and the lock]:directory:_files -/' \
    '(-h --help)'{-h,--help}'[print help]' \
    '(-V --version)'{-V,--version}'[print the version]'
