// SPDX-License-Identifier: GPL-2.0-or-later
// Runs the example extension without GNOME Shell. Commands come on the standard input, one a line.
import Gio from 'gi://Gio';
import GLib from 'gi://GLib';

import LimelightExtension from './extension.js';
import {panel} from './shell.js';

const directory = Gio.File.new_for_uri(import.meta.url).get_parent();
const [, metadata] = directory.get_child('metadata.json').load_contents(null);
const extension = new LimelightExtension(JSON.parse(new TextDecoder().decode(metadata)));
extension.enable();

const commands = new Gio.DataInputStream({
    base_stream: new Gio.UnixInputStream({fd: 0, close_fd: false}),
});
Gio._promisify(Gio.DataInputStream.prototype, 'read_line_async', 'read_line_finish_utf8');
for (;;) {
    const [line] = await commands.read_line_async(GLib.PRIORITY_DEFAULT, null);
    if (line === null)
        break;
    if (line === 'click')
        panel.button.item.click();
    if (line === 'disable')
        extension.disable();
}
