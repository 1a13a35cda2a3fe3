// SPDX-License-Identifier: GPL-2.0-or-later
//! Who calls, as the bus reports it, and how many calls one user may have in progress.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use zbus::fdo::{self, DBusProxy};
use zbus::message::Header;
use zbus::names::{BusName, UniqueName};
use zbus::Connection;

/// Maximum number of calls in progress: of one user other than root, and of all users.
const CALLS_PER_USER: usize = 8;
const CALLS_MAX: usize = 64;

/// The process that calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Its connection to the bus.
    pub name: UniqueName<'static>,
    /// Its user.
    pub uid: u32,
    /// All its groups. Empty if the bus does not know them: the caller then has no rights as a
    /// member of a group.
    pub groups: Vec<u32>,
}

impl Caller {
    /// Asks the bus who sent a message.
    pub async fn of(header: &Header<'_>, bus: &Connection) -> fdo::Result<Caller> {
        let sender = header.sender();
        let sender = sender.ok_or_else(|| fdo::Error::Failed("no sender".to_owned()))?;
        let name = sender.to_owned();
        let calls = DBusProxy::new(bus).await?;
        let known = calls
            .get_connection_credentials(BusName::Unique(name.clone()))
            .await?;
        let uid = known.unix_user_id();
        Ok(Caller {
            name,
            uid: uid.ok_or_else(|| fdo::Error::AccessDenied("the user is unknown".to_owned()))?,
            groups: known.unix_group_ids().cloned().unwrap_or_default(),
        })
    }
}

/// The calls in progress.
#[derive(Debug, Clone, Default)]
pub struct Calls(Arc<Mutex<BTreeMap<u32, usize>>>);

/// One call in progress, until it is dropped.
#[derive(Debug)]
pub struct Call {
    calls: Calls,
    uid: u32,
}

impl Calls {
    /// Counts a call of this user. Refuses it if too many are in progress.
    pub fn begin(&self, uid: u32) -> fdo::Result<Call> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total: usize = all.values().sum();
        let own = all.entry(uid).or_default();
        if uid != 0 && (*own >= CALLS_PER_USER || total >= CALLS_MAX) {
            let message = format!("uid {uid} has too many calls in progress");
            return Err(fdo::Error::LimitsExceeded(message));
        }
        *own += 1;
        drop(all);
        Ok(Call {
            calls: self.clone(),
            uid,
        })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let all = self.calls.0.lock();
        let mut all = all.unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.uid) {
            *count = count.saturating_sub(1);
        }
        all.retain(|_, count| *count > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_in_progress_are_limited_for_each_user() {
        let calls = Calls::default();
        let mut held: Vec<Call> = (0..8).map(|_| calls.begin(1000).unwrap()).collect();
        assert!(calls.begin(1000).is_err());
        assert!(calls.begin(1001).is_ok() && calls.begin(0).is_ok());
        held.pop();
        assert!(calls.begin(1000).is_ok());
        drop(held);
        assert!(calls.0.lock().unwrap().is_empty());
        let _all: Vec<Call> = (0..64).map(|user| calls.begin(user).unwrap()).collect();
        assert!(calls.begin(2000).is_err() && calls.begin(0).is_ok());
    }
}
