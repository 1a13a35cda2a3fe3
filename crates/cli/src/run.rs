// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight run`: starts a program as an app with a cgroup of its own. It runs itself again
//! inside the new scope, where it sets the class and `LD_PRELOAD`, and then executes the program.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use limelight_proto::Class;
use limelight_sys::advice::knows_populate_write;

use crate::exit::Failure;
use crate::library;

const PRELOAD: &str = "LD_PRELOAD";

/// Options for the program.
#[derive(Debug)]
pub struct Wish<'a> {
    /// Whether to preload the premap library.
    pub premap: bool,
    /// The program's class, set inside its scope.
    pub class: Option<Class>,
    /// Whether the program gets a scope of its own.
    pub scope: bool,
    /// The daemon's socket, to set the class.
    pub socket: &'a Path,
}

/// Replaces this process by `program`. Returns only when it fails.
pub fn become_program(wish: &Wish, program: &[OsString]) -> Result<(), Failure> {
    let Some((name, arguments)) = program.split_first() else {
        return Err(Failure::Other("no program to run".to_owned()));
    };
    if find_program(name).is_none() {
        return Err(no_program(name));
    }
    if wish.scope {
        match manager() {
            Ok(manager) => return enter(manager, wish, program),
            Err(why) if wish.class.is_some() => {
                let name = name.to_string_lossy();
                return Err(Failure::Curable {
                    message: format!("--class needs a scope, and {name} cannot get one: {why}"),
                    cure: "leave out --class, or set the class in [class] of limelight.toml"
                        .to_owned(),
                });
            }
            Err(why) => warn(&format!("the program gets no scope of its own: {why}")),
        }
    }
    let mut command = Command::new(name);
    command.args(arguments);
    if wish.premap {
        preload_into(&mut command, name)?;
    }
    Err(not_run(name, &command.exec()))
}

fn no_program(name: &OsStr) -> Failure {
    Failure::NotFound {
        message: format!("there is no program {}", name.to_string_lossy()),
        cure: "give its path, or check $PATH".to_owned(),
    }
}

fn not_run(name: &OsStr, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => no_program(name),
        _ => Failure::Other(format!("cannot run {}: {error}", name.to_string_lossy())),
    }
}

fn preload_into(command: &mut Command, name: &OsStr) -> Result<(), Failure> {
    let library = library::find().map_err(|places| Failure::NotFound {
        message: format!(
            "the premap library was not found at {}",
            library::list(&places)
        ),
        cure: format!(
            "install it there (make install), or name it in {}",
            library::VARIABLE
        ),
    })?;
    if !knows_populate_write() {
        warn("this kernel is older than 5.14 and has no MADV_POPULATE_WRITE: premap has no effect");
    }
    if find_program(name).is_some_and(|path| is_static(&path).unwrap_or(false)) {
        let name = name.to_string_lossy();
        warn(&format!(
            "{name} is linked statically and loads no library: premap has no effect"
        ));
    }
    command.env(PRELOAD, preload(&library, env::var_os(PRELOAD)));
    Ok(())
}

/// The systemd instance that creates the scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manager {
    /// The user's own instance.
    User,
    /// The system instance.
    System,
}

/// The program that creates scopes.
pub const SYSTEMD_RUN: &str = "systemd-run";

/// The systemd instance that can create a scope for the caller, or why there is none.
pub fn manager() -> Result<Manager, String> {
    if find_program(OsStr::new(SYSTEMD_RUN)).is_none() {
        return Err(format!("{SYSTEMD_RUN} is not in $PATH"));
    }
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let root = rustix::process::geteuid().is_root();
    manager_of(Path::new("/run"), runtime.as_deref(), root)
}

fn manager_of(run: &Path, runtime: Option<&Path>, root: bool) -> Result<Manager, String> {
    let own = runtime.is_some_and(|runtime| runtime.join("systemd/private").exists());
    match (own, root && run.join("systemd/system").is_dir()) {
        (true, _) => Ok(Manager::User),
        (false, true) => Ok(Manager::System),
        (false, false) => Err("no systemd manages this session ($XDG_RUNTIME_DIR)".to_owned()),
    }
}

/// Continues inside a scope: systemd-run executes this program again, in the same process.
fn enter(manager: Manager, wish: &Wish, program: &[OsString]) -> Result<(), Failure> {
    let ourselves = env::current_exe()?;
    let unit = unit_name(&program[0], std::process::id());
    let arguments = scope_arguments(manager, &unit, &ourselves, wish, program);
    let error = Command::new(SYSTEMD_RUN).args(arguments).exec();
    Err(not_run(OsStr::new(SYSTEMD_RUN), &error))
}

fn scope_arguments(
    manager: Manager,
    unit: &str,
    ourselves: &Path,
    wish: &Wish,
    program: &[OsString],
) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    if manager == Manager::User {
        arguments.push("--user".into());
    }
    // In app.slice, because the daemon expects no apps in system.slice.
    for word in ["--scope", "--quiet", "--collect", "--slice=app.slice"] {
        arguments.push(word.into());
    }
    // These weights are the defaults, but without them systemd enables neither controller.
    for word in ["--property=CPUWeight=100", "--property=IOWeight=100"] {
        arguments.push(word.into());
    }
    arguments.push(format!("--unit={unit}").into());
    arguments.push("--".into());
    arguments.push(ourselves.into());
    arguments.push("--socket".into());
    arguments.push(wish.socket.into());
    arguments.push("run".into());
    arguments.push("--inside".into());
    if wish.premap {
        arguments.push("--premap".into());
    }
    if let Some(class) = wish.class {
        arguments.push(format!("--class={class}").into());
    }
    arguments.push("--".into());
    arguments.extend(program.iter().cloned());
    arguments
}

/// `app-limelight-NAME-PID.scope`, with the name escaped as systemd does.
fn unit_name(program: &OsStr, pid: u32) -> String {
    let name = Path::new(program).file_name().unwrap_or(program);
    let mut escaped = String::new();
    for (at, byte) in name.as_bytes().iter().enumerate() {
        match byte {
            b'.' if at == 0 => escaped.push_str("\\x2e"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' => {
                escaped.push(char::from(*byte))
            }
            byte => escaped.push_str(&format!("\\x{byte:02x}")),
        }
    }
    format!("app-limelight-{escaped}-{pid}.scope")
}

fn warn(message: &str) {
    eprintln!("limelight: {message}");
}

/// The value of `LD_PRELOAD`: the premap library, then the libraries that the variable already
/// names. The premap library passes calls on to `__libc_malloc`, so a library that replaces malloc
/// gets them only if it defines that name too.
fn preload(library: &Path, before: Option<OsString>) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        all.push(":");
        all.push(before);
    }
    all
}

/// Path of the program that `exec` would run.
fn find_program(name: &OsStr) -> Option<PathBuf> {
    let path = Path::new(name);
    if path.components().count() > 1 {
        return path.is_file().then(|| path.to_owned());
    }
    let directories = env::var_os("PATH")?;
    env::split_paths(&directories)
        .map(|directory| directory.join(path))
        .find(|place| place.is_file())
}

/// Whether a file is a 64-bit ELF program without a dynamic linker.
fn is_static(path: &Path) -> io::Result<bool> {
    const INTERPRETER: [u8; 4] = 3u32.to_le_bytes();
    let mut file = File::open(path)?;
    let mut header = [0; 64];
    file.read_exact(&mut header)?;
    let little_64 = [0x7f, b'E', b'L', b'F', 2, 1];
    if !header.starts_with(&little_64) {
        return Ok(false);
    }
    let [.., a, b, c, d, e, f, g, h] = header[..40] else {
        return Ok(false);
    };
    let table = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let size = u64::from(u16::from_le_bytes([header[54], header[55]]));
    let count = u64::from(u16::from_le_bytes([header[56], header[57]]));
    for entry in 0..count {
        let mut kind = [0; 4];
        file.seek(SeekFrom::Start(table.saturating_add(entry * size)))?;
        file.read_exact(&mut kind)?;
        if kind == INTERPRETER {
            return Ok(false);
        }
    }
    Ok(count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_name_contains_the_program() {
        use limelight_core::model::unit;
        assert_eq!(
            unit_name(OsStr::new("/usr/bin/firefox-esr"), 7),
            "app-limelight-firefox\\x2desr-7.scope"
        );
        for name in ["gimp", "org.gnome.eog", "firefox-esr", "a b@c"] {
            let unit = unit::parse(&unit_name(OsStr::new(name), 42)).unwrap();
            assert_eq!(unit.ids[0], name);
        }
    }

    #[test]
    fn scope_is_created_by_the_sessions_manager() {
        let temp = tempfile::tempdir().unwrap();
        let (run, user) = (temp.path().join("run"), temp.path().join("user"));
        assert!(manager_of(&run, None, true).is_err());
        std::fs::create_dir_all(run.join("systemd/system")).unwrap();
        assert_eq!(manager_of(&run, None, true), Ok(Manager::System));
        let refused = manager_of(&run, Some(&user), false).unwrap_err();
        assert!(refused.contains("XDG_RUNTIME_DIR"), "{refused}");
        std::fs::create_dir_all(user.join("systemd/private")).unwrap();
        assert_eq!(manager_of(&run, Some(&user), false), Ok(Manager::User));
        assert_eq!(manager_of(&run, Some(&user), true), Ok(Manager::User));
    }

    #[test]
    fn options_are_passed_on_inside_the_scope() {
        let wish = Wish {
            premap: true,
            class: Some(Class::Disposable),
            scope: true,
            socket: Path::new("/s"),
        };
        let program = ["game".into(), "--fast".into()];
        let arguments = scope_arguments(
            Manager::User,
            "u.scope",
            Path::new("/usr/bin/limelight"),
            &wish,
            &program,
        );
        let words: Vec<_> = arguments
            .iter()
            .map(|word| word.to_str().unwrap())
            .collect();
        assert_eq!(
            words.join(" "),
            "--user --scope --quiet --collect --slice=app.slice --property=CPUWeight=100 \
             --property=IOWeight=100 --unit=u.scope -- \
             /usr/bin/limelight --socket /s run --inside --premap --class=disposable -- game --fast"
        );
    }

    #[test]
    fn existing_preloads_are_kept() {
        let ours = Path::new("/l.so");
        assert_eq!(preload(ours, None), "/l.so");
        assert_eq!(preload(ours, Some("".into())), "/l.so");
        assert_eq!(preload(ours, Some("/x.so".into())), "/l.so:/x.so");
    }

    #[test]
    fn dynamic_program_is_not_static() {
        // This test program is linked dynamically, and a source file is not an ELF file.
        assert!(!is_static(&env::current_exe().unwrap()).unwrap());
        assert!(!is_static(Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/run.rs"
        )))
        .unwrap());
        assert!(is_static(Path::new("/proc/self/nonexistent")).is_err());
    }

    #[test]
    fn program_without_interpreter_is_static() {
        let mut image = vec![0u8; 64 + 56];
        image[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        image[32] = 64;
        image[54] = 56;
        image[56] = 1;
        image[64] = 1;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &image).unwrap();
        assert!(is_static(file.path()).unwrap());
        image[64] = 3;
        std::fs::write(file.path(), &image).unwrap();
        assert!(!is_static(file.path()).unwrap());
    }

    #[test]
    fn programs_are_found_as_exec_finds_them() {
        assert!(find_program(OsStr::new("sh")).is_some());
        assert!(find_program(OsStr::new("/no/such/program")).is_none());
        assert!(find_program(OsStr::new("no-such-program-anywhere")).is_none());
    }
}
