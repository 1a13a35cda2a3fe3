# SPDX-License-Identifier: GPL-2.0-or-later
complete -c limelightd -l config -r -F -d "Read this configuration and no drop-ins"
complete -c limelightd -f -l dry-run -d "Plan and explain, but change nothing"
complete -c limelightd -f -l check-config -d "Check the configuration and exit"
complete -c limelightd -f -l restore -d "Put back what a dead limelightd left changed, and exit"
complete -c limelightd -l runtime-dir -x -a "(__fish_complete_directories)" -d "Directory of the control socket and the restore record"
complete -c limelightd -f -s h -l help -d "Print help"
complete -c limelightd -f -s V -l version -d "Print the version"
