// SPDX-License-Identifier: GPL-2.0-or-later
//! The cast of 24 synthetic programs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};

use crate::cgroup::Cgroup;
use crate::memory::{MIB, PAGE};
use crate::process::{Conversation, Process, Start};
use crate::random::seed;
use crate::store::{Extent, Store};

use super::app::{Launched, Spec};
use super::launcher::Cast;
use super::table::{Class, APPS, FRAMEWORK_HOT_PERCENT, FRAMEWORK_MB, SCALE};

/// `purpose` of the seed for the apps' random choices.
const PURPOSE: u64 = 0x7207_a711;
/// Instructions per millisecond of the phone's CPU time, at the guest's scale. In exact mode, the
/// CPU executes one instruction per nanosecond.
const INSTRUCTIONS_PER_MS: u64 = 1_000_000 / SCALE as u64;

/// The cast of synthetic programs.
pub struct Synthetic {
    files: Files,
    repetition: u32,
}

impl Synthetic {
    /// Writes the files that are absent.
    pub fn prepare(store: &mut Store, repetition: u32) -> Result<Self> {
        let files = Files::prepare(store)?;
        Ok(Synthetic { files, repetition })
    }

    /// A path on the disk with the files.
    pub fn file(&self) -> &Path {
        &self.files.program
    }
}

impl Cast for Synthetic {
    type Actor = Conversation;

    fn parts(&self) -> usize {
        APPS.len()
    }

    fn part(&self, index: usize) -> (&'static str, Class) {
        (APPS[index].name, APPS[index].class)
    }

    fn start(
        &mut self,
        index: usize,
        life: u64,
        cgroup: &Cgroup,
        sent_ns: u64,
    ) -> Result<Conversation> {
        let app = &APPS[index];
        let spec = Spec {
            sent_ns,
            framework: self.files.framework.clone(),
            framework_hot_percent: FRAMEWORK_HOT_PERCENT,
            files: self.files.apps[index].clone(),
            context: context(&self.files.directory, app.name),
            heap_pages: scaled_pages(app.heap_mb),
            cold_work: u64::from(app.cold_ms) * INSTRUCTIONS_PER_MS,
            warm_work: u64::from(app.warm_ms) * INSTRUCTIONS_PER_MS,
            hot_percent: app.hot_percent,
            seed: seed(PURPOSE ^ index as u64, self.repetition),
            life,
        };
        let start = Start::in_cgroup(cgroup);
        start.conversation_of(&self.files.program, "rotation-app", &spec)
    }

    fn process(actor: &mut Conversation) -> &mut Process {
        &mut actor.process
    }

    fn started(&mut self, actor: &mut Conversation, _sent_ns: u64) -> Result<Launched> {
        actor.hear()
    }

    fn come_to_front(&mut self, actor: &mut Conversation, sent_ns: u64) -> Result<Launched> {
        actor.ask(&format!("launch {sent_ns}"))
    }

    fn complaint(&self, _index: usize) -> String {
        "(its output is on the console)".into()
    }

    fn be_used(&mut self, actor: &mut Conversation) -> Result<u64> {
        actor.ask::<Launched>("use").map(|_| 0)
    }
}

/// The files that the apps use.
struct Files {
    program: PathBuf,
    directory: PathBuf,
    framework: Extent,
    apps: Vec<Extent>,
}

impl Files {
    /// Writes the files that are absent.
    fn prepare(store: &mut Store) -> Result<Self> {
        let Store::Directory(directory) = &*store else {
            bail!("rotation needs a data disk with a file system");
        };
        let directory = directory.clone();
        // Every app executes this copy, so all of them share its code.
        let program = directory.join("app");
        fs::copy("/proc/self/exe", &program)
            .with_context(|| format!("cannot copy this program to {}", program.display()))?;
        let framework = store.file("framework", FRAMEWORK_MB / SCALE)?;
        let apps = APPS
            .iter()
            .map(|app| {
                // The store's files have whole MiB; the app maps only the length that it needs.
                let len = scaled_pages(app.files_mb) * PAGE;
                let mut file = store.file(app.name, len.div_ceil(MIB) as u32)?;
                file.len = len as u64;
                Ok(file)
            })
            .collect::<Result<_>>()?;
        for app in APPS {
            // Without a saved context, the app starts as if it had never been launched.
            match fs::remove_file(context(&directory, app.name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).context("cannot remove an app's saved context");
                }
                _ => {}
            }
        }
        Ok(Files {
            program,
            directory,
            framework,
            apps,
        })
    }
}

/// Pages in the guest that correspond to `mb` MB on the phone.
fn scaled_pages(mb: u32) -> usize {
    mb as usize * MIB / SCALE as usize / PAGE
}

fn context(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.context"))
}
