// SPDX-License-Identifier: GPL-2.0-or-later
//! Processes that a session depends on. They are listed by name and confirmed by their executable,
//! because any process can choose its name.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use limelight_core::model::apps::Use;
use limelight_core::model::ProcessId;
use limelight_sys::dir::Dir;
use limelight_sys::files::FileStat;
use limelight_sys::keyed::Keyed;
use limelight_sys::process::Process;

use crate::system::{own_memory, System};

/// Limelight's own programs, and the programs that a login depends on.
pub const LOGIN: [&str; 10] = [
    "limelightd",
    "limelight-agent",
    "systemd",
    "(sd-pam)",
    "sshd",
    "login",
    "gdm-session-wor",
    "gdm-x-session",
    "sddm-helper",
    "lightdm",
];

/// Screen lockers, and the programs that draw the desktop itself. Killing an X11 locker unlocks the
/// screen.
pub const DESKTOP: [&str; 58] = [
    "i3lock",
    "swaylock",
    "waylock",
    "hyprlock",
    "gtklock",
    "slock",
    "xsecurelock",
    "xlock",
    "physlock",
    "vlock",
    "xscreensaver",
    "xscreensaver-gfx",
    "xss-lock",
    "light-locker",
    "kscreenlocker_greet",
    "gnome-screensaver",
    "mate-screensaver",
    "cinnamon-screensaver",
    "xfce4-screensaver",
    "lxlock",
    "swayidle",
    "hypridle",
    "gnome-session-binary",
    "gnome-session-b",
    "gsd-power",
    "plasmashell",
    "ksmserver",
    "kded5",
    "kded6",
    "krunner",
    "xfdesktop",
    "xfce4-session",
    "xfce4-panel",
    "xfsettingsd",
    "xfwm4",
    "mate-session",
    "mate-panel",
    "marco",
    "cinnamon",
    "cinnamon-session",
    "cinnamon-session-binary",
    "nemo-desktop",
    "budgie-panel",
    "budgie-wm",
    "lxsession",
    "lxpanel",
    "lxqt-session",
    "lxqt-panel",
    "openbox",
    "fluxbox",
    "i3",
    "bspwm",
    "awesome",
    "dwm",
    "waybar",
    "polybar",
    "tint2",
    "phosh",
];

/// Input methods, through which the user types, and on-screen keyboards. The desktop starts them
/// like apps of the session.
pub const INPUT: [&str; 12] = [
    "fcitx",
    "fcitx5",
    "ibus-daemon",
    "ibus-x11",
    "ibus-extension-gtk3",
    "ibus-ui-gtk3",
    "ibus-portal",
    "ibus-dconf",
    "mozc_server",
    "maliit-keyboard",
    "squeekboard",
    "onboard",
];

/// Prefix of the process names of ibus's engines, one for each language.
const INPUT_ENGINE: &str = "ibus-engine-";

/// The daemon of ibus, which starts the engines.
const IBUS: &str = "ibus-daemon";

/// Prefix of the directories with the scripts of ibus's engines, such as `ibus-anthy`.
const IBUS_DIRECTORY: &str = "ibus-";

/// Prefix of the names of Python's interpreter, such as `python3.13`.
const PYTHON: &str = "python3";

/// Programs that install or remove software.
const PACKAGES: [&str; 18] = [
    "dpkg",
    "apt",
    "apt-get",
    "aptitude",
    "unattended-upgrade",
    "rpm",
    "dnf",
    "dnf5",
    "yum",
    "zypper",
    "pacman",
    "apk",
    "emerge",
    "xbps-install",
    "packagekitd",
    "flatpak",
    "snap",
    "fwupdmgr",
];

/// Prefixes of the process names of virtual machines.
const MACHINES: [&str; 5] = [
    "qemu-system-",
    "VirtualBoxVM",
    "VBoxHeadless",
    "vmware-vmx",
    "cloud-hyperviso",
];

/// Programs that keep shells running after their terminal is closed. Their clients may be in any
/// terminal or session.
const MULTIPLEXERS: [&str; 6] = [
    "tmux: server",
    "screen",
    "zellij",
    "dtach",
    "abduco",
    "mosh-server",
];

/// Why an app that runs a program with this name (`comm`) is in use, if it is.
pub fn use_of(comm: &str) -> Option<Use> {
    let packages = PACKAGES.iter().any(|name| is_comm_of(comm, name));
    let machine = MACHINES.iter().any(|name| comm.starts_with(name));
    match (packages, machine) {
        (true, _) => Some(Use::Packages),
        (_, true) => Some(Use::Machine),
        _ => None,
    }
}

/// Whether a process with this name (`comm`) keeps other terminals' shells.
pub fn is_multiplexer(comm: &str) -> bool {
    MULTIPLEXERS.iter().any(|name| is_comm_of(comm, name))
}

/// The `comm` of a program called `name`.
fn comm_of(name: &str) -> &str {
    name.get(..COMM_MAX).unwrap_or(name)
}

/// Whether a program called `name` has this `comm`.
fn is_comm_of(comm: &str, name: &str) -> bool {
    comm_of(name) == comm
}

/// The `comm` of the listed programs that a session depends on. A set, because scans look up the
/// name of every process.
static NEEDED: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    let session = DESKTOP.into_iter().chain(INPUT).map(comm_of);
    LOGIN.into_iter().chain(session).collect()
});

/// Whether a session depends on programs with this name (`comm`), besides the configured helpers.
pub fn is_needed(comm: &str) -> bool {
    comm.starts_with(INPUT_ENGINE) || NEEDED.contains(comm)
}

/// Longest process name (`comm`), in bytes.
const COMM_MAX: usize = 15;

/// What the kernel appends to the path of an executable whose file was removed or replaced.
const DELETED: &str = " (deleted)";

/// Whether a process with this name (`comm`) really runs the installed program of that name. Any
/// program can take any name, and a script of any name runs its interpreter. A process that root
/// runs may be such a script.
pub fn runs_installed(system: &System, id: ProcessId, comm: &str) -> bool {
    let Some(process) = system.same_process(id) else {
        return false;
    };
    match process.program() {
        Ok((program, path)) => {
            let named = || is_program_of(&path, comm) || is_linked(&program, &path, comm);
            let script = || is_input_script(&process, &path, comm);
            program.owner == 0 && (named() || is_of_root(&process) || script())
        }
        // If even root may not read the executable's path, the process does not run an ordinary
        // program. A user's process cannot get into that state, so only root's processes count.
        Err(_) => process.owner_uid().is_ok_and(|uid| uid == 0),
    }
}

/// Whether this is the name (`comm`) of ibus's daemon.
pub fn is_ibus(comm: &str) -> bool {
    comm == IBUS
}

/// Whether a process with this name (`comm`) may be an engine of ibus that is written in Python, as
/// [`is_python_engine`] determines.
pub fn is_python(comm: &str) -> bool {
    comm.starts_with(PYTHON)
}

/// Whether the installed ibus has started this process to run an engine that is written in Python
/// and belongs to root.
pub fn is_python_engine(system: &System, id: ProcessId, comm: &str) -> bool {
    let of_ibus = |pid: i32| {
        let (id, process) = system.process(pid).ok()?;
        let is_ibus = is_ibus(&process.stat().ok()?.comm) && runs_installed(system, id, IBUS);
        is_ibus.then_some(())
    };
    let engine = || {
        let process = system.same_process(id)?;
        of_ibus(process.stat().ok()?.ppid)?;
        let (program, path) = process.program().ok()?;
        let script = installed_script(&process, &path).filter(|_| program.owner == 0)?;
        let mut directories = script.parent()?.iter().map(|name| name.to_string_lossy());
        Some(directories.any(|name| name.starts_with(IBUS_DIRECTORY)))
    };
    is_python(comm) && engine().unwrap_or(false)
}

/// Whether the interpreter at `path` runs the input method that `comm` names, such as onboard.
fn is_input_script(process: &Process, path: &Path, comm: &str) -> bool {
    INPUT.iter().any(|name| is_comm_of(comm, name))
        && installed_script(process, path).is_some_and(|script| is_program_of(&script, comm))
}

/// The Python script that the interpreter at `path` runs, according to the process's arguments, if
/// the script and its directory belong to root. A process can change its arguments. But a user who
/// wants to disguise a program can also load it into an installed one, for example with LD_PRELOAD.
fn installed_script(process: &Process, path: &Path) -> Option<PathBuf> {
    if !path.file_name()?.to_string_lossy().starts_with(PYTHON) {
        return None;
    }
    let arguments = own_memory::arguments(process)?;
    let options = |argument: &&String| argument.starts_with('-') && !is_code(argument);
    let script = PathBuf::from(arguments.iter().skip(1).find(|one| !options(one))?);
    let is_roots = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|file| file.uid() == 0);
    (script.is_absolute() && is_roots(&script) && is_roots(script.parent()?)).then_some(script)
}

/// Whether this argument of Python means that the next one is code or a module, not a script.
fn is_code(argument: &str) -> bool {
    !argument.starts_with("--") && argument.ends_with(['c', 'm'])
}

/// Whether root runs the process, so that its name can be trusted. Many package managers are
/// scripts that root runs. The real user ID counts too, because a user can start a set-user-ID
/// program through a link of any name.
fn is_of_root(process: &Process) -> bool {
    let status = process.status();
    status.is_ok_and(|status| (status.real_uid, status.effective_uid) == (0, 0))
}

/// Whether the executable at `path` is the one that `comm` names.
fn is_program_of(path: &Path, comm: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(DELETED).unwrap_or(&name);
    // systemd's PAM helper sets its own name.
    let comm = if comm == "(sd-pam)" { "systemd" } else { comm };
    match comm.len() < COMM_MAX {
        true => name == comm,
        false => name.starts_with(comm),
    }
}

/// Whether `comm` is another name of the executable at `path`: root has made a link of that name
/// beside it, such as `pipewire-pulse` beside `pipewire`. A shortened `comm` names no file.
fn is_linked(program: &FileStat, path: &Path, comm: &str) -> bool {
    if comm.len() >= COMM_MAX || comm.contains('/') {
        return false;
    }
    let link = path.with_file_name(comm);
    let is_roots = std::fs::symlink_metadata(&link).is_ok_and(|link| link.uid() == 0);
    is_roots
        && match path.to_string_lossy().strip_suffix(DELETED) {
            // An upgrade has replaced the file.
            Some(path) => link.canonicalize().is_ok_and(|to| to == Path::new(path)),
            None => FileStat::at(&link).is_ok_and(|to| to.same_file(program)),
        }
}

/// logind's sessions, one table of keys and values for each.
fn sessions(system: &System) -> Vec<Keyed> {
    let Ok(sessions) = Dir::open(&system.roots.sessions) else {
        return Vec::new();
    };
    let names = sessions.names().unwrap_or_default();
    let files = names.iter().filter(|name| !name.ends_with(".ref"));
    let texts = files.filter_map(|name| sessions.read_text(name).ok());
    texts
        .map(|text| Keyed::parse(text.replace('=', " ")))
        .collect()
}

/// PIDs of the leaders of all sessions that logind knows.
pub fn leaders(system: &System) -> BTreeSet<i32> {
    let leader = |session: &Keyed| i32::try_from(session.get("LEADER")?).ok();
    sessions(system).iter().filter_map(leader).collect()
}

/// Users with a locked session, as their screen locker reports to logind.
pub fn locked_users(system: &System) -> BTreeSet<u32> {
    let sessions = sessions(system);
    let locked = sessions
        .iter()
        .filter(|session| session.get("LOCKED_HINT") == Some(1));
    locked
        .filter_map(|session| u32::try_from(session.get("UID")?).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_managers_and_virtual_machines_are_recognised_by_name() {
        for (comm, expected) in [
            ("dpkg", Some(Use::Packages)),
            ("unattended-upgr", Some(Use::Packages)),
            ("qemu-system-x86", Some(Use::Machine)),
            ("dpkg-deb-helper", None),
            ("bash", None),
        ] {
            assert_eq!(use_of(comm), expected, "{comm}");
        }
        assert!(is_multiplexer("tmux: server") && !is_multiplexer("tmux: client"));
        assert!(NEEDED.contains("i3lock") && NEEDED.contains("kscreenlocker_g"));
    }

    #[test]
    fn input_methods_are_recognised_by_name() {
        for (comm, expected) in [
            ("fcitx5", true),
            ("ibus-daemon", true),
            ("ibus-extension-", true),
            ("ibus-engine-sim", true),
            ("maliit-keyboard", true),
            ("ibus-engine", false),
            ("ibus-setup", false),
        ] {
            assert_eq!(is_needed(comm), expected, "{comm}");
        }
    }

    #[test]
    fn program_is_recognised_by_its_executable() {
        for (path, comm, is) in [
            ("/usr/lib/xorg/Xorg", "Xorg", true),
            ("/usr/bin/dash", "Xorg", false),
            ("/home/u/Xorg", "Xorg", true),
            ("/usr/libexec/gdm-session-worker", "gdm-session-wor", true),
            ("/usr/libexec/gdm", "gdm-session-wor", false),
            ("/usr/lib/systemd/systemd", "(sd-pam)", true),
            ("/usr/bin/sway (deleted)", "sway", true),
            ("/usr/bin/swayidle", "sway", false),
        ] {
            assert_eq!(is_program_of(Path::new(path), comm), is, "{path} {comm}");
        }
    }
}
