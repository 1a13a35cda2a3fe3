// SPDX-License-Identifier: GPL-2.0-or-later
//! sway, over its IPC: its window events contain the process, and its tree says which windows are
//! visible.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

use super::environment::Environment;
use super::i3_ipc::Ipc;
use super::pick::NotHere;
use super::{FocusBy, Gone, Seen, Source};

/// sway's IPC.
pub struct Sway {
    ipc: Ipc,
    detail: String,
    visible: BTreeSet<i32>,
}

/// Connects to `$SWAYSOCK`.
pub fn connect(environment: &Environment) -> Result<Box<dyn Source>, NotHere> {
    let path = environment.sway.as_deref();
    let path = path
        .ok_or_else(|| NotHere::because("$SWAYSOCK is not set, and no socket of sway was found"))?;
    let mut ipc = Ipc::connect(path)?;
    let version = ipc.version()?;
    let (peer, path) = (ipc.stream().peer(), path.display());
    let detail = format!("{peer}, version {version}, reports the focus over {path}");
    Ok(Box::new(Sway {
        ipc,
        detail,
        visible: BTreeSet::new(),
    }))
}

impl Source for Sway {
    fn name(&self) -> &'static str {
        "sway"
    }

    fn detail(&self) -> String {
        self.detail.clone()
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.ipc.stream().fd()]
    }

    fn observe(&mut self) -> Result<Seen, Gone> {
        let focused = self.ipc.focused().map_err(|why| Gone::new("sway", why))?;
        Ok(match focused {
            Some(node) => Seen::of_compositor(node.id.to_string(), node.pid),
            None => Seen::nothing(FocusBy::Compositor),
        })
    }

    fn is_behind(&self) -> bool {
        self.ipc.is_behind()
    }

    fn visible(&mut self) -> Result<BTreeSet<i32>, Gone> {
        let visible = self.ipc.visible().map_err(|why| Gone::new("sway", why))?;
        if let Some(visible) = visible {
            self.visible = visible;
        }
        Ok(self.visible.clone())
    }
}
