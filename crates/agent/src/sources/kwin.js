// SPDX-License-Identifier: GPL-2.0-or-later
// Loaded into KWin by limelight-agent; speaks to KWin 5 and 6. Everything is told as text: numbers
// cross the bus in a type that KWin chooses.
function tell(window) {
    var isApp = window && !window.desktopWindow && !window.dock;
    callDBus("@RECEIVER@", "@PATH@", "@INTERFACE@", "Active",
        isApp ? String(window.internalId) : "",
        isApp ? String(window.pid) : "");
}
(workspace.windowActivated || workspace.clientActivated).connect(tell);
tell(workspace.activeWindow || workspace.activeClient);
