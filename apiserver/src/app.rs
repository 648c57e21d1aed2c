//! One request: from the wire to an answer.
//!
//! The stages stand in upstream's order: who asks, may they, is there room, what is asked, answer.

use std::collections::HashMap;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use kinds::resources::{self, Resource};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::bodies::Bodies;
use crate::body::Body;
use crate::discovery::Discovery;
use crate::metrics::{Metrics, RequestLabels};
use crate::negotiate::{self, Accepted};
use crate::request::{self, Query};
use crate::rest::{Api, Call, Reply, User, deprecation};
use crate::status::{ApiError, Result};
use crate::view;

/// Upstream's limits: time for a request, requests at once.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const WRITE_TIMEOUT: Duration = Duration::from_secs(34);
const MAX_READS: usize = 400;
const MAX_WRITES: usize = 200;
/// A body of this size counts as one more request.
const LARGE_BODY: usize = 64 * 1024;
/// How long a request waits for its turn (upstream: a quarter of the request timeout).
const QUEUE_WAIT: Duration = Duration::from_secs(15);

/// Paths anybody may read.
const PUBLIC: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];

/// What answers requests.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) api: Arc<Api>,
    pub(crate) discovery: Discovery,
    pub(crate) metrics: Metrics,
    pub(crate) anonymous: bool,
    pub(crate) ready: tokio::sync::watch::Receiver<bool>,
    bodies: Bodies,
    reads: Semaphore,
    writes: Semaphore,
    resources: HashMap<(&'static str, &'static str, &'static str), &'static Resource>,
}

impl App {
    /// An application over an API.
    pub(crate) fn new(
        api: Arc<Api>,
        discovery: Discovery,
        anonymous: bool,
        ready: tokio::sync::watch::Receiver<bool>,
    ) -> App {
        App {
            api,
            discovery,
            metrics: Metrics::default(),
            anonymous,
            ready,
            bodies: Bodies::default(),
            reads: Semaphore::new(MAX_READS),
            writes: Semaphore::new(MAX_WRITES),
            resources: resources::all()
                .iter()
                .map(|r| ((r.gv.group, r.gv.version, r.plural), r))
                .collect(),
        }
    }

    /// Answers a request; never fails, whatever comes in.
    pub(crate) async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        user: Option<User>,
    ) -> Result<Response<Body>, Infallible> {
        let gzip = accepts_gzip(request.headers());
        let caught = AssertUnwindSafe(self.route(request, user))
            .catch_unwind()
            .await;
        let mut response = caught.unwrap_or_else(|_| {
            let error = ApiError::internal("a bug in the server; its log says more");
            error_response(&error, &HeaderMap::new(), None)
        });
        if response.body().is_large() && gzip && !response.headers().contains_key(CONTENT_ENCODING)
        {
            response
                .headers_mut()
                .insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response
                .headers_mut()
                .append(VARY, HeaderValue::from_static("Accept-Encoding"));
            response = response.map(Body::gzip);
        }
        let audit_id = uuid::Uuid::new_v4().to_string();
        if let Ok(value) = HeaderValue::from_str(&audit_id) {
            response.headers_mut().insert("audit-id", value);
        }
        let headers = response.headers_mut();
        headers
            .entry(CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache, private"));
        Ok(response)
    }

    async fn route(
        self: &Arc<Self>,
        request: Request<Incoming>,
        user: Option<User>,
    ) -> Response<Body> {
        let path = request.uri().path().to_owned();
        if let Err(error) = crate::deadline::check(request.uri()) {
            return error_response(&error, request.headers(), None);
        }
        let outcome = match (self.authenticate(&path, user), request::parse_path(&path)) {
            // Authorization stands here: the user, the verb and the path are known.
            (Ok(user), Some(parsed)) => return self.resource(request, parsed, user).await,
            (Ok(_), None) => self.page(&request, &path).await,
            (Err(error), _) => Err(error),
        };
        outcome.unwrap_or_else(|error| {
            let query = Query::parse(request.uri().query());
            error_response(&error, request.headers(), query.get("pretty"))
        })
    }

    fn authenticate(&self, path: &str, user: Option<User>) -> Result<User> {
        let is_public = PUBLIC
            .iter()
            .any(|p| path == *p || path.starts_with(&format!("{p}/")));
        match user {
            Some(user) => Ok(user),
            None if self.anonymous || is_public => Ok(User {
                name: "system:anonymous".into(),
                groups: vec!["system:unauthenticated".into()],
            }),
            None => Err(ApiError::unauthorized()),
        }
    }

    async fn resource(
        self: &Arc<Self>,
        request: Request<Incoming>,
        path: request::ResourcePath,
        user: User,
    ) -> Response<Body> {
        let key = (
            path.group.as_str(),
            path.version.as_str(),
            path.resource.as_str(),
        );
        let Some(resource) = self.resources.get(&key).copied() else {
            let known = resources::all().iter().any(|r| r.gv.group == path.group);
            return match known {
                true => error_response(&ApiError::no_such_path(), request.headers(), None),
                false => not_found_page(),
            };
        };
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query());
        let mut call = Call {
            resource,
            path,
            method: parts.method,
            query,
            headers: parts.headers,
            body: Bytes::new(),
            user,
        };
        let labels = labels(&call);
        let started = Instant::now();
        let outcome = if call.is_watch() {
            self.watch(&call).await
        } else {
            let limit = match call.verb() {
                "create" | "update" | "patch" | "delete" => WRITE_TIMEOUT,
                _ => REQUEST_TIMEOUT,
            };
            match crate::deadline::asked(&call.query).ok().flatten() {
                Some(asked) => self.detached(&call, body, limit, asked).await,
                None => in_time(limit, self.answer(&mut call, body)).await,
            }
        };
        let code = outcome
            .as_ref()
            .map_or_else(|e| e.code, |r| r.code)
            .as_u16();
        self.metrics
            .finished(&labels, code, started.elapsed().as_secs_f64());
        let mut answer = match outcome {
            Ok(reply) => response(reply),
            Err(error) => error_response(&error, &call.headers, call.query.get("pretty")),
        };
        if let Some(text) = deprecation(resource) {
            warn(answer.headers_mut(), &[text.to_owned()]);
        }
        answer
    }

    // A client that has no patience must not make the server drop a write halfway, with addresses taken
    // and not given back: the work goes on to its own end, as upstream's does.
    async fn detached(
        self: &Arc<Self>,
        call: &Call,
        body: Incoming,
        limit: Duration,
        asked: Duration,
    ) -> Result<Reply> {
        let (app, mut call) = (Arc::clone(self), call.clone());
        let work = async move { in_time(limit, app.answer(&mut call, body)).await };
        let work =
            tokio::spawn(work).map(|done| done.unwrap_or_else(|e| Err(ApiError::internal(e))));
        in_time(asked.min(limit), work).await
    }

    async fn answer(&self, call: &mut Call, body: Incoming) -> Result<Reply> {
        let mutating = !matches!(call.method, Method::GET | Method::HEAD);
        let _buffered = self.bodies.read(body, &mut call.body).await?;
        let room = if mutating { &self.writes } else { &self.reads };
        // A body that takes long to decode and much memory takes the place of several small ones.
        let places = 1 + u32::try_from(call.body.len() / LARGE_BODY).unwrap_or(u32::MAX);
        let turn = tokio::time::timeout(QUEUE_WAIT, room.acquire_many(places)).await;
        let Ok(Ok(_turn)) = turn else {
            return Err(ApiError::too_many_requests(
                "the server has received too many requests and has asked us to try again later",
                1,
            ));
        };
        let gauge = self.metrics.inflight(mutating);
        gauge.inc();
        let outcome = self.api.call(call).await;
        gauge.dec();
        outcome
    }

    async fn watch(self: &Arc<Self>, call: &Call) -> Result<Reply> {
        let mut reply = self.api.call(call).await?;
        if let Body::Stream(stream) = reply.body {
            let counted = Counted::new(Arc::clone(self));
            reply.body = Body::Stream(Box::pin(futures::StreamExt::map(stream, move |bytes| {
                let _ = &counted;
                bytes
            })));
        }
        Ok(reply)
    }
}

async fn in_time(limit: Duration, work: impl Future<Output = Result<Reply>>) -> Result<Reply> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(ApiError::timeout(
            "request did not complete within the allotted timeout",
        ))
    })
}

/// One watch in the gauge, for as long as it lives.
struct Counted(Arc<App>);

impl Counted {
    fn new(app: Arc<App>) -> Counted {
        app.metrics.watches.inc();
        Counted(app)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.metrics.watches.dec();
    }
}

fn labels(call: &Call) -> RequestLabels {
    let verb = match call.verb() {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" => "POST",
        "update" => "PUT",
        "patch" if negotiate::body_media(&call.headers) == "application/apply-patch+yaml" => {
            "APPLY"
        }
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        _ => "other",
    };
    let scope = match (&call.path.name, &call.path.namespace) {
        (Some(_), _) => "resource",
        (None, Some(_)) => "namespace",
        (None, None) => "cluster",
    };
    let gv = call.resource.gv;
    RequestLabels {
        verb,
        group: gv.group,
        version: gv.version,
        resource: call.resource.plural,
        scope,
    }
}

fn response(reply: Reply) -> Response<Body> {
    let mut response = Response::new(reply.body);
    *response.status_mut() = reply.code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(reply.content_type));
    warn(headers, &reply.warnings);
    response
}

fn warn(headers: &mut HeaderMap, warnings: &[String]) {
    for text in limited(warnings) {
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {}", quoted(&text))) {
            headers.append(http::header::WARNING, value);
        }
    }
}

// Upstream sends at most 4 KiB of warnings, cut to 256 characters each beyond that.
fn limited(warnings: &[String]) -> Vec<String> {
    let total: usize = warnings.iter().map(|w| w.chars().count()).sum();
    let mut room = 4096_usize;
    let mut out = Vec::new();
    for warning in warnings {
        let text: String = if total > 4096 {
            warning.chars().take(256).collect()
        } else {
            warning.clone()
        };
        let Some(rest) = room.checked_sub(text.chars().count()) else {
            break;
        };
        room = rest;
        out.push(text);
    }
    out
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars().filter(|c| !c.is_control()) {
        if c == '"' || c == '\\' {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

fn error_response(error: &ApiError, headers: &HeaderMap, pretty: Option<&str>) -> Response<Body> {
    let accepted = negotiate::accept(headers, pretty, negotiate::Offer::Objects)
        .ok()
        .filter(|accepted| accepted.shape == negotiate::Shape::Object)
        .unwrap_or(Accepted::JSON);
    let mut response = Response::new(Body::from(view::encode(&error.to_value(), accepted)));
    *response.status_mut() = error.code;
    let out = response.headers_mut();
    out.insert(
        CONTENT_TYPE,
        HeaderValue::from_static(accepted.format.media_type()),
    );
    if let Some(seconds) = error.retry_after {
        out.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let text = headers
        .get(ACCEPT_ENCODING)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    text.split(',').any(|part| {
        part.split(';')
            .next()
            .is_some_and(|name| name.trim() == "gzip")
    })
}

/// What upstream's HTTP layer answers where nothing is registered.
pub(crate) fn not_found_page() -> Response<Body> {
    text_page(
        StatusCode::NOT_FOUND,
        "text/plain; charset=utf-8",
        "404 page not found\n",
    )
}

pub(crate) fn text_page(
    code: StatusCode,
    content_type: &'static str,
    body: impl Into<Body>,
) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if content_type.starts_with("text/plain") {
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_quoted_and_bounded() {
        assert_eq!(quoted("unknown field \"a\""), "\"unknown field \\\"a\\\"\"");
        let many = vec!["x".repeat(1000); 100];
        let sent = limited(&many);
        assert!(sent.iter().all(|w| w.len() == 256));
        assert!(sent.iter().map(String::len).sum::<usize>() <= 4096);
    }
}
