// SPDX-License-Identifier: GPL-2.0-or-later
//! A Wayland client with one idle window.

use std::os::fd::AsFd;

use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use wayland_client::globals::{registry_queue_init, GlobalListContents};
use wayland_client::protocol::{
    wl_buffer::WlBuffer, wl_compositor::WlCompositor, wl_registry::WlRegistry, wl_shm,
    wl_shm::WlShm, wl_shm_pool::WlShmPool, wl_surface::WlSurface,
};
use wayland_client::{delegate_noop, Connection, Dispatch, Proxy, QueueHandle};
use wayland_protocols::xdg::shell::client::{
    xdg_surface::{self, XdgSurface},
    xdg_toplevel::XdgToplevel,
    xdg_wm_base::{self, XdgWmBase},
};

const SIDE: i32 = 64;
const BYTES: i32 = SIDE * SIDE * 4;

struct Window {
    surface: WlSurface,
    buffer: WlBuffer,
}

/// Shows the window until the process is killed or the compositor ends.
pub fn show(app_id: &str) -> ! {
    let connection = Connection::connect_to_env().unwrap();
    let (globals, mut queue) = registry_queue_init::<Window>(&connection).unwrap();
    let handle = queue.handle();
    let compositor: WlCompositor = globals.bind(&handle, 1..=4, ()).unwrap();
    let shm: WlShm = globals.bind(&handle, 1..=1, ()).unwrap();
    let shell: XdgWmBase = globals.bind(&handle, 1..=1, ()).unwrap();
    let memory = memfd_create("window", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&memory, BYTES as u64).unwrap();
    let pool = shm.create_pool(memory.as_fd(), BYTES, &handle, ());
    let format = wl_shm::Format::Xrgb8888;
    let buffer = pool.create_buffer(0, SIDE, SIDE, SIDE * 4, format, &handle, ());
    let surface = compositor.create_surface(&handle, ());
    let xdg = shell.get_xdg_surface(&surface, &handle, ());
    let toplevel = xdg.get_toplevel(&handle, ());
    toplevel.set_app_id(app_id.to_owned());
    toplevel.set_title(app_id.to_owned());
    if app_id.starts_with("full-screen") {
        toplevel.set_fullscreen(None);
    }
    surface.commit();
    let mut window = Window { surface, buffer };
    while queue.blocking_dispatch(&mut window).is_ok() {}
    std::process::exit(0)
}

impl Dispatch<XdgSurface, ()> for Window {
    fn event(
        window: &mut Window,
        xdg: &XdgSurface,
        event: xdg_surface::Event,
        _: &(),
        _: &Connection,
        _: &QueueHandle<Window>,
    ) {
        if let xdg_surface::Event::Configure { serial } = event {
            xdg.ack_configure(serial);
            window.surface.attach(Some(&window.buffer), 0, 0);
            window.surface.damage(0, 0, SIDE, SIDE);
            window.surface.commit();
        }
    }
}

impl Dispatch<XdgWmBase, ()> for Window {
    fn event(
        _: &mut Window,
        shell: &XdgWmBase,
        event: xdg_wm_base::Event,
        _: &(),
        _: &Connection,
        _: &QueueHandle<Window>,
    ) {
        if let xdg_wm_base::Event::Ping { serial } = event {
            shell.pong(serial);
        }
    }
}

impl Dispatch<WlRegistry, GlobalListContents> for Window {
    fn event(
        _: &mut Window,
        _: &WlRegistry,
        _: <WlRegistry as Proxy>::Event,
        _: &GlobalListContents,
        _: &Connection,
        _: &QueueHandle<Window>,
    ) {
    }
}

delegate_noop!(Window: ignore WlCompositor);
delegate_noop!(Window: ignore WlShm);
delegate_noop!(Window: ignore WlShmPool);
delegate_noop!(Window: ignore WlBuffer);
delegate_noop!(Window: ignore WlSurface);
delegate_noop!(Window: ignore XdgToplevel);
