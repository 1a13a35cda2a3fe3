// SPDX-License-Identifier: GPL-2.0-or-later
//! Session agents and what they report about themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use limelight_core::model::topmost::Holder;
use limelight_core::rate::Rate;
use limelight_proto::{
    AgentStatus, PassedOver, SourceStatus, AGENT_TEXT_MAX, FACILITIES_MAX, PASSED_OVER_MAX,
};
use limelight_proto::{ErrorCode, Response};
use limelight_sys::peercred::PeerCred;
use tracing::info;

use crate::config::Config;
use crate::control::socket::{ControlSource, RequestLine};
use crate::reconcile::Reconciler;
use crate::sources::sessions::{active_users, Sessions};
use crate::sources::Input;
use crate::system::identify::Refusal;
use crate::system::now;

/// Lines that agents may add to the log at once, and per second.
const LOG_BURST: u64 = 10;
const LOG_PER_SECOND: u64 = 1;

/// Session agents.
#[derive(Debug)]
pub struct Agents {
    /// The agents, by the id of their connection.
    all: BTreeMap<u64, Agent>,
    /// Limits the lines in the log.
    log: Rate,
}

impl Default for Agents {
    fn default() -> Self {
        Agents {
            all: BTreeMap::new(),
            log: Rate::new(LOG_PER_SECOND, LOG_BURST, Duration::ZERO),
        }
    }
}

#[derive(Debug)]
struct Agent {
    peer: PeerCred,
    source: Option<String>,
    detail: String,
    passed_over: Vec<PassedOver>,
    facilities: Vec<SourceStatus>,
}

impl Agents {
    /// Drops the agent of a closed connection.
    pub fn release(&mut self, client: u64) {
        self.all.remove(&client);
    }

    /// Notes what an agent reports about itself. `at_screen`: its user may report the foreground
    /// app. Other users' agents do not appear in the log, which any user could fill with them.
    pub(super) fn note(
        &mut self,
        line: &RequestLine,
        at_screen: bool,
        source: Option<String>,
        detail: String,
        passed_over: Vec<PassedOver>,
        facilities: Vec<SourceStatus>,
    ) -> Result<(), Refusal> {
        let agent = Agent {
            peer: line.peer,
            source,
            detail,
            passed_over,
            facilities,
        };
        if !agent.is_fit() {
            return Err(Refusal::new(
                ErrorCode::BadRequest,
                "an agent's report is too long or not printable",
                format!(
                    "name at most {PASSED_OVER_MAX} sources and {FACILITIES_MAX} facilities, with \
                     {AGENT_TEXT_MAX} printable bytes each"
                ),
            ));
        }
        let known = self.all.get(&line.client);
        let same = known
            .is_some_and(|known| (&known.source, &known.detail) == (&agent.source, &agent.detail));
        if !same && at_screen && self.log.take(1, now()) > 0 {
            info!(
                "the agent of uid {} (pid {}) gets the focus from {}: {}",
                agent.peer.uid,
                agent.peer.pid,
                agent.source.as_deref().unwrap_or("no source"),
                agent.detail
            );
        }
        self.all.insert(line.client, agent);
        Ok(())
    }

    /// Sends the configured options to all agents.
    pub fn tell_all(&self, control: &mut ControlSource, config: &Config) {
        let wishes = wishes(config);
        for client in self.all.keys() {
            control.answer(*client, &wishes, now());
        }
    }

    /// Agents for `status`: all agents whose connection and peer pass the filter `heard`.
    pub(super) fn status(&self, heard: impl Fn(u64, PeerCred) -> bool) -> Vec<AgentStatus> {
        let agents = self.all.iter();
        let agents = agents.filter(|(client, agent)| heard(**client, agent.peer));
        agents
            .map(|(_, agent)| AgentStatus {
                pid: agent.peer.pid,
                uid: agent.peer.uid,
                source: agent.source.clone(),
                detail: agent.detail.clone(),
                passed_over: agent.passed_over.clone(),
                facilities: agent.facilities.clone(),
            })
            .collect()
    }
}

/// The configured options for agents.
pub(super) fn wishes(config: &Config) -> Response {
    Response::Agent {
        own_scopes: config.own_scopes,
    }
}

/// Reads which users have an active session, and passes that to the reconciler.
pub fn look_at_sessions(
    sessions: &mut Sessions,
    control: &ControlSource,
    reconciler: &mut Reconciler,
) {
    sessions.take();
    let active = active_users(&reconciler.system);
    if active.is_none() && reconciler.model.topmost.knows_sessions() {
        reconciler.drop_waiting_claims(|Holder(client)| control.groups_of(client).collect());
    }
    reconciler.take(Input::ActiveUsers(active));
}

impl Agent {
    /// Whether its texts are few, short and printable: they appear in logs and on terminals.
    fn is_fit(&self) -> bool {
        let passed_over = self
            .passed_over
            .iter()
            .flat_map(|one| [&one.name, &one.why]);
        let facilities = self
            .facilities
            .iter()
            .flat_map(|one| [&one.name, &one.detail]);
        let texts = passed_over.chain(facilities).chain(&self.source);
        let mut texts = texts.chain([&self.detail]);
        self.passed_over.len() <= PASSED_OVER_MAX
            && self.facilities.len() <= FACILITIES_MAX
            && texts.all(|text| text.len() <= AGENT_TEXT_MAX && !text.chars().any(char::is_control))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;
    use tracing::Subscriber;
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    /// Counts events.
    struct Count(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for Count {
        fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn agents_add_few_lines_to_the_log() {
        let line = RequestLine {
            client: 1,
            peer: PeerCred {
                pid: 7,
                uid: 1000,
                gid: 1000,
            },
            text: Vec::new(),
        };
        for (at_screen, most) in [(false, 0), (true, LOG_BURST as usize)] {
            let count = Arc::new(AtomicUsize::new(0));
            let subscriber = tracing_subscriber::registry().with(Count(count.clone()));
            let mut agents = Agents::default();
            tracing::subscriber::with_default(subscriber, || {
                for number in 0..1000 {
                    let detail = format!("{number}");
                    let noted = agents.note(&line, at_screen, None, detail, vec![], vec![]);
                    noted.unwrap();
                }
            });
            let count = count.load(Ordering::Relaxed);
            assert!((most..=most + 2).contains(&count), "{at_screen}: {count}");
        }
    }
}
