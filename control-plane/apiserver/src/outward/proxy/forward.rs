//! One request to another server and its answer, or the bytes that follow when both change protocols.

use std::time::Duration;

use flate2::Compression;
use flate2::read::{DeflateDecoder, DeflateEncoder, GzDecoder, GzEncoder};
use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue, LOCATION,
};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;

use super::Luggage;
use super::rewrite::{self, Links};
use crate::api::Api;
use crate::call::Call;
use crate::connection::response_body::{Body, UntilClosed};
use crate::connection::websocket::is_upgrade;
use crate::outward::outbound::{Outbound, Payload, Place};
use crate::status::{ApiError, Result};

/// The largest page whose links are rewritten: it must be whole in memory.
const LARGEST_PAGE: usize = 32 << 20;
/// How long a server may go on after its client has finished sending.
const LINGER: Duration = Duration::from_secs(10);

/// Where a request goes and what is done to it.
#[derive(Debug)]
pub(super) struct Errand {
    place: Place,
    /// Path and query.
    target: String,
    /// How links are rewritten. Requests without links to rewrite are streams, which must change protocols.
    links: Option<Links>,
}

impl Errand {
    /// A stream to a place.
    pub(super) fn to(place: Place, target: String) -> Errand {
        Errand {
            place,
            target,
            links: None,
        }
    }

    /// The same, for pages.
    pub(super) fn rewriting(self, links: Links) -> Errand {
        Errand {
            links: Some(links),
            ..self
        }
    }
}

/// The host a client asked for; HTTP/2 has it in the address.
pub(super) fn host(headers: &HeaderMap, uri: &Uri) -> String {
    let named = headers.get(HOST).and_then(|value| value.to_str().ok());
    named
        .or(uri.authority().map(|authority| authority.as_str()))
        .unwrap_or_default()
        .to_owned()
}

/// 301 to another path of ours.
pub(super) fn moved(to: &str) -> Result<Response<Body>> {
    let location = HeaderValue::from_str(to).map_err(ApiError::internal)?;
    let mut response = Response::new(Body::from(""));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

/// Runs an errand for a client.
pub(super) async fn run(
    api: &Api,
    errand: Errand,
    call: &Call,
    luggage: Luggage,
) -> Result<Response<Body>> {
    let mut headers = call.headers.clone();
    let asked = host(&headers, &luggage.uri);
    if let Ok(value) = HeaderValue::from_str(&asked) {
        headers.insert(HOST, value);
    }
    rewrite::forwarded_for(&mut headers, luggage.client);
    if is_upgrade(&headers) {
        let request = request(
            &call.method,
            &errand.target,
            headers,
            luggage.body.boxed_unsync(),
        )?;
        return upgraded(api, &errand.place, request, luggage.upgrade).await;
    }
    let Some(links) = &errand.links else {
        return Err(ApiError::bad_request("Upgrade request required"));
    };
    rewrite::strip_hop_by_hop(&mut headers);
    rewrite::forwarded_uri(&mut headers, luggage.uri.path());
    let request = request(
        &call.method,
        &errand.target,
        headers,
        luggage.body.boxed_unsync(),
    )?;
    let unreachable = |why| ApiError::unavailable(format!("error trying to reach service: {why}"));
    let response = send(&api.outbound, &errand.place, request)
        .await
        .map_err(unreachable)?;
    answer(response, links, &call.method).await
}

/// The body of a request that has none.
pub(super) fn nothing() -> Payload {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A request to another server.
pub(super) fn request(
    method: &Method,
    target: &str,
    headers: HeaderMap,
    body: Payload,
) -> Result<Request<Payload>> {
    let uri: Uri = target
        .parse()
        .map_err(|e| ApiError::bad_request(format!("{target:?}: {e}")))?;
    let mut request = Request::new(body);
    *request.method_mut() = method.clone();
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = headers;
    Ok(request)
}

/// One request to a place, over a connection that waits there or a new one; says why it failed in Go's words.
pub(super) async fn send(
    outbound: &Outbound,
    place: &Place,
    mut request: Request<Payload>,
) -> std::result::Result<Response<Incoming>, String> {
    let upgrades = is_upgrade(request.headers());
    while !upgrades && let Some(mut sender) = outbound.idle.take(place) {
        let again = repeatable(&request);
        match sender.try_send_request(request).await {
            Ok(response) => {
                outbound.idle.keep(place.clone(), sender);
                return Ok(told_as_ours(response));
            }
            // The server hung up while the connection waited, or as the request came.
            Err(mut error) => match error.take_message().or(again) {
                Some(unsent) => request = unsent,
                None => return Err(go_words(&error.into_error())),
            },
        }
    }
    let mut sender = open(outbound, place).await?;
    let response = sender.send_request(request).await;
    let response = response.map_err(|error| go_words(&error))?;
    if !upgrades {
        outbound.idle.keep(place.clone(), sender);
    }
    Ok(told_as_ours(response))
}

// The same request, where it can do no harm to send it twice (Go's rule).
fn repeatable(request: &Request<Payload>) -> Option<Request<Payload>> {
    let harmless = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS
    );
    (harmless && request.body().is_end_stream()).then(|| {
        let mut again = Request::new(nothing());
        *again.method_mut() = request.method().clone();
        *again.uri_mut() = request.uri().clone();
        *again.headers_mut() = request.headers().clone();
        again
    })
}

async fn open(
    outbound: &Outbound,
    place: &Place,
) -> std::result::Result<SendRequest<Payload>, String> {
    let stream = TokioIo::new(outbound.connect(place).await?);
    let opened = hyper::client::conn::http1::handshake(stream).await;
    let (sender, connection) = opened.map_err(|error| go_words(&error))?;
    // Ends when nobody holds the sender and the last answer has been read.
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to another server ended early");
        }
    });
    Ok(sender)
}

fn go_words(error: &hyper::Error) -> String {
    match error.is_incomplete_message() {
        true => "EOF".to_owned(),
        false => error.to_string(),
    }
}

// Which HTTP the other server speaks is not for the client to know.
fn told_as_ours(mut response: Response<Incoming>) -> Response<Incoming> {
    *response.version_mut() = Version::HTTP_11;
    response
}

async fn answer(
    mut response: Response<Incoming>,
    links: &Links,
    method: &Method,
) -> Result<Response<Body>> {
    let headers = response.headers_mut();
    rewrite::strip_hop_by_hop(headers);
    rewrite::strip_cors(headers);
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    if let Some(location) = location {
        if let Some(Ok(new)) = links
            .rewrite(location)
            .map(|new| HeaderValue::from_str(&new))
        {
            headers.insert(LOCATION, new);
        }
        return Ok(response.map(Body::Passed));
    }
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let is_page =
        kind.is_some_and(|kind| kind.split(';').next().unwrap_or_default().trim() == "text/html");
    let known = Encoding::of(headers);
    match known {
        Some(encoding) if is_page && *method != Method::HEAD => {
            page(response, links, encoding).await
        }
        _ => Ok(response.map(Body::Passed)),
    }
}

async fn page(
    response: Response<Incoming>,
    links: &Links,
    encoding: Encoding,
) -> Result<Response<Body>> {
    let (mut parts, body) = response.into_parts();
    let broken =
        |why: String| ApiError::unavailable(format!("error trying to reach service: {why}"));
    if body.size_hint().lower() > LARGEST_PAGE as u64 {
        return Ok(Response::from_parts(parts, Body::Passed(body)));
    }
    let whole = Limited::new(body, LARGEST_PAGE).collect().await;
    let whole = whole.map_err(|e| broken(e.to_string()))?.to_bytes();
    let text = encoding.unpack(&whole).map_err(|e| broken(e.to_string()))?;
    let text = rewrite::html(&text, |link| links.rewrite(link));
    let packed = encoding.pack(&text).map_err(|e| broken(e.to_string()))?;
    parts.headers.remove(CONTENT_LENGTH);
    Ok(Response::from_parts(parts, Body::from(packed)))
}

/// Encodings of pages that can be read.
#[derive(Debug, Clone, Copy)]
enum Encoding {
    Plain,
    Gzip,
    Deflate,
}

impl Encoding {
    fn of(headers: &HeaderMap) -> Option<Encoding> {
        match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
            None | Some(b"") => Some(Encoding::Plain),
            Some(b"gzip") => Some(Encoding::Gzip),
            Some(b"deflate") => Some(Encoding::Deflate),
            Some(_) => None,
        }
    }

    fn unpack(self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        match self {
            Encoding::Plain => Ok(bytes.to_vec()),
            Encoding::Gzip => read(GzDecoder::new(bytes)),
            Encoding::Deflate => read(DeflateDecoder::new(bytes)),
        }
    }

    fn pack(self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        match self {
            Encoding::Plain => Ok(bytes.to_vec()),
            Encoding::Gzip => read(GzEncoder::new(bytes, Compression::default())),
            Encoding::Deflate => read(DeflateEncoder::new(bytes, Compression::best())),
        }
    }
}

// A small file may unpack to a very large one.
fn read(source: impl std::io::Read) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let limit = LARGEST_PAGE as u64;
    std::io::Read::read_to_end(&mut std::io::Read::take(source, limit + 1), &mut out)?;
    match out.len() > LARGEST_PAGE {
        true => Err(std::io::Error::other(
            "the page is too large to rewrite its links",
        )),
        false => Ok(out),
    }
}

/// A request that changes protocols, and the bytes that follow.
pub(super) async fn upgraded(
    api: &Api,
    place: &Place,
    request: Request<Payload>,
    client: OnUpgrade,
) -> Result<Response<Body>> {
    let response = send(&api.outbound, place, request).await;
    let mut response =
        response.map_err(|why| ApiError::plain(format!("error dialing backend: {why}")))?;
    let code = response.status();
    if code != StatusCode::SWITCHING_PROTOCOLS {
        if code.as_u16() < 400 {
            let why = format!("invalid upgrade response: status code {}", code.as_u16());
            return Err(ApiError::plain(why));
        }
        rewrite::strip_hop_by_hop(response.headers_mut());
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
        return Ok(response.map(Body::Passed));
    }
    let server = hyper::upgrade::on(&mut response);
    let stop = api.shutdown.clone();
    let until_closed = UntilClosed::default();
    response.extensions_mut().insert(until_closed.clone());
    tokio::spawn(async move {
        relay(client, server, stop).await;
        drop(until_closed);
    });
    Ok(response.map(|_| Body::from("")))
}

// Ends when either side does, or the server stops.
async fn relay(client: OnUpgrade, server: OnUpgrade, mut stop: watch::Receiver<bool>) {
    let both = async {
        match tokio::try_join!(client, server) {
            Ok((client, server)) => pass(client, server).await,
            Err(error) => tracing::debug!(%error, "a change of protocols came to nothing"),
        }
    };
    tokio::select! {
        () = both => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

// What a client sends last still gets its answer; a server that has finished ends it all.
async fn pass(client: Upgraded, server: Upgraded) {
    let (mut from_client, mut to_client) = tokio::io::split(TokioIo::new(client));
    let (mut from_server, mut to_server) = tokio::io::split(TokioIo::new(server));
    let up = async {
        let copied = tokio::io::copy(&mut from_client, &mut to_server).await;
        if copied.is_ok() && to_server.shutdown().await.is_ok() {
            tokio::time::sleep(LINGER).await;
        }
    };
    let down = async {
        // An error here is a side that has gone, which is how most streams end.
        let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
        let _ = to_client.shutdown().await;
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}

#[cfg(test)]
mod tests;
