// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds the premap library.

use std::env;
use std::path::{Path, PathBuf};

/// The library's file name.
pub const NAME: &str = "liblimelight-premap.so";
/// Environment variable with the library's path. If it is set, no other place is searched.
pub const VARIABLE: &str = "LIMELIGHT_PREMAP_LIBRARY";

/// Finds the library. If [`VARIABLE`] is set, only at that path; otherwise below this program's
/// prefix, next to this program, or where packages install it. `Err`: all places that were
/// searched.
pub fn find() -> Result<PathBuf, Vec<PathBuf>> {
    let named = env::var_os(VARIABLE).map(PathBuf::from);
    first(places(named, env::current_exe().ok().as_deref()))
}

fn places(named: Option<PathBuf>, program: Option<&Path>) -> Vec<PathBuf> {
    if let Some(named) = named {
        return vec![named];
    }
    let mut places = Vec::new();
    if let Some(directory) = program.and_then(Path::parent) {
        places.push(directory.join("../lib/limelight").join(NAME));
        places.push(directory.join(NAME));
    }
    places.push(Path::new("/usr/lib/limelight").join(NAME));
    places
}

/// The first place where the library exists. Checked here, because the dynamic linker would only
/// warn about a missing library and start the program without it.
fn first(places: Vec<PathBuf>) -> Result<PathBuf, Vec<PathBuf>> {
    let found = places.iter().find(|place| place.is_file());
    match found.and_then(|place| place.canonicalize().ok()) {
        Some(path) => Ok(path),
        None => Err(places),
    }
}

/// The places, for display.
pub fn list(places: &[PathBuf]) -> String {
    let places = places.iter().map(|place| place.display().to_string());
    places.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_is_found_below_the_programs_prefix() {
        let prefix = tempfile::tempdir().unwrap();
        let program = prefix.path().join("bin/limelight");
        let library = prefix.path().join("lib/limelight").join(NAME);
        for path in [&program, &library] {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
        let all = places(None, Some(&program));
        assert_eq!(all.len(), 3);
        std::fs::write(&library, "").unwrap();
        assert_eq!(first(all).unwrap(), library.canonicalize().unwrap());
    }

    #[test]
    fn no_other_place_is_searched_if_a_path_is_named() {
        let named = PathBuf::from("/nowhere/x.so");
        let all = places(Some(named.clone()), Some(Path::new("/usr/bin/limelight")));
        assert_eq!(first(all), Err(vec![named]));
    }
}
