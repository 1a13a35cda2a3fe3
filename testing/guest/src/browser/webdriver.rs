// SPDX-License-Identifier: GPL-2.0-or-later
//! A WebDriver client (<https://www.w3.org/TR/webdriver/>): the requests that a person's input
//! needs.

use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use minreq::Method;
use serde_json::{json, Value};

/// Key of an element's id in an answer.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// Longest time for an answer. On an emulated machine without memory, a click takes many seconds.
const ANSWER_S: u64 = 120;

/// A session with a browser.
pub struct Session {
    base: String,
}

impl Session {
    /// Waits until the driver at `address` answers, and attaches it to the browser whose debugger
    /// listens at `debugger`.
    pub fn attach(address: &str, debugger: &str, limit: Duration) -> Result<Session> {
        let options = json!({ "debuggerAddress": debugger });
        let body = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
        let deadline = Instant::now() + limit;
        let opened = loop {
            match request(Method::Post, &format!("{address}/session"), &body) {
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(500)),
                opened => break opened?,
            }
        };
        let id = opened["sessionId"].as_str().context("no session ID")?;
        Ok(Session {
            base: format!("{address}/session/{id}"),
        })
    }

    /// Loads a page in the present tab.
    pub fn load(&self, url: &str) -> Result<()> {
        self.post("url", &json!({ "url": url })).map(drop)
    }

    /// The handle of the present tab.
    pub fn tab(&self) -> Result<String> {
        let tab = request(Method::Get, &format!("{}/window", self.base), &Value::Null)?;
        Ok(tab.as_str().context("no handle")?.to_owned())
    }

    /// Opens a tab and switches to it.
    pub fn open_tab(&self) -> Result<()> {
        let tab = self.post("window/new", &json!({ "type": "tab" }))?;
        self.switch_to(tab["handle"].as_str().context("no handle")?)
    }

    /// Brings a tab to the front.
    pub fn switch_to(&self, tab: &str) -> Result<()> {
        self.post("window", &json!({ "handle": tab })).map(drop)
    }

    /// Runs a script in the page and returns its result.
    pub fn run(&self, script: &str) -> Result<Value> {
        self.post("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The element that a CSS selector finds.
    pub fn find(&self, selector: &str) -> Result<String> {
        let by = json!({ "using": "css selector", "value": selector });
        let found = self.post("element", &by)?;
        let id = found[ELEMENT].as_str().context("no element ID")?;
        Ok(id.to_owned())
    }

    /// Clicks on an element.
    pub fn click(&self, element: &str) -> Result<()> {
        self.post(&format!("element/{element}/click"), &json!({}))
            .map(drop)
    }

    /// Types into an element.
    pub fn type_into(&self, element: &str, text: &str) -> Result<()> {
        let path = format!("element/{element}/value");
        self.post(&path, &json!({ "text": text })).map(drop)
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value> {
        request(Method::Post, &format!("{}/{path}", self.base), body)
    }
}

/// Sends a request; returns the `value` of the answer.
fn request(method: Method, url: &str, body: &Value) -> Result<Value> {
    let mut request = minreq::Request::new(method, url).with_timeout(ANSWER_S);
    if !body.is_null() {
        request = request.with_json(body)?;
    }
    let answer = request
        .send()
        .with_context(|| format!("no answer from {url}"))?;
    let mut value: Value = answer
        .json()
        .with_context(|| format!("{url} answers no JSON"))?;
    let value = value["value"].take();
    if answer.status_code != 200 {
        bail!("{url}: {}: {}", value["error"], value["message"]);
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// A session with a driver that gives one answer.
    fn answering(status: &str, body: &str) -> Session {
        let driver = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}/session/7", driver.local_addr().unwrap());
        let length = body.len();
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
        std::thread::spawn(move || {
            let (mut stream, _) = driver.accept().unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        Session { base }
    }

    #[test]
    fn result_of_a_script_is_its_value() {
        let session = answering("200 OK", r#"{"value": 24}"#);
        assert_eq!(session.run("return 24").unwrap(), 24);
    }

    #[test]
    fn refusal_names_the_request_and_the_reason() {
        let body = r#"{"value": {"error": "no such element", "message": "gone"}}"#;
        let error = answering("404 Not Found", body).find("#x").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("/element") && text.contains("gone"), "{text}");
    }
}
