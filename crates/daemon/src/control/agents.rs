// SPDX-License-Identifier: GPL-2.0-or-later
//! Session agents and what they report about themselves.

use std::collections::BTreeMap;

use limelight_core::model::topmost::Holder;
use limelight_proto::{AgentStatus, PassedOver, AGENT_TEXT_MAX, PASSED_OVER_MAX};
use limelight_proto::{ErrorCode, Response};
use limelight_sys::peercred::PeerCred;
use tracing::info;

use crate::control::socket::RequestLine;
use crate::event_loop::Daemon;
use crate::sources::sessions::active_users;
use crate::system::access::Speaker;
use crate::system::authorization;
use crate::system::identify::Refusal;
use crate::system::now;

/// Agents by connection.
#[derive(Debug, Default)]
pub struct Agents(BTreeMap<u64, Agent>);

#[derive(Debug, PartialEq, Eq)]
struct Agent {
    peer: PeerCred,
    source: Option<String>,
    detail: String,
    passed_over: Vec<PassedOver>,
}

impl Agents {
    /// Drops the agent of a closed connection.
    pub fn release(&mut self, client: u64) {
        self.0.remove(&client);
    }
}

impl Daemon {
    /// Answer to `agent`.
    pub(crate) fn agent(
        &mut self,
        line: &RequestLine,
        source: Option<String>,
        detail: String,
        passed_over: Vec<PassedOver>,
    ) -> Result<Response, Refusal> {
        if !are_fit(source.as_deref(), &detail, &passed_over) {
            return Err(Refusal::new(
                ErrorCode::BadRequest,
                "an agent's words are too many, too long, or not printable",
                format!(
                    "name at most {PASSED_OVER_MAX} sources, with {AGENT_TEXT_MAX} printable bytes each"
                ),
            ));
        }
        let agent = Agent {
            peer: line.peer,
            source,
            detail,
            passed_over,
        };
        if self.agents.0.get(&line.client) != Some(&agent) {
            info!(
                "the agent of uid {} (pid {}) has the focus from {}: {}",
                agent.peer.uid,
                agent.peer.pid,
                agent.source.as_deref().unwrap_or("no source"),
                agent.detail
            );
        }
        self.agents.0.insert(line.client, agent);
        self.control.set_holding(line.client);
        Ok(self.wishes())
    }

    fn wishes(&self) -> Response {
        Response::Agent {
            own_scopes: self.config.own_scopes,
        }
    }

    /// Sends the configured options to all agents.
    pub(crate) fn tell_agents(&mut self) {
        let wishes = self.wishes();
        for client in self.agents.0.keys() {
            self.control.answer(*client, &wishes, now());
        }
    }

    /// Reads which users have an active session.
    pub(crate) fn look_at_sessions(&mut self) {
        self.sessions.take();
        let active = active_users(&self.system);
        if active.is_none() && self.topmost.knows_sessions() {
            self.drop_waiting_claims();
        }
        let shift = self.topmost.set_active_users(active, now());
        self.after(shift);
    }

    /// Drops claims of users without an active session after the last session at a seat has ended.
    /// Otherwise they would count because no session is known.
    fn drop_waiting_claims(&mut self) {
        let mut claimants = self.topmost.claimants();
        claimants.retain(|&(holder, uid)| {
            let groups = holder.map(|Holder(client)| self.control.groups_of(client));
            let member = groups.is_some_and(|groups| self.access.includes(groups));
            let speaker = Speaker { uid, member };
            authorization::may_speak(&self.system, &self.access, speaker).is_err()
        });
        let shift = self.topmost.drop_claims(&claimants, now());
        self.after(shift);
    }

    /// Agents for `status`: only those whose claims would be accepted now.
    pub(crate) fn agents_status(&self) -> Vec<AgentStatus> {
        let heard = |(client, agent): &(&u64, &Agent)| {
            let speaker = self.speaker(**client, agent.peer);
            authorization::may_speak(&self.system, &self.access, speaker).is_ok()
        };
        let agents = self.agents.0.iter().filter(heard);
        agents
            .map(|(_, agent)| AgentStatus {
                pid: agent.peer.pid,
                uid: agent.peer.uid,
                source: agent.source.clone(),
                detail: agent.detail.clone(),
                passed_over: agent.passed_over.clone(),
            })
            .collect()
    }
}

/// Whether these texts are few, short and printable: they appear in logs and on terminals.
fn are_fit(source: Option<&str>, detail: &str, passed_over: &[PassedOver]) -> bool {
    let texts = passed_over.iter().flat_map(|one| [&one.name, &one.why]);
    let mut texts = texts.map(String::as_str).chain(source).chain([detail]);
    passed_over.len() <= PASSED_OVER_MAX
        && texts.all(|text| text.len() <= AGENT_TEXT_MAX && !text.chars().any(char::is_control))
}
