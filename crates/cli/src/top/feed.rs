// SPDX-License-Identifier: GPL-2.0-or-later
//! Data of `top`, requested from the daemon over one connection.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use limelight_proto::{
    AppLatency, AppReport, HistoryEntry, LatencyReport, Request, Response, Status,
};
use limelight_sys::clock;
use serde::Serialize;

use crate::client::Client;
use crate::counters;
use crate::exit::Failure;

/// Number of history entries to request; no screen shows more.
const HISTORY_ENTRIES: u16 = 64;

/// The data of one refresh.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Picture {
    /// The daemon's state.
    pub status: Status,
    /// All apps.
    pub apps: Vec<AppReport>,
    /// Response times of apps.
    pub latency: LatencyReport,
    /// Past actions, oldest first.
    pub history: Vec<HistoryEntry>,
    /// The kernel's counters.
    pub counters: BTreeMap<String, u64>,
    /// Time of the data, since boot.
    #[serde(skip)]
    pub at: Duration,
    /// Time of the data, since 1970.
    #[serde(skip)]
    pub wall: Duration,
}

impl Picture {
    /// Response times of one app.
    pub fn answers(&self, name: &str) -> Option<&AppLatency> {
        self.latency.apps.iter().find(|app| app.name == name)
    }
}

/// A connection that reconnects after an error.
#[derive(Debug)]
pub struct Feed {
    socket: PathBuf,
    patience: Duration,
    client: Option<Client>,
}

impl Feed {
    /// Starts without a connection.
    pub fn new(socket: PathBuf, patience: Duration) -> Feed {
        Feed {
            socket,
            patience,
            client: None,
        }
    }

    /// Sends a request; a refusal is a failure.
    pub fn ask(&mut self, request: &Request) -> Result<Response, Failure> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(&self.socket, self.patience)?,
        };
        let answer = client.ask(request)?;
        self.client = Some(client);
        match answer {
            Response::Error { .. } => Err(Failure::unexpected(&answer)),
            answer => Ok(answer),
        }
    }

    /// Requests all data.
    pub fn picture(&mut self) -> Result<Picture, Failure> {
        let Response::Status(status) = self.ask(&Request::Status)? else {
            return Err(Failure::another_version());
        };
        let Response::Apps { apps, .. } = self.ask(&Request::Apps { pid: None })? else {
            return Err(Failure::another_version());
        };
        let Response::Latency(latency) = self.ask(&Request::Latency { app: None })? else {
            return Err(Failure::another_version());
        };
        let Response::History { entries, .. } = self.ask(&Request::History {
            last: HISTORY_ENTRIES,
        })?
        else {
            return Err(Failure::another_version());
        };
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Ok(Picture {
            status: *status,
            apps,
            latency,
            history: entries,
            counters: counters::kernel(),
            at: clock::boottime(),
            wall: wall.unwrap_or_default(),
        })
    }
}
