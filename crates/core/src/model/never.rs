// SPDX-License-Identifier: GPL-2.0-or-later
//! Exceptions for single apps: apps that are never boosted, protected or closed (`[never]`), and
//! apps that are closed last of their class.
//!
//! There are two kinds of rules. The administrator's rules apply to every user's apps. A user's
//! rules apply to the apps of that user only. They give up an advantage (`boost`, `protect`), or
//! they spare the user's own app (`close`) as long as no other user has an app that would be closed
//! instead ([`crate::policy::swap::order::spared`]).

pub use limelight_proto::{Avoid, Exception, Never};

use super::class::Identity;
use super::pattern::Pattern;

/// The exceptions of one app, at most one for each [`Never`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exceptions(Vec<Exception>);

impl Exceptions {
    /// The exception of this kind, if there is one.
    pub fn of(&self, never: Never) -> Option<&Exception> {
        self.0.iter().find(|exception| exception.never == never)
    }

    /// These exceptions, and those of `others` of the remaining kinds. An exception of the
    /// administrator replaces one of the owner.
    #[must_use]
    pub fn or(mut self, others: Exceptions) -> Exceptions {
        for other in others.0 {
            match self.0.iter_mut().find(|own| own.never == other.never) {
                Some(own) if own.by_owner && !other.by_owner => *own = other,
                Some(_) => {}
                None => self.0.push(other),
            }
        }
        self.0.sort_by_key(|exception| exception.never);
        self
    }

    /// All exceptions, in the order of [`Never::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = &Exception> {
        self.0.iter()
    }
}

impl FromIterator<Exception> for Exceptions {
    fn from_iter<T: IntoIterator<Item = Exception>>(all: T) -> Exceptions {
        Exceptions::default().or(Exceptions(all.into_iter().collect()))
    }
}

/// Rules that make exceptions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules(Vec<(Never, Pattern)>);

impl Rules {
    /// Adds a rule: what never happens to apps that match the pattern.
    pub fn add(&mut self, never: Never, pattern: Pattern) {
        self.0.push((never, pattern));
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The exceptions of an app. `by_owner`: these are the rules of its owner.
    pub fn of(&self, identity: &Identity, by_owner: bool) -> Exceptions {
        let of = |never: Never| {
            let mut rules = self.0.iter().filter(|(what, _)| *what == never);
            let why = rules.find_map(|(_, pattern)| pattern.matches(identity))?;
            Some(Exception {
                never,
                why,
                by_owner,
            })
        };
        Never::ALL.into_iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            desktop_id: Some("org.x.Game".to_owned()),
            executable: Some("/usr/bin/game".to_owned()),
            cgroup: Some("/user.slice/app-org.x.Game-1.scope".to_owned()),
            ..Identity::default()
        }
    }

    fn rules(all: &[(Never, &str, &str)]) -> Rules {
        let mut rules = Rules::default();
        for (never, pattern, origin) in all {
            rules.add(*never, Pattern::new(pattern, *origin));
        }
        rules
    }

    #[test]
    fn each_name_of_an_app_matches_and_the_first_rule_is_named() {
        for pattern in ["org.x.*", "/usr/bin/game", "*/app-org.x.Game-*.scope"] {
            let rules = rules(&[
                (Never::Boost, "other", "f:1"),
                (Never::Boost, pattern, "f:2"),
                (Never::Boost, "*", "f:3"),
            ]);
            let found = rules.of(&identity(), false);
            let boost = found.of(Never::Boost).unwrap();
            assert!(boost.why.contains(pattern) && boost.why.contains("f:2"));
            assert_eq!(found.of(Never::Close), None);
        }
        assert_eq!(Rules::default().of(&identity(), true).iter().count(), 0);
    }

    #[test]
    fn rule_of_the_system_is_named_before_the_owner_s() {
        let system = rules(&[(Never::Close, "*", "system:1")]).of(&identity(), false);
        let owner = rules(&[(Never::Boost, "*", "user:1"), (Never::Close, "*", "user:2")]);
        let all = system.or(owner.of(&identity(), true));
        let kinds: Vec<(Never, bool)> = all.iter().map(|one| (one.never, one.by_owner)).collect();
        assert_eq!(kinds, [(Never::Boost, true), (Never::Close, false)]);
        let late = rules(&[(Never::Boost, "*", "system:2")]).of(&identity(), false);
        let all = all.or(late);
        assert!(!all.of(Never::Boost).unwrap().by_owner, "{all:?}");
    }
}
