// SPDX-License-Identifier: GPL-2.0-or-later
//! The name that a window gives itself (app id, WM class). Some compositors report no other
//! identity of a window.

use std::collections::BTreeSet;
use std::path::Path;

/// Possible names of an app, in lower case: its id and the id's last part (`org.gnome.nautilus`,
/// `nautilus`).
pub fn names_of(app_id: &str) -> BTreeSet<String> {
    let last = app_id.rsplit('.').next().unwrap_or(app_id);
    [app_id, last]
        .into_iter()
        .filter(|name| !name.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// File name, in lower case, of the program in a desktop entry's `Exec`.
pub fn entry_exec(text: &str) -> Option<String> {
    let entry = text.split_once("[Desktop Entry]")?.1;
    let lines = entry.lines().take_while(|line| !line.starts_with('['));
    let exec = lines.filter_map(|line| line.split_once('='));
    let (_, exec) = exec.into_iter().find(|(key, _)| key.trim_end() == "Exec")?;
    let words = exec.split_whitespace().map(|word| word.trim_matches('"'));
    let mut words = words.skip_while(|word| word.ends_with("/env") || *word == "env");
    let program = words.find(|word| !word.contains('='))?;
    let name = Path::new(program).file_name()?.to_str()?;
    Some(name.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_name_their_program() {
        let text = "[Desktop Entry]\nName=Web\nExec=env GDK=x /usr/lib/epiphany/Web --new %U\n\n[Desktop Action x]\nExec=other\n";
        assert_eq!(entry_exec(text).as_deref(), Some("web"));
        assert_eq!(entry_exec("[Desktop Entry]\nName=x\n"), None);
        assert_eq!(entry_exec("Exec=foot"), None);
    }

    #[test]
    fn id_and_its_last_part_are_names() {
        let names = |id| names_of(id).into_iter().collect::<Vec<_>>();
        assert_eq!(
            names("org.gnome.Nautilus"),
            ["nautilus", "org.gnome.nautilus"]
        );
        assert_eq!(names("foot"), ["foot"]);
        assert_eq!(names("."), ["."]);
        assert_eq!(names(""), [""; 0]);
    }
}
