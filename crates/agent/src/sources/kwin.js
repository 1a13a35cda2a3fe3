// SPDX-License-Identifier: GPL-2.0-or-later
// Loaded into KWin 5 or 6 by limelight-agent. All arguments are sent as text, because KWin chooses
// the D-Bus type of a number.
var active = workspace.activeWindow || workspace.activeClient;
function tell() {
    var isApp = active && !active.desktopWindow && !active.dock;
    var all = workspace.windowList ? workspace.windowList() : workspace.clientList();
    var full = [];
    for (var i = 0; i < all.length; i++) {
        if (all[i].fullScreen && !all[i].minimized) {
            full.push(String(all[i].pid));
        }
    }
    callDBus("@RECEIVER@", "@PATH@", "@INTERFACE@", "Changed",
        isApp ? String(active.internalId) : "",
        isApp ? String(active.pid) : "",
        full.join(" "));
}
function watch(window) {
    window.fullScreenChanged.connect(tell);
    window.minimizedChanged.connect(tell);
    tell();
}
(workspace.windowActivated || workspace.clientActivated).connect(function (window) {
    active = window;
    tell();
});
(workspace.windowAdded || workspace.clientAdded).connect(watch);
(workspace.windowRemoved || workspace.clientRemoved).connect(tell);
(workspace.windowList ? workspace.windowList() : workspace.clientList()).forEach(watch);
tell();
