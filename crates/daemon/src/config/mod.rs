// SPDX-License-Identifier: GPL-2.0-or-later
//! Configuration: TOML files, read strictly.
//!
//! Every key is listed once, in [`KEYS`], with its allowed values. An unknown key, a value of the
//! wrong type or out of range, and a syntax error are reported with file and line. All mistakes are
//! reported, not only the first. A configuration with any mistake is not applied at all.

mod aliases;
mod classes;
mod keys;
pub mod never;
mod pairs;
mod profiles;
mod suggest;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use limelight_core::model::class::Classes;
use limelight_core::model::never::Rules;
use limelight_core::model::prezero::Extent;
use limelight_core::model::shortage::Thresholds;
use limelight_core::settings::{EngineChoice, Settings};
use toml::de::{DeTable, DeValue};

pub use self::classes::Lists;
use self::keys::{known, set, Key, KEYS};
pub use self::never::NeverLists;
use self::pairs::{contradictions, default_thresholds, early_kill};
use self::suggest::{outside, unknown_key, unknown_section};

/// The configuration file if the command line names none.
pub const DEFAULT_FILE: &str = "/etc/limelight/limelight.toml";

/// How the `oom_score_adj` source works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OomScoreAdjSource {
    /// By tracepoint, else by scan.
    #[default]
    Auto,
    /// By tracepoint only.
    Tracepoint,
    /// By scan only.
    Scan,
    /// Not at all.
    Off,
}

/// When the daemon reads input devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EvdevSource {
    /// While an app is topmost and no client reports input. With `wake_graph`, also while no source
    /// reports the topmost app.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Whether apps without a cgroup of their own are moved into one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Adopt {
    /// Only where systemd does not manage the cgroups, and only if `boost` is enabled or
    /// `/dev/limelight` is not used.
    #[default]
    Auto,
    /// Never.
    Never,
    /// Always.
    Always,
}

/// Whether `/dev/limelight` is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UseDevice {
    /// Where the kernel has it.
    #[default]
    Auto,
    /// Required: without it the daemon does not start.
    Require,
    /// Never, even where the kernel has it.
    Off,
}

/// The group whose members see all users' apps. If logind knows of no session at a seat, the
/// group's members may also claim the foreground.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessGroup {
    /// No group.
    Off,
    /// By its name in `/etc/group`.
    Name(String),
    /// By its number.
    Id(u32),
}

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Settings of the policy and the model.
    pub settings: Settings,
    /// `[access] group`.
    pub access_group: AccessGroup,
    /// `[sources] oom_score_adj`.
    pub oom_score_adj: OomScoreAdjSource,
    /// `[sources] top_app`.
    pub top_app: bool,
    /// `[expert] scan_interval_ms`.
    pub scan_interval: Duration,
    /// `[sources] evdev`.
    pub evdev: EvdevSource,
    /// `[sources] wake_graph`.
    pub wake_graph: bool,
    /// `[boost] extra_helpers`.
    pub extra_helpers: Vec<String>,
    /// `[protect] adopt`.
    pub adopt: Adopt,
    /// `[protect] own_scopes`.
    pub own_scopes: bool,
    /// `[kernel] device`.
    pub device: UseDevice,
    /// `[readahead] directory`.
    pub cold_start_directory: PathBuf,
    /// `[class]`.
    pub class_lists: Lists,
    /// The classes of apps, from `class_lists` and the table of categories.
    pub classes: Classes,
    /// `[never]`.
    pub never_lists: NeverLists,
    /// The rules of `never_lists`.
    pub never: Rules,
}

/// Directory with the records of app starts, for `readahead`.
pub const COLD_START_DIRECTORY: &str = "/var/lib/limelight/coldstart";

impl Default for Config {
    fn default() -> Self {
        Config {
            settings: Settings::default(),
            access_group: AccessGroup::Name("limelight".to_owned()),
            oom_score_adj: OomScoreAdjSource::default(),
            top_app: true,
            scan_interval: Duration::from_millis(500),
            evdev: EvdevSource::default(),
            wake_graph: true,
            extra_helpers: Vec::new(),
            adopt: Adopt::default(),
            own_scopes: true,
            device: UseDevice::default(),
            cold_start_directory: COLD_START_DIRECTORY.into(),
            class_lists: Lists::default(),
            classes: classes::packaged(),
            never_lists: NeverLists::default(),
            never: Rules::default(),
        }
    }
}

impl Config {
    /// Directory for files that outlive the daemon: the parent of the directory of the records.
    pub fn state_directory(&self) -> &Path {
        let records = self.cold_start_directory.as_path();
        records.parent().unwrap_or(records)
    }
}

/// The error message if a required key is missing, although each given key is valid.
fn incomplete(config: &Config) -> Option<&'static str> {
    let prezero = &config.settings.prezero;
    let nameless = |extent: &Extent| extent.device.as_os_str().is_empty();
    match &prezero.block {
        Some(extent) if nameless(extent) => {
            Some("[expert] has prezero_block_ keys, but no `prezero_block_device`")
        }
        None if prezero.engine == EngineChoice::Block => {
            Some("`prezero_engine` in [expert] is \"block\", which needs `prezero_block_device`")
        }
        _ => None,
    }
}

/// A mistake in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong, with the key and the allowed values.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file.display(), self.message),
            line => write!(f, "{}:{line}: {}", self.file.display(), self.message),
        }
    }
}

/// All mistakes of all files, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Where the configuration comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// [`DEFAULT_FILE`] if it exists, then `limelight.toml.d/*.toml` beside it in alphabetic order.
    /// A later file overrides an earlier one.
    Default,
    /// Only this file, which must exist.
    File(PathBuf),
}

/// A key, its value, and where the value was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Name of the section.
    pub section: &'static str,
    /// Name of the key.
    pub key: &'static str,
    /// The value in TOML syntax; `None` if it is not set and has no default.
    pub value: Option<String>,
    /// File and line that set it last; `None`: the default.
    pub origin: Option<(PathBuf, usize)>,
    /// The profile that set it; `origin` is then where the profile was chosen.
    pub profile: Option<&'static str>,
}

/// Reads the configuration. Without any file it is [`Config::default`].
pub fn load(origin: &Origin) -> Result<Config, ConfigErrors> {
    Ok(load_origin(origin)?.config)
}

/// Like [`load`], with a warning for each old name of a key or a value.
pub fn load_with_warnings(origin: &Origin) -> Result<(Config, Vec<ConfigError>), ConfigErrors> {
    let Loaded { config, given } = load_origin(origin)?;
    let warnings = given.into_iter().filter_map(|given| {
        Some(ConfigError {
            message: given.warning?,
            file: given.file,
            line: given.line,
        })
    });
    Ok((config, warnings.collect()))
}

/// Every key with its value, in the order of the packaged file.
pub fn values(origin: &Origin) -> Result<Vec<Value>, ConfigErrors> {
    let given = load_origin(origin)?.given;
    let value = |key: &Key| {
        let last = given.iter().rev().find(|given| given.is(key));
        Value {
            section: key.section,
            key: key.name,
            value: match last {
                Some(given) => Some(given.value.clone()),
                None => default_of(key).map(str::to_owned),
            },
            origin: last.map(|given| (given.file.clone(), given.line)),
            profile: last.and_then(|given| given.profile),
        }
    };
    Ok(KEYS.iter().map(value).collect())
}

/// Whether a key has no default. The packaged file shows an example of its value instead.
pub fn has_only_example(key: &str) -> bool {
    key.starts_with("prezero_block_")
}

/// The key and the value that a line of the packaged file shows, if it is of the form
/// `#KEY = VALUE`. Comments have a blank after the `#`.
pub fn shown_key(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix('#')?;
    let is_key = line.starts_with(|first: char| first.is_ascii_lowercase());
    line.split_once(" = ").filter(|_| is_key)
}

/// Reads a key's default from the packaged file.
fn default_of(key: &Key) -> Option<&'static str> {
    let text = include_str!("../../../../packaging/limelight.toml");
    let mut lines = text.lines();
    lines.find(|line| line.trim() == format!("[{}]", key.section))?;
    lines
        .take_while(|line| !line.starts_with('['))
        .find_map(|line| {
            let (name, value) = shown_key(line)?;
            (name == key.name && !has_only_example(name)).then_some(value)
        })
}

fn files(origin: &Origin) -> Result<Vec<PathBuf>, ConfigErrors> {
    match origin {
        Origin::Default => with_drop_ins(Path::new(DEFAULT_FILE)),
        Origin::File(file) => Ok(vec![file.clone()]),
    }
}

/// `file` if it exists, and the `*.toml` files in the directory `file.d`, sorted by name.
fn with_drop_ins(file: &Path) -> Result<Vec<PathBuf>, ConfigErrors> {
    let mut files = Vec::new();
    if file.exists() {
        files.push(file.to_owned());
    }
    let mut directory = file.as_os_str().to_owned();
    directory.push(".d");
    let directory = PathBuf::from(directory);
    match std::fs::read_dir(&directory) {
        Ok(entries) => {
            let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
            let mut drop_ins: Vec<PathBuf> = paths
                .filter(|path| path.extension().is_some_and(|ext| ext == "toml"))
                .collect();
            drop_ins.sort();
            files.extend(drop_ins);
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            let message = format!("cannot list the drop-ins: {error}");
            return Err(ConfigErrors(vec![ConfigError {
                file: directory,
                line: 0,
                message,
            }]));
        }
    }
    Ok(files)
}

/// A value that a file sets, in TOML syntax.
struct Given {
    section: &'static str,
    key: &'static str,
    value: String,
    file: PathBuf,
    line: usize,
    /// The profile that sets it; `file` and `line` are then where the profile was chosen.
    profile: Option<&'static str>,
    /// The warning that the key or the value has another name now.
    warning: Option<String>,
}

impl Given {
    fn is(&self, key: &Key) -> bool {
        (self.section, self.key) == (key.section, key.name)
    }
}

struct Loaded {
    config: Config,
    given: Vec<Given>,
}

fn load_origin(origin: &Origin) -> Result<Loaded, ConfigErrors> {
    let mut loaded = load_files(&files(origin)?, &default_thresholds());
    let (rules, contradictions) = match &loaded {
        Ok(loaded) => loaded.config.class_lists.rules(&loaded.given),
        Err(_) => (Vec::new(), Vec::new()),
    };
    let categories = classes::categories(origin).unwrap_or_else(|errors| {
        add_errors(&mut loaded, errors);
        Vec::new()
    });
    add_errors(&mut loaded, contradictions);
    if let Ok(loaded) = &mut loaded {
        loaded.config.classes = Classes::new(rules, categories);
        loaded.config.never = loaded.config.never_lists.rules(&loaded.given);
    }
    loaded
}

fn add_errors(loaded: &mut Result<Loaded, ConfigErrors>, more: Vec<ConfigError>) {
    match loaded {
        Err(errors) => errors.0.extend(more),
        Ok(_) if more.is_empty() => {}
        Ok(_) => *loaded = Err(ConfigErrors(more)),
    }
}

/// `machine`: the thresholds that apply where the files set none.
fn load_files(files: &[PathBuf], machine: &Thresholds) -> Result<Loaded, ConfigErrors> {
    let mut config = Config::default();
    let (mut given, mut errors) = (Vec::new(), Vec::new());
    let mut texts = Vec::new();
    let mut chosen = None;
    for file in files {
        let mut wrong = |line, message| {
            errors.push(ConfigError {
                file: file.clone(),
                line,
                message,
            });
        };
        match std::fs::read_to_string(file) {
            Ok(text) => {
                match profiles::named(&text) {
                    Some((line, Ok(profile))) => chosen = Some((profile, file, line)),
                    Some((line, Err(message))) => wrong(line, message),
                    None => {}
                }
                texts.push((file, text));
            }
            Err(error) => wrong(0, format!("cannot read the configuration: {error}")),
        }
    }
    // The profile of the last file that names one comes first, so that all keys of the files win.
    if let Some((profile, file, chosen_at)) = chosen {
        let wrong = apply(
            &mut config,
            profile.text,
            |_| None,
            &mut |key, value, _, _| {
                given.push(Given {
                    section: key.section,
                    key: key.name,
                    value: value.to_owned(),
                    file: file.clone(),
                    line: chosen_at,
                    profile: Some(profile.name),
                    warning: None,
                });
            },
        );
        debug_assert_eq!(wrong, []);
    }
    for (file, text) in texts {
        let found = apply(
            &mut config,
            &text,
            |_| None,
            &mut |key, value, line, warning| {
                given.push(Given {
                    section: key.section,
                    key: key.name,
                    value: value.to_owned(),
                    file: file.clone(),
                    line,
                    profile: None,
                    warning,
                });
            },
        );
        errors.extend(found.into_iter().map(|(line, message)| ConfigError {
            file: file.clone(),
            line,
            message,
        }));
    }
    let extra = config.extra_helpers.iter();
    let helpers = &config.settings.boost.helpers;
    let extra: Vec<String> = extra
        .filter(|name| !helpers.contains(name))
        .cloned()
        .collect();
    config.settings.boost.helpers.extend(extra);
    if let (true, Some(message), Some(file)) =
        (errors.is_empty(), incomplete(&config), files.last())
    {
        errors.push(ConfigError {
            file: file.clone(),
            line: 0,
            message: message.to_owned(),
        });
    }
    if errors.is_empty() {
        errors.extend(contradictions(&config, &given));
        errors.extend(early_kill(&config, &given, machine));
    }
    if errors.is_empty() {
        Ok(Loaded { config, given })
    } else {
        Err(ConfigErrors(errors))
    }
}

/// The line number of a byte offset in a text, from 1.
fn line_at(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    before.filter(|&&byte| byte == b'\n').count() + 1
}

/// Takes a key, its value in TOML syntax, its line, and a warning.
type Report<'a> = dyn FnMut(&Key, &str, usize, Option<String>) + 'a;

/// Applies one file's text to `config`, and reports each valid value with its line and a warning, if
/// the key or the value has another name now. `refused` is the
/// error message for a section, or a key outside a section, that this file may not have. Returns the
/// mistakes as line and message.
fn apply(
    config: &mut Config,
    text: &str,
    refused: fn(&str) -> Option<String>,
    given: &mut Report<'_>,
) -> Vec<(usize, String)> {
    let line_at = |at: usize| line_at(text, at);
    let table = match DeTable::parse(text) {
        Ok(table) => table.into_inner(),
        Err(error) => {
            let line = line_at(error.span().map_or(0, |span| span.start));
            return vec![(line, format!("not TOML: {}", error.message()))];
        }
    };
    let mut errors = Vec::new();
    for (section, value) in &table {
        let line = line_at(section.span().start);
        let section = section.get_ref().as_ref();
        if let Some(message) = refused(section) {
            errors.push((line, message));
            continue;
        }
        if section == profiles::KEY {
            // Applied before all files.
            continue;
        }
        // The section's present name: an old one works as well.
        let now = aliases::section(section).unwrap_or(section);
        if !KEYS.iter().any(|key| key.section == now) {
            let message = match value.get_ref() {
                DeValue::Table(_) => unknown_section(section),
                _ => outside(section),
            };
            errors.push((line, message));
            continue;
        }
        let DeValue::Table(keys) = value.get_ref() else {
            errors.push((line, format!("`{section}` is a section: write [{now}]")));
            continue;
        };
        for (name, value) in keys {
            let line = line_at(name.span().start);
            let name = name.get_ref().as_ref();
            let known = known(section, name).map(|key| (key, None));
            let old = || aliases::key(section, name).map(|(key, old)| (key, Some(old)));
            let Some((key, moved)) = known.or_else(old) else {
                errors.push((line, unknown_key(now, name)));
                continue;
            };
            if moved.is_some() && is_set(&table, key) {
                let Key { section, name, .. } = key;
                errors.push((line, format!("it is also set as `{name}` in [{section}]")));
                continue;
            }
            match set(config, key, value) {
                Ok(renamed) => {
                    let value = text.get(value.span()).unwrap_or_default();
                    given(key, value, line, moved.or(renamed));
                }
                Err(message) => errors.push((line, message)),
            }
        }
    }
    errors.sort();
    errors
}

/// Whether a file sets this key.
fn is_set(table: &DeTable<'_>, key: &Key) -> bool {
    let mut sections = table.iter();
    let section = sections.find(|(name, _)| name.get_ref() == key.section);
    let keys = section.and_then(|(_, value)| value.get_ref().as_table());
    keys.is_some_and(|keys| keys.iter().any(|(name, _)| name.get_ref() == key.name))
}

#[cfg(test)]
mod tests;
