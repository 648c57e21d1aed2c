//! One request: from the wire to an answer.
//!
//! The stages stand in upstream's order: who asks, may they, is there room, what is asked, answer.

mod response;

use std::borrow::Cow;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use access::User;
use bytes::Bytes;
use fairness::{Class, Gate, Seat};
use futures::FutureExt as _;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, EXPECT, VARY};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::api::Api;
use crate::auditing::{Auditor, Record, Trail};
use crate::call::{Call, Reply};
use crate::connection::budget::Budget;
use crate::connection::request_body::{self, Bodies, RequestBody};
use crate::connection::response_body::Body;
use crate::connection::sending::Answer;
use crate::connection::websocket;
use crate::door::asked::Asked;
use crate::door::identity::Peer;
use crate::door::impersonation;
use crate::door::request::{self, Query};
use crate::door::seats;
use crate::metrics::{Metrics, RequestLabels};
use crate::outward::proxy::{self, Luggage};
use crate::reading::negotiate;
use crate::settings::Access;
use crate::status::{ApiError, Result};
use crate::writing::admission::Warnings;
use crate::writing::rest::deprecation;

use response::{accepts_gzip, error_response, response, warn};
pub(crate) use response::{not_found_page, text_page};

/// Upstream's limits: time for a request, requests at once (400 that read and 200 that write).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const WRITE_TIMEOUT: Duration = Duration::from_secs(34);
pub(crate) const SEATS: u32 = 600;
/// Bodies of this size and more are worked on aside, so many at once: what they become in memory has its own bound,
/// which holds for those too whom fairness exempts.
const HEAVY_BODY: usize = 64 * 1024;
const HEAVY_BODIES: usize = 4;
/// How long a request waits for its turn (upstream: a quarter of the request timeout).
const QUEUE_WAIT: Duration = Duration::from_secs(15);

/// What answers that have not been read yet may keep in memory together.
const ANSWERS: usize = 256 << 20;
const UNREAD: &str = "too much of earlier answers has not been read yet";

/// What answers requests.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) api: Arc<Api>,
    pub(crate) metrics: Metrics,
    pub(crate) access: Access,
    /// Where clients reach this server.
    pub(crate) advertise: std::net::SocketAddr,
    pub(crate) ready: tokio::sync::watch::Receiver<bool>,
    bodies: Bodies,
    /// What answers keep in memory until they have been read.
    answers: Arc<Budget>,
    pub(crate) gate: Arc<Gate>,
    /// Who records requests, if anybody does.
    pub(crate) auditor: Option<Arc<Auditor>>,
    heavy: Arc<Semaphore>,
}

impl App {
    /// An application over an API.
    pub(crate) fn new(
        api: Arc<Api>,
        measured: &[fn(&mut Registry)],
        access: Access,
        advertise: std::net::SocketAddr,
        gate: Arc<Gate>,
        auditor: Option<Arc<Auditor>>,
        ready: tokio::sync::watch::Receiver<bool>,
    ) -> App {
        let dials = &api.outbound.egress.dials;
        App {
            metrics: Metrics::default().publish(|registry| {
                dials.register(registry);
                match &auditor {
                    Some(auditor) => auditor.register(registry),
                    None => audit::register_nothing(registry),
                }
                api.meters.register(registry);
                api.authorizer.meters.register(registry);
                api.authenticator.meters.register(registry);
                match &api.encryption {
                    Some(encrypted) => encrypted.meters().register(registry),
                    None => encryption::Meters::default().register(registry),
                }
                measured.iter().for_each(|register| register(registry));
            }),
            api,
            access,
            advertise,
            ready,
            bodies: Bodies::default(),
            answers: Budget::new(ANSWERS),
            gate,
            auditor,
            heavy: Arc::new(Semaphore::new(HEAVY_BODIES)),
        }
    }

    /// Answers a request; never fails, whatever comes in.
    pub(crate) async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Arc<Peer>,
    ) -> Result<Response<Answer>, Infallible> {
        let waits = request.headers().contains_key(EXPECT);
        let (request, rest) = RequestBody::of(request);
        let mut response = self.reply(request, &peer).await;
        if let Some(rest) = rest
            && !rest.is_gone(waits).await
        {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        Ok(response.map(Answer::new))
    }

    /// The same for a caller in this process.
    pub(crate) async fn inside(
        self: Arc<Self>,
        request: Request<Bytes>,
        peer: Arc<Peer>,
    ) -> Response<Body> {
        self.reply(RequestBody::here(request), &peer).await
    }

    async fn reply(self: &Arc<Self>, request: Request<RequestBody>, peer: &Peer) -> Response<Body> {
        let gzip = accepts_gzip(request.headers());
        let record = Record::of(request.headers());
        let caught = AssertUnwindSafe(self.route(request, peer, &record))
            .catch_unwind()
            .await;
        let mut response = caught.unwrap_or_else(|_| {
            if let Some(trail) = record.trail() {
                trail.panicked();
            }
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
        if let Ok(value) = HeaderValue::from_str(&record.id) {
            response.headers_mut().insert("audit-id", value);
        }
        let headers = response.headers_mut();
        headers
            .entry(CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache, private"));
        response
    }

    // Upstream's filters in their order: authentication, impersonation, authorization, a turn.
    async fn route(
        self: &Arc<Self>,
        mut request: Request<RequestBody>,
        peer: &Peer,
        record: &Record,
    ) -> Response<Body> {
        let path = request.uri().path().to_owned();
        // `GET x:1` and `OPTIONS *` have none.
        if !path.starts_with('/') {
            let error = ApiError::bad_request("the request names no path");
            return error_response(&error, request.headers(), None);
        }
        if let Err(error) = crate::door::deadline::check(request.uri()) {
            return error_response(&error, request.headers(), None);
        }
        let query = Query::parse(request.uri().query());
        let parsed = request::parse_path(&path);
        let asked = Asked::of(request.method(), &path, parsed.as_ref(), &query);
        let (user, warning) = match self
            .identify(&asked, &path, &mut request, peer, record)
            .await
        {
            Ok(found) => found,
            Err(error) => {
                let refusal = error_response(&error, request.headers(), query.get("pretty"));
                return recorded(record, refusal);
            }
        };
        let class = self.gate.classify(&asked.attributes(&user));
        let caller = caller(&user, peer);
        if !self.answers.has_room(&caller) {
            let error = ApiError::too_many_requests(UNREAD, 1);
            let refusal = error_response(&error, request.headers(), query.get("pretty"));
            return recorded(record, refusal);
        }
        let remote = self.api.aggregator.of_path(&path);
        let mut response = match (remote, parsed) {
            (Some(remote), _) => {
                // As long as it takes: watches and upgrades pass. A seat is for the beginning only.
                match self.turn(&class, 1).await {
                    Ok(_seat) => {
                        let client = peer.address.ip();
                        proxy::aggregated::pass(&self.api, &remote, request, client, &user).await
                    }
                    Err(error) => error_response(&error, request.headers(), query.get("pretty")),
                }
            }
            (None, Some(parsed)) => {
                let trail = record.trail().cloned();
                self.resource(
                    request,
                    peer,
                    parsed,
                    query,
                    (Arc::clone(&user), trail),
                    &class,
                )
                .await
            }
            (None, None) => self.other(&request, &path, &query, &class).await,
        };
        response = recorded(record, response);
        seats::mark(response.headers_mut(), &class);
        warn(response.headers_mut(), warning.as_slice());
        response.map(|body| body.charged(|bytes| self.answers.charge(&caller, bytes)))
    }

    /// Who asks, if they may, and what to tell them about their credentials.
    async fn identify(
        &self,
        asked: &Asked<'_>,
        path: &str,
        request: &mut Request<RequestBody>,
        peer: &Peer,
        record: &Record,
    ) -> Result<(Arc<User>, Option<String>)> {
        let (cache, headers) = (&self.api.cache, request.headers_mut());
        let (by, now) = (&self.api.authenticator, self.api.clock.now());
        let found = by.identify(cache, path, headers, peer, now).await;
        let found = match (found, &self.auditor) {
            (Ok(found), None) => found,
            (Ok(found), Some(auditor)) => {
                let asked = asked.attributes(&found.user);
                auditor.begin(record, request, &asked, peer)?;
                found
            }
            (Err(error), auditor) => {
                let nobody = User::default();
                let asked = asked.attributes(&nobody);
                let auditor = auditor
                    .iter()
                    .filter(|_| error.code == StatusCode::UNAUTHORIZED);
                auditor.for_each(|auditor| auditor.unknown(record, request, &asked, peer));
                return Err(error);
            }
        };
        if let Some(left) = found.certificate_left {
            self.metrics.client_certificate(left);
        }
        if let Some(used) = found.last_used {
            let api = Arc::clone(&self.api);
            tokio::spawn(async move { api.note_use(&used).await });
        }
        let user = found.user;
        if user.name != User::ANONYMOUS {
            peer.guest.is_user(&user.name);
        }
        let authorizer = &self.api.authorizer;
        let user = match impersonation::take(request.headers_mut())? {
            None => user,
            Some(wanted) => {
                let user = impersonation::become_user(authorizer, asked, &user, &wanted)?;
                record.trail().inspect(|trail| trail.impersonates(&user));
                user
            }
        };
        let attributes = asked.attributes(&user);
        match record.trail() {
            None => authorizer.answer(&attributes).await.allowed(&attributes)?,
            Some(trail) => {
                let verdict = authorizer.answer(&attributes).await;
                trail.authorized(&verdict.decision);
                verdict.allowed(&attributes)?;
            }
        }
        Ok((user, found.warning))
    }

    /// What is not a resource.
    async fn other(
        &self,
        request: &Request<RequestBody>,
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
        mut request: Request<RequestBody>,
        peer: &Peer,
        path: request::ResourcePath,
        query: Query,
        (user, trail): (Arc<User>, Option<Arc<Trail>>),
        class: &Class,
    ) -> Response<Body> {
        let live = self.api.registry.live();
        let found = live.find(&path.group, &path.version, &path.resource);
        let Some(resource) = found else {
            return match live.has_group(&path.group) {
                true => error_response(&ApiError::no_such_path(), request.headers(), None),
                false => not_found_page(),
            };
        };
        let upgrade = hyper::upgrade::on(&mut request);
        let (parts, body) = request.into_parts();
        let mut call = Call {
            resource: Arc::clone(&resource),
            path,
            method: parts.method,
            query,
            headers: parts.headers,
            body: Bytes::new(),
            user,
            warnings: Warnings::default(),
            trail,
        };
        let labels = labels(&call);
        let started = Instant::now();
        let outcome = if proxy::travels(&resource, call.path.subresource.as_deref()) {
            // As long as it takes, and without a seat: upstream's long-running requests have none.
            let luggage = Luggage {
                uri: parts.uri,
                client: peer.address.ip(),
                body,
                upgrade,
            };
            self.api.travel(&call, luggage).await
        } else if call.is_watch() {
            let watch = self.watch(&call, class).await;
            watch.and_then(|watch| self.watch_response(&call, watch, upgrade))
        } else {
            let limit = match call.verb() {
                "create" | "update" | "patch" | "delete" => WRITE_TIMEOUT,
                _ => REQUEST_TIMEOUT,
            };
            let reply = match crate::door::deadline::asked(&call.query).ok().flatten() {
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
        if let Some(text) = deprecation(&resource) {
            call.annotate("k8s.io/deprecated", "true");
            warn(answer.headers_mut(), &[text.to_owned()]);
        }
        answer
    }

    // A client that has no patience must not make the server drop a write halfway, with addresses taken
    // and not given back: the work goes on to its own end, as upstream's does.
    async fn detached(
        self: &Arc<Self>,
        call: &Call,
        body: RequestBody,
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

    async fn answer(
        self: &Arc<Self>,
        call: &mut Call,
        body: RequestBody,
        class: &Class,
    ) -> Result<Reply> {
        let len = request_body::declared(&body)?;
        let collection = self.api.cache.collection(&call.resource);
        let seats = seats::seats(call, len, collection.as_deref());
        let seat = self.turn(class, seats).await?;
        let mut memory = self.bodies.reserve(len).await?;
        call.body = request_body::read(body, len, &mut memory).await?;
        if let Some(trail) = &call.trail {
            trail.sent(call);
        }
        if call.verb() == "list" && seats > 1 {
            // Long work without a pause: whoever is waiting for this thread goes first, among them those who
            // have yet to ask for a seat. Otherwise a crowd would be served in the order it came, and never queue.
            tokio::task::yield_now().await;
        }
        let gauge = self
            .metrics
            .inflight(!matches!(call.method, Method::GET | Method::HEAD));
        gauge.inc();
        let outcome = match call.body.len() < HEAVY_BODY {
            true => self.api.call(call).await.map(|reply| (reply, seat)),
            false => self.aside(call, seat).await,
        };
        gauge.dec();
        let (mut reply, seat) = outcome?;
        if let Body::Chunks(_) = reply.body {
            let sending = seats::while_sending(seat);
            reply.body = reply.body.telling(move || sending.goes_on());
        }
        Ok(reply)
    }

    // A large body is long work, on a thread that serves nobody else. Whoever waits for it may stop waiting; the work
    // goes on to its own end, with its seat and its place.
    async fn aside(self: &Arc<Self>, call: &Call, seat: Seat) -> Result<(Reply, Seat)> {
        let place = Arc::clone(&self.heavy).acquire_owned().await;
        let place = place.map_err(|_| ApiError::unavailable("the server is stopping"))?;
        let (app, call) = (Arc::clone(self), call.clone());
        let runtime = tokio::runtime::Handle::current();
        let work = tokio::task::spawn_blocking(move || {
            let _place = place;
            runtime.block_on(async { (app.api.call(&call).await, seat) })
        });
        let bug = |_| ApiError::internal("a bug in the server; its log says more");
        let (outcome, seat) = work.await.map_err(bug)?;
        Ok((outcome?, seat))
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

// The answer, as it is recorded.
fn recorded(record: &Record, response: Response<Body>) -> Response<Body> {
    match record.trail() {
        Some(trail) => trail.answered(response),
        None => response,
    }
}

// Whom memory is charged to: a user, or an address that has not said who it is.
fn caller<'a>(user: &'a User, peer: &Peer) -> Cow<'a, str> {
    match user.name == User::ANONYMOUS {
        true => peer.address.ip().to_string().into(),
        false => user.name.as_str().into(),
    }
}

impl App {
    // Over a WebSocket where the client asks for one, as upstream's.
    fn watch_response(
        &self,
        call: &Call,
        reply: Reply,
        upgrade: OnUpgrade,
    ) -> Result<Response<Body>> {
        if !websocket::is_asked_for(&call.headers) {
            return Ok(response(reply));
        }
        let delimited = reply.content_type != negotiate::Format::Json.media_type();
        let stop = self.api.shutdown.clone();
        match reply.body {
            Body::Stream(events) => {
                websocket::send_watch(&call.headers, events, delimited, upgrade, stop)
            }
            body => Ok(response(Reply { body, ..reply })),
        }
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
        _ if proxy::travels(&call.resource, call.path.subresource.as_deref()) => "CONNECT",
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
        subresource: call.path.subresource.clone().unwrap_or_default(),
        scope,
        component: "apiserver",
        dry_run: match call.query.get("dryRun") {
            Some("All") => "All",
            _ => "",
        },
    }
}
