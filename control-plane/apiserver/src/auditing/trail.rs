//! What is recorded of one request, from its receipt to the end of its answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use access::{Decision as Verdict, User};
use audit::event::without_managers;
use audit::{Decision, Event, Level, NotKept, Stage};
use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, Method, Response};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{Auditor, recorded};
use crate::call::Call;
use crate::connection::response_body::{Body, UntilClosed};
use crate::reading::negotiate::{self, Format};
use crate::status::ApiError;

/// Requests that take longer say where their time went.
const SLOW: Duration = Duration::from_millis(500);

/// The trail of one request.
#[derive(Debug)]
pub(crate) struct Trail {
    auditor: Arc<Auditor>,
    decision: Decision,
    event: Mutex<Event>,
    /// Whether its answer begins long before it ends.
    lasts: bool,
}

/// As much of an object as says which it is.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    metadata: Name,
}

#[derive(Debug, Default, Deserialize, serde::Serialize)]
#[serde(default, rename_all = "camelCase")]
struct Name {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
}

impl Trail {
    pub(super) fn new(
        auditor: Arc<Auditor>,
        decision: Decision,
        event: Event,
        lasts: bool,
    ) -> Trail {
        Trail {
            auditor,
            decision,
            event: Mutex::new(event),
            lasts,
        }
    }

    fn event(&self) -> MutexGuard<'_, Event> {
        self.event.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a record of a stage, if one is wanted.
    pub(super) fn reach(&self, stage: Stage) -> Result<(), NotKept> {
        if !self.decision.wants(stage) {
            return Ok(());
        }
        let mut event = self.event();
        event.stage = stage;
        if stage != Stage::RequestReceived {
            event.stage_timestamp = Timestamp::now();
        }
        let record = event.clone();
        drop(event);
        self.auditor.backends.keep(record)
    }

    /// Says something about the request; what was said first under a key stays.
    pub(crate) fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        let mut event = self.event();
        event.annotations.entry(key.into()).or_insert(value.into());
    }

    /// Whether objects are recorded.
    pub(crate) fn wants_objects(&self) -> bool {
        self.decision.level >= Level::Request
    }

    /// Somebody speaks for another.
    pub(crate) fn impersonates(&self, user: &User) {
        self.event().impersonated_user = Some(recorded(user));
    }

    /// What authorization said.
    pub(crate) fn authorized(&self, verdict: &Verdict) {
        let (decision, reason) = match verdict {
            Verdict::Allow(reason) => ("allow", reason),
            Verdict::Deny(reason) | Verdict::NoOpinion(reason) => ("forbid", reason),
        };
        self.annotate("authorization.k8s.io/decision", decision);
        self.annotate("authorization.k8s.io/reason", reason.as_str());
    }

    /// What was sent.
    pub(crate) fn sent(&self, call: &Call) {
        if call.body.is_empty() {
            return;
        }
        let names = matches!(call.method, Method::POST | Method::PUT);
        if !self.wants_objects() {
            // Which object a write is about is all that is wanted of it.
            if names && let Some(object) = named(call) {
                self.refer(&object);
            }
            return;
        }
        let Some(object) = read(&call.headers, &call.body) else {
            return;
        };
        if names {
            self.refer(&object);
        }
        self.event().request_object = Some(self.shown(object));
    }

    fn refer(&self, object: &Value) {
        if let Some(reference) = &mut self.event().object_ref {
            reference.fill(object);
        }
    }

    fn shown(&self, object: Value) -> Value {
        match self.decision.omit_managed_fields {
            true => without_managers(object),
            false => object,
        }
    }

    /// The server has a bug.
    pub(crate) fn panicked(&self) {
        self.event().response_status = Some(Event::status_of(500, None));
        // The request has failed already.
        let _ = self.reach(Stage::Panic);
    }

    /// Records what is answered; an answer that lasts is recorded when it begins and when it has ended.
    pub(crate) fn answered(self: &Arc<Self>, response: Response<Body>) -> Response<Body> {
        let (mut parts, body) = response.into_parts();
        let (body, text) = match self.decision.level {
            Level::RequestResponse if !self.lasts => whole(body),
            _ => glance(body),
        };
        let object = text.and_then(|text| read(&parts.headers, &text));
        let refusal = parts.extensions.get::<ApiError>().map(ApiError::to_value);
        let status = refusal.or_else(|| object.clone().filter(|o| o["kind"] == "Status"));
        {
            let mut event = self.event();
            let code = parts.status.as_u16();
            event.response_status = Some(Event::status_of(code, status.as_ref()));
            if self.decision.level == Level::RequestResponse && !self.lasts {
                event.response_object = object.map(|object| self.shown(object));
            }
        }
        if !self.lasts {
            self.complete();
            return Response::from_parts(parts, body);
        }
        // It has begun to be answered: too late for a refusal.
        let _ = self.reach(Stage::ResponseStarted);
        let end = End(Arc::clone(self));
        let body = match parts.extensions.remove::<UntilClosed>() {
            // Another protocol is spoken from here on: it ends with the connection.
            Some(until_closed) => {
                until_closed.hold(Box::new(end));
                body
            }
            None => ending(body, end),
        };
        Response::from_parts(parts, body)
    }

    fn complete(&self) {
        let taken = {
            let event = self.event();
            Timestamp::now().duration_since(event.request_received_timestamp)
        };
        if taken > jiff::SignedDuration::try_from(SLOW).unwrap_or_default() {
            let shown = kube_kit::duration::go::print(taken.unsigned_abs());
            self.annotate("apiserver.latency.k8s.io/total", shown);
        }
        // It has been answered: too late for a refusal.
        let _ = self.reach(Stage::ResponseComplete);
    }
}

/// Records the end of an answer that lasts.
struct End(Arc<Trail>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.complete();
    }
}

// Streams carry their end along; the end of everything else is here.
fn ending(body: Body, end: End) -> Body {
    match body {
        Body::Stream(stream) => Body::Stream(Box::pin(stream.map(move |bytes| {
            let _ = &end;
            bytes
        }))),
        Body::Passed(answer) => Body::Held(answer, Box::new(end)),
        other => other,
    }
}

// All of a body, which stays as it is.
fn whole(body: Body) -> (Body, Option<Bytes>) {
    let bytes: Bytes = match body {
        Body::Whole(Some(bytes)) => bytes,
        Body::Shared(parts) => Vec::from(parts).concat().into(),
        Body::Chunks(chunks) => chunks.collect::<Vec<_>>().concat().into(),
        other => return (other, None),
    };
    (Body::Whole(Some(bytes.clone())), Some(bytes))
}

// Only a Status is of interest.
fn glance(body: Body) -> (Body, Option<Bytes>) {
    let text = match &body {
        Body::Whole(Some(bytes)) if bytes.starts_with(b"{\"kind\":\"Status\"") => {
            Some(bytes.clone())
        }
        _ => None,
    };
    (body, text)
}

// JSON is not read further than its metadata.
fn named(call: &Call) -> Option<Value> {
    match negotiate::body_format(&call.headers).ok()? {
        Format::Json => {
            let named: Named = serde_json::from_slice(&call.body).ok()?;
            Some(serde_json::json!({"metadata": named.metadata}))
        }
        _ => read(&call.headers, &call.body),
    }
}

// What is not an object, in whatever form, is not recorded.
fn read(headers: &HeaderMap, bytes: &[u8]) -> Option<Value> {
    let media = negotiate::body_media(headers);
    if media.ends_with("+yaml") {
        return objects::yaml::parse(bytes).ok().map(|parsed| parsed.value);
    }
    if media.ends_with("+json") {
        return serde_json::from_slice(bytes).ok();
    }
    match negotiate::body_format(headers).ok()? {
        Format::Json => serde_json::from_slice(bytes).ok(),
        Format::Yaml => objects::yaml::parse(bytes).ok().map(|parsed| parsed.value),
        Format::Protobuf => objects::protobuf::decode_object(bytes)
            .ok()
            .map(|(_, _, o)| o),
    }
}
