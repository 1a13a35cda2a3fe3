// SPDX-License-Identifier: GPL-2.0-or-later
//! Configuration fragments, and the check that a kernel configuration contains their options.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{bail, Result};

use crate::paths;

/// Option names (with `CONFIG_`) and their values; `n` for an option that is not set.
pub type Options = BTreeMap<String, String>;

/// Parses a fragment or a `.config`. `# CONFIG_X is not set` and `CONFIG_X=n` are equivalent.
pub fn parse(text: &str) -> Options {
    let mut options = Options::new();
    for line in text.lines().map(str::trim) {
        if let Some((name, value)) = line.split_once('=').filter(|_| line.starts_with("CONFIG_")) {
            options.insert(name.into(), value.into());
        } else if let Some(name) = line
            .strip_prefix("# ")
            .and_then(|rest| rest.strip_suffix(" is not set"))
        {
            options.insert(name.into(), "n".into());
        }
    }
    options
}

/// Fails with a list of the options in `fragments` whose value in `config` differs. A later
/// fragment overrides an earlier one.
pub fn verify(config: &Path, fragments: &[std::path::PathBuf]) -> Result<()> {
    let actual = parse(&paths::read_lossy(config)?);
    let mut wanted = BTreeMap::new();
    for fragment in fragments {
        let name = fragment
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        for (option, value) in parse(&paths::read_lossy(fragment)?) {
            wanted.insert(option, (value, name.clone()));
        }
    }
    let missing: Vec<String> = wanted
        .into_iter()
        .filter_map(|(option, (value, fragment))| {
            let got = actual.get(&option).map_or("n", String::as_str);
            (got != value)
                .then(|| format!("  {option}: {fragment} asks for {value}, the kernel has {got}"))
        })
        .collect();
    if !missing.is_empty() {
        bail!(
            "{} option(s) did not survive `make olddefconfig` (a dependency is missing, or the \
             option does not exist in this kernel):\n{}",
            missing.len(),
            missing.join("\n")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(config: &str, fragments: &[&str]) -> Result<()> {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let paths: Vec<_> = fragments
            .iter()
            .enumerate()
            .map(|(index, text)| file(&format!("{index}.config"), text))
            .collect();
        verify(&file(".config", config), &paths)
    }

    #[test]
    fn matching_options_pass() {
        let config = "CONFIG_A=y\nCONFIG_S=\"text\"\nCONFIG_N=7\n# CONFIG_OFF is not set\n";
        let fragment = "# a comment\nCONFIG_A=y\nCONFIG_S=\"text\"\n\nCONFIG_N=7\n";
        check(
            config,
            &[fragment, "CONFIG_OFF=n\n# CONFIG_ABSENT is not set\n"],
        )
        .unwrap();
    }

    #[test]
    fn each_lost_option_is_named_with_its_fragment() {
        let error = check("CONFIG_A=m\n", &["CONFIG_A=y\n", "CONFIG_B=y\n"])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("CONFIG_A: 0.config asks for y, the kernel has m"),
            "{error}"
        );
        assert!(
            error.contains("CONFIG_B: 1.config asks for y, the kernel has n"),
            "{error}"
        );
    }

    #[test]
    fn later_fragment_wins() {
        check("# CONFIG_A is not set\n", &["CONFIG_A=y\n", "CONFIG_A=n\n"]).unwrap();
        assert!(check("CONFIG_A=y\n", &["CONFIG_A=y\n", "# CONFIG_A is not set\n"]).is_err());
    }
}
