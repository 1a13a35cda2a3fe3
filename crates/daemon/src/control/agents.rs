// SPDX-License-Identifier: GPL-2.0-or-later
//! Session agents and what they report about themselves.

use std::collections::BTreeMap;

use limelight_core::model::topmost::Holder;
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

/// Session agents, by the id of their connection.
#[derive(Debug, Default)]
pub struct Agents(BTreeMap<u64, Agent>);

#[derive(Debug, PartialEq, Eq)]
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
        self.0.remove(&client);
    }

    /// Notes what an agent reports about itself.
    pub(super) fn note(
        &mut self,
        line: &RequestLine,
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
        let known = self.0.get(&line.client);
        if known
            .is_none_or(|known| (&known.source, &known.detail) != (&agent.source, &agent.detail))
        {
            info!(
                "the agent of uid {} (pid {}) gets the focus from {}: {}",
                agent.peer.uid,
                agent.peer.pid,
                agent.source.as_deref().unwrap_or("no source"),
                agent.detail
            );
        }
        self.0.insert(line.client, agent);
        Ok(())
    }

    /// Sends the configured options to all agents.
    pub fn tell_all(&self, control: &mut ControlSource, config: &Config) {
        let wishes = wishes(config);
        for client in self.0.keys() {
            control.answer(*client, &wishes, now());
        }
    }

    /// Agents for `status`: all agents whose connection and peer pass the filter `heard`.
    pub(super) fn status(&self, heard: impl Fn(u64, PeerCred) -> bool) -> Vec<AgentStatus> {
        let agents = self.0.iter();
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
