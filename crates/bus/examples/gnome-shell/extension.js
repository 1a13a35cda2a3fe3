// SPDX-License-Identifier: GPL-2.0-or-later
// The foreground app in the panel, and a switch that pauses Limelight: docs/integrator/dbus.md.
import Clutter from 'gi://Clutter';
import Gio from 'gi://Gio';
import GLib from 'gi://GLib';
import St from 'gi://St';
import {Extension} from 'resource:///org/gnome/shell/extensions/extension.js';
import * as Main from 'resource:///org/gnome/shell/ui/main.js';
import * as PanelMenu from 'resource:///org/gnome/shell/ui/panelMenu.js';
import * as PopupMenu from 'resource:///org/gnome/shell/ui/popupMenu.js';

const [NAME, PATH] = ['org.limelight.Limelight1', '/org/limelight/Limelight1'];
const FLAGS = Gio.DBusCallFlags.ALLOW_INTERACTIVE_AUTHORIZATION;
Gio._promisify(Gio.DBusConnection.prototype, 'call');
const call = (method, body = null) =>
    Gio.DBus.system.call(NAME, PATH, NAME, method, body, null, FLAGS, GLib.MAXINT32, null);

export default class LimelightExtension extends Extension {
    enable() {
        this.button = new PanelMenu.Button(0.5, this.metadata.name);
        this.label = new St.Label({y_align: Clutter.ActorAlign.CENTER});
        this.button.add_child(this.label);
        const pause = new PopupMenu.PopupSwitchMenuItem('Pause for ten minutes', false);
        pause.connect('toggled', (_item, on) =>
            (on ? call('Pause', new GLib.Variant('(u)', [600])) : call('Resume'))
                .catch(() => pause.setToggleState(!on)));
        this.button.menu.addMenuItem(pause);
        Main.panel.addToStatusArea(this.uuid, this.button);
        const show = (_bus, _sender, _path, _interface, signal, body) => {
            const [first] = body.recursiveUnpack();
            if (signal === 'ForegroundChanged')
                this.label.text = first.Name ?? '';
            else if (signal === 'PauseChanged')
                pause.setToggleState(first);
        };
        this.signals = Gio.DBus.system.signal_subscribe(NAME, NAME, null, PATH, null, 0, show);
        // A restarted limelight-bus knows no subscribers.
        this.watch = Gio.bus_watch_name_on_connection(Gio.DBus.system, NAME, 0,
            () => call('Subscribe').catch(logError), () => (this.label.text = ''));
    }

    disable() {
        Gio.bus_unwatch_name(this.watch);
        Gio.DBus.system.signal_unsubscribe(this.signals);
        call('Unsubscribe').catch(() => {});
        this.button.destroy();
        this.button = this.label = null;
    }
}
