//! JSON requests and watches without a typed client, so that a test sees every field and code.

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;

use super::exchange;

/// One request with a JSON body, of `content_type` where that matters; the code and the JSON answer.
pub(crate) async fn call(
    client: &kube::Client,
    (method, path): (&str, &str),
    content_type: &str,
    body: Option<&Value>,
) -> Result<(u16, Value), String> {
    let bytes = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(bytes)
        .expect("a legal request");
    let (code, text) = exchange(client, request).await?;
    let value = serde_json::from_str(&text)
        .map_err(|error| format!("{method} {path}: {code}, not JSON ({error}): {text}"))?;
    Ok((code, value))
}

/// The resourceVersion of an object or a list, as a number.
#[track_caller]
pub(crate) fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("no resourceVersion in {object}"))
}

/// Why a watch gives no more events.
#[derive(Debug)]
#[expect(
    dead_code,
    reason = "some parts are only shown, in the message of a failed test"
)]
pub(crate) enum WatchEnd {
    /// The server answered the request with this code and body.
    Refused(u16, String),
    /// The connection failed or was closed.
    Closed(String),
}

impl WatchEnd {
    fn closed(error: impl std::fmt::Display) -> Self {
        Self::Closed(error.to_string())
    }
}

/// An open watch, read event by event.
pub(crate) struct JsonWatch {
    body: Body,
    unread: Vec<u8>,
}

impl JsonWatch {
    /// Starts a watch; `path` carries `watch=true` and the rest of the query.
    pub(crate) async fn open(client: &kube::Client, path: &str) -> Result<Self, WatchEnd> {
        let request = Request::get(path)
            .body(Body::empty())
            .expect("a legal request");
        let response = client.send(request).await.map_err(WatchEnd::closed)?;
        let status = response.status();
        let body = response.into_body();
        if status.is_success() {
            return Ok(Self {
                body,
                unread: Vec::new(),
            });
        }
        let answer = body.collect().await.map_err(WatchEnd::closed)?.to_bytes();
        let text = String::from_utf8_lossy(&answer).into_owned();
        Err(WatchEnd::Refused(status.as_u16(), text))
    }

    /// The next event; an error when the watch has ended, however it did.
    pub(crate) async fn next(&mut self) -> Result<Value, WatchEnd> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return serde_json::from_slice(&line).map_err(WatchEnd::closed);
            }
            let end = || WatchEnd::closed("the answer is complete");
            let frame = self.body.frame().await.ok_or_else(end)?;
            let frame = frame.map_err(WatchEnd::closed)?;
            self.unread
                .extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
    }
}
