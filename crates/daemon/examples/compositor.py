#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A compositor's reports to limelightd, in thirty lines. Reads the events `focus PID`, `none`,
`input` and `frame` from standard input, prints the answers: docs/integrator/compositors.md."""

import json
import socket
import sys
import time


def request(word, pid=None):
    if word == "focus":
        return {"op": "focus", "target": {"pid": int(pid)}, "hold": True}
    if word == "none":
        return {"op": "focus", "target": "none", "hold": True}
    event = {"input": "open", "frame": "close"}[word]
    # A compositor has the event's own time; this is now, by the same clock.
    return {"op": "window", "event": event, "at_us": time.monotonic_ns() // 1000}


path = sys.argv[1] if len(sys.argv) > 1 else "/run/limelight/control.sock"
# Kept open: the claim lives as long as the connection.
daemon = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
daemon.connect(path)
answers = daemon.makefile()
for line in sys.stdin:
    message = request(*line.split()) | {"source": "example"}
    daemon.sendall(json.dumps(message).encode() + b"\n")
    print(answers.readline(), end="", flush=True)
