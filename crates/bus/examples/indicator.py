#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A line for a status bar: the foreground app, or the pause. With `toggle`, as for a click, pauses
for ten minutes or resumes. Needs busctl, which is part of systemd: docs/integrator/dbus.md."""

import json
import subprocess
import sys

NAME = "org.limelight.Limelight1"
PATH = "/org/limelight/Limelight1"


def call(method, *arguments):
    """Calls a method; busctl prints its answer as JSON."""
    command = ["busctl", "--json=short", "call", NAME, PATH, NAME, method, *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)["data"]


paused, seconds = call("GetPause")
if "toggle" in sys.argv:
    print(*call("Resume") if paused else call("Pause", "u", "600"))
elif paused:
    print(f"paused, {seconds} s left" if seconds else "paused")
else:
    app = call("GetForeground")[0]
    print(app["Name"]["data"] if app else "no app")
