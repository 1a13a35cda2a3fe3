// SPDX-License-Identifier: GPL-2.0-or-later
// Loaded into KWin 5 or 6 by limelight-agent. All arguments are sent as text, because KWin chooses
// the D-Bus type of a number.
function tell(window) {
    var isApp = window && !window.desktopWindow && !window.dock;
    callDBus("@RECEIVER@", "@PATH@", "@INTERFACE@", "Active",
        isApp ? String(window.internalId) : "",
        isApp ? String(window.pid) : "");
}
(workspace.windowActivated || workspace.clientActivated).connect(tell);
tell(workspace.activeWindow || workspace.activeClient);
