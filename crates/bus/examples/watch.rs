// SPDX-License-Identifier: GPL-2.0-or-later
//! Prints the foreground app whenever it changes, and each app that limelightd closes, in thirty
//! lines: docs/integrator/dbus.md.

use std::collections::HashMap;

use zbus::blocking::{Connection, MessageIterator, Proxy};
use zbus::zvariant::OwnedValue;

const NAME: &str = "org.limelight.Limelight1";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bus = Connection::system()?;
    let messages = MessageIterator::from(&bus);
    // The signals go to subscribers only: what they say depends on the user.
    Proxy::new(&bus, NAME, "/org/limelight/Limelight1", NAME)?.call_method("Subscribe", &())?;
    for message in messages {
        let message = message?;
        let (header, body) = (message.header(), message.body());
        match header.member().map(|member| member.as_str()) {
            Some("ForegroundChanged") => {
                let app: HashMap<String, OwnedValue> = body.deserialize()?;
                println!("foreground: {:?}", app.get("Name"));
            }
            Some("AppClosed") => {
                let (app, why): (HashMap<String, OwnedValue>, String) = body.deserialize()?;
                println!("closed: {:?}: {why}", app.get("Name"));
            }
            _ => {}
        }
    }
    Ok(())
}
