// SPDX-License-Identifier: GPL-2.0-or-later
// Stands in for the modules of GNOME Shell that the example extension imports, and prints what the
// user would see.
export const panel = {
    addToStatusArea(uuid, button) {
        this.button = button;
        print(`added ${uuid}`);
    },
};

export class Button {
    constructor(_alignment, name) {
        print(`button ${name}`);
        this.menu = {addMenuItem: item => (this.item = item)};
    }

    add_child(label) {
        label.isShown = true;
    }

    destroy() {
        print('destroyed');
    }
}

export class PopupSwitchMenuItem {
    constructor(_text, state) {
        this.state = state;
    }

    connect(signal, handler) {
        this[signal] = handler;
    }

    setToggleState(state) {
        this.state = state;
        print(`switch ${state}`);
    }

    click() {
        this.state = !this.state;
        this.toggled(this, this.state);
    }
}

export class Extension {
    constructor(metadata) {
        this.metadata = metadata;
        this.uuid = metadata.uuid;
    }
}

class Label {
    set text(text) {
        print(`${this.isShown ? 'label' : 'hidden'} ${text}`);
    }
}

export default {ActorAlign: {CENTER: 2}, Label};
