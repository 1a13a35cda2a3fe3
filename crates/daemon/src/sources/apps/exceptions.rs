// SPDX-License-Identifier: GPL-2.0-or-later
//! The rules that make exceptions for apps: the administrator's, and those of each user.

use std::collections::BTreeMap;

use limelight_core::model::class::Identity;
use limelight_core::model::never::{Exceptions, Rules};

/// All rules in force.
#[derive(Debug, Default)]
pub(super) struct AllRules {
    system: Rules,
    /// The rules of users, with the user's id, by the connection that sent them.
    users: BTreeMap<u64, (u32, Rules)>,
}

impl AllRules {
    /// Replaces the administrator's rules.
    pub fn set_system(&mut self, rules: Rules) {
        self.system = rules;
    }

    /// Replaces the rules that a connection has sent for its user. Returns whether they differ.
    pub fn set_user(&mut self, client: u64, uid: u32, rules: Rules) -> bool {
        if rules.is_empty() {
            return self.users.remove(&client).is_some();
        }
        let before = self.users.insert(client, (uid, rules));
        before.as_ref() != self.users.get(&client)
    }

    /// Drops the rules that a closed connection has sent. Returns whether there were any.
    pub fn release(&mut self, client: u64) -> bool {
        self.users.remove(&client).is_some()
    }

    /// Whether there is no rule at all.
    pub fn is_empty(&self) -> bool {
        self.system.is_empty() && self.users.is_empty()
    }

    /// The exceptions of an app of this user. If several connections have sent rules for the user,
    /// those of the latest connection apply.
    pub fn of(&self, identity: &Identity, uid: u32) -> Exceptions {
        let system = self.system.of(identity, false);
        let mut own = self.users.values().rev();
        match own.find(|(owner, _)| *owner == uid) {
            Some((_, rules)) => system.or(rules.of(identity, true)),
            None => system,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limelight_core::model::never::Never;
    use limelight_core::model::pattern::Pattern;

    fn rules(never: Never) -> Rules {
        let mut rules = Rules::default();
        rules.add(never, Pattern::new("*", "f:1"));
        rules
    }

    #[test]
    fn rules_of_a_user_apply_to_no_other_user_and_end_with_their_connection() {
        let mut all = AllRules::default();
        let identity = Identity {
            executable: Some("/usr/bin/x".to_owned()),
            ..Identity::default()
        };
        assert!(all.is_empty());
        assert!(all.set_user(7, 1000, rules(Never::Boost)));
        assert!(
            !all.set_user(7, 1000, rules(Never::Boost)),
            "the same again"
        );
        let never = |all: &AllRules, uid| {
            let found = all.of(&identity, uid);
            found
                .iter()
                .map(|one| (one.never, one.by_owner))
                .collect::<Vec<_>>()
        };
        assert_eq!(never(&all, 1000), [(Never::Boost, true)]);
        assert_eq!(never(&all, 1001), []);
        // A later connection of the same user replaces them while it lasts.
        assert!(all.set_user(9, 1000, rules(Never::Protect)));
        assert_eq!(never(&all, 1000), [(Never::Protect, true)]);
        assert!(all.release(9) && !all.release(8));
        assert_eq!(never(&all, 1000), [(Never::Boost, true)]);
        assert!(all.set_user(7, 1000, Rules::default()));
        assert!(all.is_empty());
        all.set_system(rules(Never::Close));
        assert_eq!(never(&all, 1001), [(Never::Close, false)]);
    }
}
