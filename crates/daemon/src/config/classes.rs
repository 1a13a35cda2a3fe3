// SPDX-License-Identifier: GPL-2.0-or-later
//! Classes of apps: `[class]` in the configuration, and the table of categories.

use std::fmt;
use std::path::{Path, PathBuf};

use limelight_core::model::class::{Class, Classes, Rule};
use toml::de::{DeTable, DeValue};

use crate::config::{line_at, ConfigError, Given, Origin, DEFAULT_FILE};

/// File name of the administrator's table of categories, beside the configuration.
pub const FILE_NAME: &str = "classes.toml";

/// The default table.
const PACKAGED: &str = include_str!("../../../../packaging/classes.toml");

/// Categories and their classes, in file order.
type Table = Vec<(String, Class)>;

/// The section of the configuration with the class lists, and the section of the table of
/// categories.
pub(super) const SECTION: &str = "class";
const CATEGORIES: &str = "categories";

/// Patterns of apps, by class, from `[class]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lists {
    keep: Vec<String>,
    normal: Vec<String>,
    disposable: Vec<String>,
}

impl Lists {
    /// The patterns of a class.
    pub(super) fn of_mut(&mut self, class: Class) -> &mut Vec<String> {
        match class {
            Class::Keep => &mut self.keep,
            Class::Normal => &mut self.normal,
            Class::Disposable => &mut self.disposable,
        }
    }

    fn of(&self, class: Class) -> &[String] {
        match class {
            Class::Keep => &self.keep,
            Class::Normal => &self.normal,
            Class::Disposable => &self.disposable,
        }
    }

    /// Returns the rules of these lists, highest class first, and an error for each pattern that is
    /// in two lists.
    pub(super) fn rules(&self, given: &[Given]) -> (Vec<Rule>, Vec<ConfigError>) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        let mut before: Vec<(&str, Place)> = Vec::new();
        for class in Class::ALL {
            let place = Place::of(class, given);
            for pattern in self.of(class) {
                let other = before.iter().find(|(known, _)| known == pattern);
                match (other, &place) {
                    (Some((_, other)), place) if other.class != class => {
                        let message = format!(
                            "\"{pattern}\" is in `{class}` and in `{}` ({other}); an app can have \
                             only one class",
                            other.class
                        );
                        errors.push(ConfigError {
                            file: place.file.clone(),
                            line: place.line,
                            message,
                        });
                    }
                    _ => before.push((pattern, place.clone())),
                }
                rules.push(Rule::new(pattern, class, place.to_string()));
            }
        }
        (rules, errors)
    }
}

/// Where a list is set.
#[derive(Debug, Clone)]
struct Place {
    class: Class,
    file: PathBuf,
    line: usize,
}

impl Place {
    fn of(class: Class, given: &[Given]) -> Place {
        let mut given = given.iter().rev();
        let last = given.find(|given| given.section == SECTION && given.key == class.name());
        Place {
            class,
            file: last.map_or_else(PathBuf::new, |given| given.file.clone()),
            line: last.map_or(0, |given| given.line),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// The table of categories: the administrator's if there is one, else the packaged one.
pub(super) fn categories(origin: &Origin) -> Result<Table, Vec<ConfigError>> {
    let configuration = match origin {
        Origin::Default => Path::new(DEFAULT_FILE),
        Origin::File(file) => file,
    };
    let file = configuration.with_file_name(FILE_NAME);
    let at = |line: usize, message: String| ConfigError {
        file: file.clone(),
        line,
        message,
    };
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => PACKAGED.to_owned(),
        Err(error) => {
            return Err(vec![at(
                0,
                format!("cannot read the table of classes: {error}"),
            )])
        }
    };
    parse(&text).map_err(|errors| {
        let errors = errors.into_iter();
        errors.map(|(line, message)| at(line, message)).collect()
    })
}

/// Parses the table: the categories in file order, or the line and message of each mistake.
fn parse(text: &str) -> Result<Table, Vec<(usize, String)>> {
    let table = match DeTable::parse(text) {
        Ok(table) => table.into_inner(),
        Err(error) => {
            let line = line_at(text, error.span().map_or(0, |span| span.start));
            return Err(vec![(line, format!("not TOML: {}", error.message()))]);
        }
    };
    let mut errors = Vec::new();
    let mut found = Vec::new();
    for (section, value) in &table {
        let line = line_at(text, section.span().start);
        let (true, DeValue::Table(lines)) = (section.get_ref() == CATEGORIES, value.get_ref())
        else {
            let section = section.get_ref();
            errors.push((
                line,
                format!("unknown section `{section}`; the only section is [{CATEGORIES}]"),
            ));
            continue;
        };
        for (category, value) in lines {
            let start = category.span().start;
            let line = line_at(text, start);
            let category = category.get_ref();
            let class = match value.get_ref() {
                DeValue::String(word) => word.parse::<Class>().ok(),
                _ => None,
            };
            match class {
                Some(class) => found.push((start, category.to_string(), class)),
                None => errors.push((
                    line,
                    format!(
                        "`{category}` is not a class; allowed: \"keep\", \"normal\", \"disposable\""
                    ),
                )),
            }
        }
    }
    if !errors.is_empty() {
        errors.sort();
        return Err(errors);
    }
    found.sort_by_key(|(start, _, _)| *start);
    let found = found.into_iter();
    Ok(found
        .map(|(_, category, class)| (category, class))
        .collect())
}

/// The classes of the packaged table, without any rules.
pub(super) fn packaged() -> Classes {
    Classes::new(Vec::new(), parse(PACKAGED).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use limelight_core::model::class::Identity;
    use proptest::prelude::*;

    fn class(categories: &str) -> Class {
        let categories = categories.split(';').filter(|name| !name.is_empty());
        let identity = Identity {
            categories: categories.map(str::to_owned).collect(),
            ..Identity::default()
        };
        packaged().of(&identity).class
    }

    /// Categories as in the desktop entries of Debian's packages.
    #[test]
    fn real_apps_have_the_class_that_a_person_expects() {
        for (app, categories, expected) in [
            (
                "libreoffice-writer",
                "Office;WordProcessor;X-Red-Hat-Base;",
                Class::Keep,
            ),
            ("gnucash", "GNOME;GTK;Office;Finance;", Class::Keep),
            (
                "gnome-maps",
                "GNOME;GTK;Utility;Geoscience;Education;Maps;",
                Class::Keep,
            ),
            ("emacs", "Development;TextEditor;", Class::Keep),
            (
                "gimp",
                "Graphics;2DGraphics;RasterGraphics;GTK;",
                Class::Keep,
            ),
            (
                "kdenlive",
                "Qt;KDE;AudioVideo;AudioVideoEditing;Video;Player;",
                Class::Keep,
            ),
            (
                "gnome-terminal",
                "GNOME;GTK;System;TerminalEmulator;",
                Class::Keep,
            ),
            ("orca", "GNOME;GTK;Accessibility;", Class::Keep),
            (
                "evince",
                "GNOME;GTK;Office;Viewer;Graphics;2DGraphics;",
                Class::Normal,
            ),
            ("firefox-esr", "Network;WebBrowser;", Class::Normal),
            (
                "telegram-desktop",
                "Chat;Network;InstantMessaging;Qt;",
                Class::Normal,
            ),
            ("thunderbird", "Network;Email;", Class::Normal),
            (
                "nautilus",
                "GNOME;GTK;Utility;Core;FileManager;",
                Class::Normal,
            ),
            ("0ad", "Game;StrategyGame;", Class::Normal),
            ("liferea", "GNOME;GTK;Network;Feed;News;", Class::Disposable),
            (
                "mpv",
                "AudioVideo;Audio;Video;Player;TV;",
                Class::Disposable,
            ),
            (
                "rhythmbox",
                "GNOME;GTK;AudioVideo;Audio;Player;",
                Class::Disposable,
            ),
            ("nothing said", "", Class::Normal),
            ("a toolkit", "GTK;", Class::Normal),
        ] {
            assert_eq!(class(categories), expected, "{app}");
        }
    }

    #[test]
    fn table_is_read_in_its_order() {
        let text = "# x\n[categories]\nZ = \"keep\"\nA = \"disposable\"\n\"3D\" = \"normal\"\n";
        let table = parse(text).unwrap();
        let names: Vec<&str> = table.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["Z", "A", "3D"]);
    }

    #[test]
    fn errors_name_their_line() {
        let wrong = |text: &str| parse(text).unwrap_err();
        let errors = wrong("[categories]\nGame = \"keep\"\nNews = \"kill\"\nFeed = 3\n[more]\n");
        let lines: Vec<usize> = errors.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [3, 4, 5]);
        assert!(errors[0].1.contains("News") && errors[0].1.contains("disposable"));
        assert_eq!(wrong("[categories]\nGame =\n")[0].0, 2);
        assert_eq!(wrong("categories = 1\n")[0].0, 1);
        assert_eq!(
            wrong("[categories]\nGame = \"keep\"\nGame = \"normal\"\n")[0].0,
            3
        );
    }

    proptest! {
        #[test]
        fn no_table_panics(text in "(\\[categories\\]\n|[A-Za-z]{1,4}|\"| = |keep|\n|.){0,40}") {
            let _ = parse(&text);
        }
    }
}
