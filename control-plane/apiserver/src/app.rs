//! One request: from the wire to an answer.
//!
//! The stages stand in upstream's order: who asks, may they, is there room, what is asked, answer.

use std::collections::HashMap;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use access::User;
use bytes::Bytes;
use fairness::{Class, Gate, Seat};
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

use crate::admission::Warnings;
use crate::asked::Asked;
use crate::bodies::Bodies;
use crate::body::Body;
use crate::discovery::Discovery;
use crate::identity::Peer;
use crate::metrics::{Metrics, RequestLabels};
use crate::negotiate::{self, Accepted};
use crate::proxy::{self, Luggage};
use crate::request::{self, Query};
use crate::rest::{Api, Call, Reply, deprecation};
use crate::settings::Access;
use crate::status::{ApiError, Result};
use crate::turns::{self, LARGE_BODY};
use crate::{impersonation, view};

/// Upstream's limits: time for a request, requests at once (400 that read and 200 that write).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const WRITE_TIMEOUT: Duration = Duration::from_secs(34);
pub(crate) const SEATS: u32 = 600;
/// Large bodies that are decoded at once, in units of [`LARGE_BODY`]: memory has its own bound, which
/// holds for those too whom fairness exempts.
const LARGE_BODIES: usize = 200;
/// How long a request waits for its turn (upstream: a quarter of the request timeout).
const QUEUE_WAIT: Duration = Duration::from_secs(15);

/// What answers requests.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) api: Arc<Api>,
    pub(crate) discovery: Discovery,
    pub(crate) metrics: Metrics,
    pub(crate) access: Access,
    /// Where clients reach this server.
    pub(crate) advertise: std::net::SocketAddr,
    pub(crate) ready: tokio::sync::watch::Receiver<bool>,
    bodies: Bodies,
    pub(crate) gate: Arc<Gate>,
    large: Semaphore,
    resources: HashMap<(&'static str, &'static str, &'static str), &'static Resource>,
}

impl App {
    /// An application over an API.
    pub(crate) fn new(
        api: Arc<Api>,
        discovery: Discovery,
        access: Access,
        advertise: std::net::SocketAddr,
        gate: Arc<Gate>,
        ready: tokio::sync::watch::Receiver<bool>,
    ) -> App {
        let dials = &api.outbound.egress.dials;
        App {
            metrics: Metrics::default().publish(|registry| dials.register(registry)),
            api,
            discovery,
            access,
            advertise,
            ready,
            bodies: Bodies::default(),
            gate,
            large: Semaphore::new(LARGE_BODIES),
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
        peer: Arc<Peer>,
    ) -> Result<Response<Body>, Infallible> {
        let gzip = accepts_gzip(request.headers());
        let caught = AssertUnwindSafe(self.route(request, &peer))
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

    // Upstream's filters in their order: authentication, impersonation, authorization, a turn.
    async fn route(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        peer: &Peer,
    ) -> Response<Body> {
        let path = request.uri().path().to_owned();
        if let Err(error) = crate::deadline::check(request.uri()) {
            return error_response(&error, request.headers(), None);
        }
        let query = Query::parse(request.uri().query());
        let parsed = request::parse_path(&path);
        let asked = Asked::of(request.method(), &path, parsed.as_ref(), &query);
        let (user, warning) = match self.identify(&asked, &path, &mut request, peer).await {
            Ok(found) => found,
            Err(error) => return error_response(&error, request.headers(), query.get("pretty")),
        };
        let class = self.gate.classify(&asked.attributes(&user));
        let mut response = match parsed {
            Some(parsed) => {
                self.resource(request, peer, parsed, query, user, &class)
                    .await
            }
            None => self.other(&request, &path, &query, &class).await,
        };
        turns::mark(response.headers_mut(), &class);
        warn(response.headers_mut(), warning.as_slice());
        response
    }

    /// Who asks, if they may, and what to tell them about their credentials.
    async fn identify(
        &self,
        asked: &Asked<'_>,
        path: &str,
        request: &mut Request<Incoming>,
        peer: &Peer,
    ) -> Result<(Arc<User>, Option<String>)> {
        let (cache, headers) = (&self.api.cache, request.headers_mut());
        let found = self.api.authenticator.identify(cache, path, headers, peer);
        let found = found.await?;
        if let Some(left) = found.certificate_left {
            self.metrics.client_certificate(left);
        }
        if let Some(used) = found.last_used {
            let api = Arc::clone(&self.api);
            tokio::spawn(async move { api.note_use(&used).await });
        }
        let user = found.user;
        let authorizer = &self.api.authorizer;
        let user = match impersonation::take(request.headers_mut())? {
            None => user,
            Some(wanted) => impersonation::become_user(authorizer, asked, &user, &wanted)?,
        };
        authorizer.check(&asked.attributes(&user))?;
        Ok((user, found.warning))
    }

    /// What is not a resource.
    async fn other(
        &self,
        request: &Request<Incoming>,
        path: &str,
        query: &Query,
        class: &Class,
    ) -> Response<Body> {
        let answer = match self.turn(class, 1).await {
            Ok(_seat) => self.page(request, path).await,
            Err(error) => Err(error),
        };
        answer.unwrap_or_else(|e| error_response(&e, request.headers(), query.get("pretty")))
    }

    async fn turn(&self, class: &Class, seats: u32) -> Result<Seat> {
        self.gate
            .enter(class, seats, QUEUE_WAIT)
            .await
            .map_err(|refused| {
                self.metrics.refused(class, refused);
                ApiError::too_many_requests(
                    "the server has received too many requests and has asked us to try again later",
                    1,
                )
            })
    }

    async fn resource(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        peer: &Peer,
        path: request::ResourcePath,
        query: Query,
        user: Arc<User>,
        class: &Class,
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
        let upgrade = hyper::upgrade::on(&mut request);
        let (parts, body) = request.into_parts();
        let mut call = Call {
            resource,
            path,
            method: parts.method,
            query,
            headers: parts.headers,
            body: Bytes::new(),
            user,
            warnings: Warnings::default(),
        };
        let labels = labels(&call);
        let started = Instant::now();
        let outcome = if proxy::travels(resource, call.path.subresource.as_deref()) {
            // As long as it takes, and without a seat: upstream's long-running requests have none.
            let luggage = Luggage {
                uri: parts.uri,
                client: peer.address.ip(),
                body,
                upgrade,
            };
            self.api.travel(&call, luggage).await
        } else if call.is_watch() {
            self.watch(&call, class).await.map(response)
        } else {
            let limit = match call.verb() {
                "create" | "update" | "patch" | "delete" => WRITE_TIMEOUT,
                _ => REQUEST_TIMEOUT,
            };
            let reply = match crate::deadline::asked(&call.query).ok().flatten() {
                Some(asked) => self.detached(&call, body, class, limit, asked).await,
                None => in_time(limit, self.answer(&mut call, body, class)).await,
            };
            reply.map(response)
        };
        let code = outcome
            .as_ref()
            .map_or_else(|e| e.code, |r| r.status())
            .as_u16();
        self.metrics
            .finished(&labels, code, started.elapsed().as_secs_f64());
        let mut answer = match outcome {
            Ok(answer) => answer,
            Err(error) => error_response(&error, &call.headers, call.query.get("pretty")),
        };
        warn(answer.headers_mut(), &call.warnings.take());
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
        class: &Class,
        limit: Duration,
        asked: Duration,
    ) -> Result<Reply> {
        let (app, mut call, class) = (Arc::clone(self), call.clone(), class.clone());
        let work = async move { in_time(limit, app.answer(&mut call, body, &class)).await };
        let work =
            tokio::spawn(work).map(|done| done.unwrap_or_else(|e| Err(ApiError::internal(e))));
        in_time(asked.min(limit), work).await
    }

    async fn answer(&self, call: &mut Call, body: Incoming, class: &Class) -> Result<Reply> {
        let _buffered = self.bodies.read(body, &mut call.body).await?;
        let units = u32::try_from(call.body.len() / LARGE_BODY).unwrap_or(u32::MAX);
        let Ok(_memory) = self.large.acquire_many(units).await else {
            return Err(ApiError::unavailable("the server is stopping"));
        };
        let collection = self.api.cache.collection(call.resource);
        let seats = turns::seats(call, collection.map(|c| &**c));
        let seat = self.turn(class, seats).await?;
        if seats > 1 {
            // Long work without a pause: whoever is waiting for this thread goes first, among them those who
            // have yet to ask for a seat. Otherwise a crowd would be served in the order it came, and never queue.
            tokio::task::yield_now().await;
        }
        let gauge = self
            .metrics
            .inflight(!matches!(call.method, Method::GET | Method::HEAD));
        gauge.inc();
        let outcome = self.api.call(call).await;
        gauge.dec();
        let mut reply = outcome?;
        if let Body::Chunks(_) = reply.body {
            reply.body = reply.body.holding(turns::while_sending(seat));
        }
        Ok(reply)
    }

    // A watch needs a turn to begin; from then on it costs by what happens, not by being there.
    async fn watch(self: &Arc<Self>, call: &Call, class: &Class) -> Result<Reply> {
        let seat = self.turn(class, 1).await?;
        let mut reply = self.api.call(call).await?;
        drop(seat);
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
        _ if proxy::travels(call.resource, call.path.subresource.as_deref()) => "CONNECT",
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
