// SPDX-License-Identifier: GPL-2.0-or-later
//! Fetches Debian packages with apt: from the host's suites, or from another architecture or suite
//! with lists and a cache of its own. Nothing here needs root or changes the host.

use std::cmp::Ordering;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{bail, Context, Result};

use super::debian::{only, unpack};
use crate::paths;
use crate::shell;

/// Debian's keys, which verify a suite that the host does not use.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// apt, for this machine's architecture and suites or for others.
pub struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// apt with the host's configuration.
    pub fn native() -> Apt {
        Apt {
            options: Vec::new(),
        }
    }

    /// apt with the host's sources, for another architecture. The package lists are kept in `dir`,
    /// so the host need not be multi-arch.
    pub fn foreign(architecture: &str, dir: &Path) -> Result<Apt> {
        let mut apt = Apt::separate(dir)?;
        apt.options.extend([
            format!("APT::Architecture={architecture}"),
            format!("APT::Architectures={architecture}"),
        ]);
        apt.update()?;
        Ok(apt)
    }

    /// apt for another suite of Debian, from the mirror that the host uses. The package lists are
    /// kept in `dir`.
    pub fn suite(suite: &str, dir: &Path) -> Result<Apt> {
        let mut apt = Apt::separate(dir)?;
        let sources = dir.join("sources.list");
        let mirror = mirror()?;
        let line = format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n");
        paths::write(&sources, line)?;
        apt.options.extend([
            format!("Dir::Etc::SourceList={}", sources.display()),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            "Dir::Etc::Preferences=/dev/null".to_owned(),
            "Dir::Etc::PreferencesParts=/dev/null".to_owned(),
        ]);
        apt.update()?;
        Ok(apt)
    }

    /// apt with state and cache of its own in `dir`.
    fn separate(dir: &Path) -> Result<Apt> {
        for part in ["lists/partial", "cache/archives/partial"] {
            let part = dir.join(part);
            fs::create_dir_all(&part)
                .with_context(|| format!("cannot create {}", part.display()))?;
        }
        paths::write(&dir.join("status"), "")?;
        let at = |part: &str| dir.join(part).display().to_string();
        let options = [
            format!("Dir::State={}", at("")),
            format!("Dir::State::Lists={}", at("lists")),
            format!("Dir::State::Status={}", at("status")),
            format!("Dir::Cache={}", at("cache")),
            "Acquire::Languages=none".to_owned(),
            // apt's sandbox user could not read the directory.
            "APT::Sandbox::User=root".to_owned(),
        ];
        Ok(Apt {
            options: options.to_vec(),
        })
    }

    fn update(&self) -> Result<()> {
        shell::run(self.command("apt-get").args(["update", "-q"]))
            .context("apt cannot fetch package lists")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for option in &self.options {
            command.args(["-o", option]);
        }
        command
    }

    /// Downloads `package` and unpacks it into `dir`.
    pub fn fetch(&self, package: &str, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        shell::run(
            self.command("apt-get")
                .args(["download", "-q", package])
                .current_dir(dir),
        )
        .context("the package cannot be fetched: does `apt-get update` work here?")?;
        let archive = only(dir, package)?;
        unpack(&archive, dir)?;
        fs::remove_file(&archive).with_context(|| format!("cannot remove {}", archive.display()))
    }

    /// The newest of the packages whose names match `pattern`, an extended regular expression.
    pub fn newest(&self, pattern: &str) -> Result<String> {
        let search = ["search", "--names-only", pattern];
        let list = shell::output(self.command("apt-cache").args(search))?;
        let names = list
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        let newest = names.max_by(|a, b| version_order(a, b));
        newest.map(str::to_owned).with_context(|| {
            format!(
                "apt knows no package that matches {pattern}: run `apt-get update` with Debian 12's \
                 main and security archives in its sources"
            )
        })
    }

    /// The version of `package` that apt would install.
    pub fn candidate(&self, package: &str) -> Result<String> {
        let policy = shell::output(self.command("apt-cache").args(["policy", package]))?;
        let version = policy
            .lines()
            .find_map(|line| line.trim().strip_prefix("Candidate: "));
        match version {
            Some(version) if version != "(none)" => Ok(version.to_owned()),
            _ => bail!("apt has no package {package}: run `apt-get update`"),
        }
    }
}

/// Orders names by the numbers in them: `6.12.9` before `6.12.10`.
fn version_order(a: &str, b: &str) -> Ordering {
    let key = |name: &str| -> Vec<u64> {
        name.split(|c: char| !c.is_ascii_digit())
            .filter_map(|part| part.parse().ok())
            .collect()
    };
    key(a).cmp(&key(b))
}

/// The URI of the Debian mirror in apt's configuration.
fn mirror() -> Result<String> {
    if let Ok(mirror) = std::env::var("LIMELIGHT_MIRROR") {
        return Ok(mirror);
    }
    let format = "$(ORIGIN)|$(LABEL)|$(REPO_URI)";
    let targets = ["indextargets", "--format", format, "Created-By: Packages"];
    let list = shell::output(Command::new("apt-get").args(targets))?;
    let mirror = debian_uri(&list).context(
        "apt has no lists of Debian's archive: run `apt-get update`, or set LIMELIGHT_MIRROR to \
         the URI of a mirror of Debian",
    )?;
    Ok(mirror.to_owned())
}

/// The URI of Debian's archive among lines of origin, label and URI. The security archive has
/// another label, and no backports.
fn debian_uri(targets: &str) -> Option<&str> {
    targets
        .lines()
        .find_map(|line| line.strip_prefix("Debian|Debian|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_is_not_that_of_another_archive() {
        let targets = "Other|Other|http://other.example/\n\
                       Debian|Debian-Security|http://mirror.example/debian-security/\n\
                       Debian|Debian|http://mirror.example/debian/\n";
        assert_eq!(debian_uri(targets), Some("http://mirror.example/debian/"));
        assert_eq!(debian_uri("Other|Other|http://other.example/\n"), None);
    }

    #[test]
    fn versions_are_ordered_by_number() {
        let mut names = [
            "linux-image-6.12.9+deb12-cloud-amd64-unsigned",
            "linux-image-6.12.117+deb12-cloud-amd64-unsigned",
            "linux-image-6.12.101+deb12-cloud-amd64-unsigned",
        ];
        names.sort_by(|a, b| version_order(a, b));
        assert!(names[0].contains("6.12.9+") && names[2].contains("6.12.117+"));
    }
}
