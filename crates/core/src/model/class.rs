// SPDX-License-Identifier: GPL-2.0-or-later
//! Classes of apps (SWAP): which apps are never killed, and which are killed first.
//!
//! Three sources are tried in this order: the administrator's rules, the categories in the app's
//! desktop entry or AppStream data, and the default. An app may request a lower class for itself,
//! but a rule overrides the request.

pub use limelight_proto::Class;

use super::pattern::Pattern;

/// The properties of an app that decide its class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// Desktop id without `.desktop` (`org.mozilla.firefox`).
    pub desktop_id: Option<String>,
    /// Path of the program.
    pub executable: Option<String>,
    /// Path of its cgroup below the mount point.
    pub cgroup: Option<String>,
    /// Name of its Android package, without the part after a colon.
    pub package: Option<String>,
    /// Categories of its desktop entry and its AppStream data.
    pub categories: Vec<String>,
    /// The class that the app requests, and where it does so (`LIMELIGHT_CLASS`,
    /// `user.limelight.class`).
    pub asks: Option<(Class, String)>,
}

impl Identity {
    /// Each known name, with its kind.
    pub fn names(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let names = [
            ("app id", &self.desktop_id),
            ("program", &self.executable),
            ("cgroup", &self.cgroup),
            ("package", &self.package),
        ];
        names
            .into_iter()
            .filter_map(|(kind, name)| Some((kind, name.as_deref()?)))
    }
}

/// A rule that gives a class to the apps that match a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pattern: Pattern,
    class: Class,
}

impl Rule {
    /// A rule that gives `class` to an app if the pattern matches. `origin`: file and line of the
    /// rule, for display.
    pub fn new(pattern: &str, class: Class, origin: impl Into<String>) -> Rule {
        Rule {
            pattern: Pattern::new(pattern, origin),
            class,
        }
    }
}

/// A class and the reason for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reasoned {
    /// The class.
    pub class: Class,
    /// The reason, as a clause for display.
    pub why: String,
}

/// All sources of classes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Classes {
    /// Highest precedence first.
    rules: Vec<Rule>,
    /// Table of categories and their classes. The first entry that matches a category of the app
    /// decides.
    categories: Vec<(String, Class)>,
}

impl Classes {
    /// Takes the rules, highest precedence first, and the table of categories and classes.
    pub fn new(rules: Vec<Rule>, categories: Vec<(String, Class)>) -> Classes {
        Classes { rules, categories }
    }

    /// The class of an app.
    pub fn of(&self, identity: &Identity) -> Reasoned {
        if let Some(reasoned) = self.by_rule(identity) {
            return reasoned;
        }
        let given = self.by_category(identity).unwrap_or(Reasoned {
            class: Class::default(),
            why: "no rule applies".to_owned(),
        });
        match &identity.asks {
            Some((asked, how)) if *asked < given.class => Reasoned {
                class: *asked,
                why: format!(
                    "requested by the app itself ({how}); otherwise {}: {}",
                    given.class, given.why
                ),
            },
            Some((asked, how)) if *asked > given.class => Reasoned {
                why: format!(
                    "{}; it asks for {asked} ({how}), but an app may only lower its class",
                    given.why
                ),
                ..given
            },
            _ => given,
        }
    }

    fn by_rule(&self, identity: &Identity) -> Option<Reasoned> {
        self.rules.iter().find_map(|rule| {
            Some(Reasoned {
                class: rule.class,
                why: rule.pattern.matches(identity)?,
            })
        })
    }

    fn by_category(&self, identity: &Identity) -> Option<Reasoned> {
        self.categories.iter().find_map(|(category, class)| {
            let has = |own: &String| own.eq_ignore_ascii_case(category);
            identity.categories.iter().any(has).then(|| Reasoned {
                class: *class,
                why: format!("it is of the category {category}"),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn firefox() -> Identity {
        Identity {
            desktop_id: Some("org.mozilla.firefox".to_owned()),
            executable: Some("/usr/lib/firefox/firefox".to_owned()),
            cgroup: Some("/user.slice/app-org.mozilla.firefox-1.scope".to_owned()),
            categories: vec!["Network".to_owned(), "WebBrowser".to_owned()],
            ..Identity::default()
        }
    }

    fn table() -> Vec<(String, Class)> {
        vec![
            ("Office".to_owned(), Class::Keep),
            ("WebBrowser".to_owned(), Class::Normal),
            ("Network".to_owned(), Class::Disposable),
        ]
    }

    #[test]
    fn first_category_of_the_table_decides() {
        let classes = Classes::new(Vec::new(), table());
        let seen = classes.of(&firefox());
        assert_eq!(seen.class, Class::Normal);
        assert_eq!(seen.why, "it is of the category WebBrowser");
        assert_eq!(classes.of(&Identity::default()).class, Class::Normal);
    }

    #[test]
    fn rule_ranks_above_categories_and_requests() {
        let mut app = firefox();
        app.asks = Some((Class::Disposable, "LIMELIGHT_CLASS".to_owned()));
        for pattern in [
            "org.mozilla.*",
            "/usr/lib/*/firefox",
            "*app-org.mozilla.firefox-?.scope",
        ] {
            let rule = Rule::new(pattern, Class::Keep, "limelight.toml:3");
            let seen = Classes::new(vec![rule], table()).of(&app);
            assert_eq!(seen.class, Class::Keep, "{pattern}");
            assert!(seen.why.contains(pattern) && seen.why.contains("limelight.toml:3"));
        }
        let other = Rule::new("org.gnome.*", Class::Keep, "x");
        assert_eq!(
            Classes::new(vec![other], table()).of(&app).class,
            Class::Disposable
        );
    }

    #[test]
    fn first_matching_rule_wins() {
        let rules = vec![
            Rule::new("org.mozilla.firefox", Class::Disposable, "a"),
            Rule::new("org.mozilla.*", Class::Keep, "b"),
        ];
        assert_eq!(
            Classes::new(rules, table()).of(&firefox()).class,
            Class::Disposable
        );
    }

    proptest! {
        #[test]
        fn request_never_raises_the_class(
            categories in proptest::collection::vec("(Office|WebBrowser|Network|Other)", 0..3),
            asks in 0usize..3,
        ) {
            let classes = Classes::new(Vec::new(), table());
            let silent = Identity { categories, ..Identity::default() };
            let asking = Identity {
                asks: Some((Class::ALL[asks], "x".to_owned())),
                ..silent.clone()
            };
            prop_assert!(classes.of(&asking).class <= classes.of(&silent).class);
        }

        #[test]
        fn no_pattern_panics(pattern in ".*", name in ".*") {
            let rule = Rule::new(&pattern, Class::Keep, "x");
            let app = Identity { executable: Some(name), ..Identity::default() };
            Classes::new(vec![rule], Vec::new()).of(&app);
        }
    }
}
