//! What is not a resource: discovery, OpenAPI, health, version, metrics.

pub(crate) mod discovery;
mod packing;
pub(crate) mod published;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use access::tokens::discovery as issuer;
use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, EXPIRES, IF_NONE_MATCH, LOCATION,
    VARY,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use probes::zpages;
use serde_json::{Value, json};

use crate::app::{App, not_found_page, text_page};
use crate::connection::request_body::RequestBody;
use crate::connection::response_body::Body;
use crate::door::request::Query;
use crate::pages::discovery::Aggregated;
use crate::pages::published::Published;
use crate::reading::negotiate::{self, Accepted, Offer};
use crate::reading::view;
use crate::status::{ApiError, Result};

/// What upstream calls this program.
const NAME: &str = "kube-apiserver";
/// The Kubernetes version this server speaks.
pub(crate) const VERSION: (&str, &str) = ("1", "36");
/// The same as nodes are asked for it: their kubelets are of this release.
pub const RELEASE: &str = "1.36.0";

const AGGREGATED_TYPE: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

impl App {
    pub(crate) async fn page(
        &self,
        request: &Request<RequestBody>,
        path: &str,
    ) -> Result<Response<Body>> {
        let query = Query::parse(request.uri().query());
        let headers = request.headers();
        let is_health = ["/healthz", "/livez", "/readyz"]
            .iter()
            .any(|p| path.starts_with(p));
        if !matches!(*request.method(), Method::GET | Method::HEAD) && !is_health {
            let live = self.api.registry.live();
            let known = live.discovery().document(path).is_some() || path == "/version";
            return if known {
                Err(ApiError::method_not_allowed())
            } else {
                Ok(not_found_page())
            };
        }
        if let Some(response) = self.discovery_page(headers, path, &query)? {
            return Ok(response);
        }
        let live = self.api.registry.live();
        let (check, name) = match path[1..].split_once('/') {
            Some((check, name)) => (check, Some(name)),
            None => (&path[1..], None),
        };
        match (check, name) {
            ("", None) => Ok(only_json_page(
                headers,
                &query,
                &json!({"paths": self.paths()}),
            )),
            ("version", None | Some("")) if !negotiate::takes_json(headers) => {
                Err(ApiError::no_representation("application/json"))
            }
            ("version", None | Some("")) => Ok(only_json_page(headers, &query, &version())),
            ("livez" | "readyz" | "healthz", name) => Ok(self.health(check, name, &query).await),
            ("metrics", None) => Ok(self.metrics_page().await),
            ("metrics", Some("slis")) => Ok(self.slis_page().await),
            ("statusz", None) => Ok(plain_page(zpages::status(NAME, &git_version(), VERSION))),
            ("flagz", None) => Ok(plain_page(zpages::flags(NAME, std::env::args().skip(1)))),
            (".well-known", Some("openid-configuration")) => {
                let address = self.advertise.to_string();
                Ok(issuer_page(
                    self.api.authenticator.accounts.metadata(&address),
                    "application/json",
                ))
            }
            ("openid", Some("v1/jwks")) => Ok(issuer_page(
                self.api.authenticator.accounts.key_set(),
                issuer::KEYS_TYPE,
            )),
            ("openapi", Some("v2")) => openapi_v2(headers, live.published()),
            ("openapi", Some("v3")) => Ok(text_page(
                StatusCode::OK,
                "application/json",
                live.openapi_index(),
            )),
            ("openapi", Some(name)) => openapi_v3(headers, name, &query, live.published()),
            _ => Ok(not_found_page()),
        }
    }

    fn discovery_page(
        &self,
        headers: &HeaderMap,
        path: &str,
        query: &Query,
    ) -> Result<Option<Response<Body>>> {
        let live = self.api.registry.live();
        let discovery = live.discovery();
        if negotiate::wants_aggregated_discovery(headers)
            && let Some(aggregated) = discovery.aggregated(path)
        {
            return Ok(Some(aggregated_page(headers, aggregated)));
        }
        match discovery.document(path) {
            Some(document) => json_page(headers, query, document).map(Some),
            None => Ok(None),
        }
    }

    fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = [
            "/flagz",
            "/healthz",
            "/livez",
            "/metrics",
            "/metrics/slis",
            "/statusz",
            "/.well-known/openid-configuration",
            "/openid/v1/jwks",
            "/openapi/v2",
            "/openapi/v3",
            "/readyz",
            "/version",
            "/api",
            "/apis",
        ]
        .map(str::to_owned)
        .to_vec();
        for resource in self.api.registry.live().resources() {
            let gv = resource.gv;
            let own = match gv.group {
                "" => vec![format!("/api/{}", gv.version)],
                group => vec![format!("/apis/{group}"), format!("/apis/{gv}")],
            };
            paths.extend(own);
        }
        paths.sort();
        paths.dedup();
        paths
    }

    async fn metrics_page(&self) -> Response<Body> {
        let counts = self.api.cache.collections();
        let counts = counts.values().map(|c| (c.resource.qualified(), c.count()));
        let size = self.api.store.size().await.unwrap_or(0);
        for (name, file) in &self.access.reported_certificates {
            if let Some(at) = crate::door::identity::expiry(file) {
                self.metrics.certificate_expires(name, at);
            }
        }
        self.metrics.turns(self.gate.counts());
        let text = self.metrics.text(counts, size);
        text_page(
            StatusCode::OK,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            text,
        )
    }

    async fn slis_page(&self) -> Response<Body> {
        let mut checks = Vec::new();
        for endpoint in ["healthz", "livez", "readyz"] {
            let found = self.checks(endpoint).await;
            checks.extend(found.into_iter().map(|(name, ok)| (name, endpoint, ok)));
        }
        let content_type = "text/plain; version=0.0.4; charset=utf-8";
        text_page(StatusCode::OK, content_type, zpages::indicators(&checks))
    }

    async fn health(&self, endpoint: &str, only: Option<&str>, query: &Query) -> Response<Body> {
        health_page(endpoint, &self.checks(endpoint).await, only, query)
    }

    async fn checks(&self, endpoint: &str) -> Vec<(&'static str, bool)> {
        let mut checks = vec![
            ("ping", true),
            ("log", true),
            ("etcd", self.api.store.revision().await.is_ok()),
        ];
        // Upstream's name; who is ill, and why, is in the log.
        if let Some(encryption) = &self.api.encryption
            && let Some(health) = encryption.health().await
        {
            checks.push(("kms-providers", health.is_ok()));
        }
        if endpoint != "livez" {
            checks.push(("informer-sync", *self.ready.borrow()));
        }
        checks.push((
            "poststarthook/bootstrap",
            *self.ready.borrow() || endpoint == "livez",
        ));
        if endpoint == "readyz" {
            checks.push(("shutdown", !*self.api.shutdown.borrow()));
        }
        checks
    }
}

// Whoever checks our tokens may keep these for a while, as upstream says.
fn issuer_page(document: Option<String>, content_type: &'static str) -> Response<Body> {
    let Some(document) = document else {
        return not_found_page();
    };
    let mut page = text_page(StatusCode::OK, content_type, document);
    let lifetime = HeaderValue::from_static(issuer::CACHE_CONTROL);
    page.headers_mut().insert(CACHE_CONTROL, lifetime);
    page
}

// A failing check is named; its reason goes to the log and not to strangers.
fn health_page(
    endpoint: &str,
    checks: &[(&str, bool)],
    only: Option<&str>,
    query: &Query,
) -> Response<Body> {
    const PLAIN: &str = "text/plain; charset=utf-8";
    if let Some(name) = only {
        return match checks.iter().find(|(check, _)| *check == name) {
            Some((_, true)) => text_page(StatusCode::OK, PLAIN, "ok"),
            Some((_, false)) => text_page(
                StatusCode::INTERNAL_SERVER_ERROR,
                PLAIN,
                format!("internal server error: {name} failed\n"),
            ),
            None => text_page(StatusCode::NOT_FOUND, PLAIN, "404 page not found\n"),
        };
    }
    let excluded = query.all("exclude");
    let mut healthy = true;
    let mut lines = String::new();
    for (name, ok) in checks {
        let line = match (excluded.iter().any(|e| e == name), ok) {
            (true, _) => format!("[+]{name} excluded: ok\n"),
            (false, true) => format!("[+]{name} ok\n"),
            (false, false) => {
                healthy = false;
                format!("[-]{name} failed: reason withheld\n")
            }
        };
        lines.push_str(&line);
    }
    match (healthy, query.has("verbose")) {
        (true, false) => text_page(StatusCode::OK, PLAIN, "ok"),
        (true, true) => text_page(
            StatusCode::OK,
            PLAIN,
            format!("{lines}{endpoint} check passed\n"),
        ),
        (false, _) => text_page(
            StatusCode::INTERNAL_SERVER_ERROR,
            PLAIN,
            format!("{lines}{endpoint} check failed\n"),
        ),
    }
}

fn version() -> Value {
    let (major, minor) = VERSION;
    json!({
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": "35",
        "gitVersion": git_version(),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": platform(),
    })
}

fn plain_page(text: String) -> Response<Body> {
    text_page(StatusCode::OK, probes::TEXT, text)
}

pub(crate) fn git_version() -> String {
    let (major, minor) = VERSION;
    format!("v{major}.{minor}.0+kyanite-{}", env!("CARGO_PKG_VERSION"))
}

pub(crate) fn platform() -> String {
    format!("{}/{}", std::env::consts::OS, go_arch())
}

fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

// These exist as JSON and in no other form, whatever else the client would take.
fn only_json_page(headers: &HeaderMap, query: &Query, value: &Value) -> Response<Body> {
    let accepted = Accepted {
        format: negotiate::Format::Json,
        ..negotiate::accept(headers, query.get("pretty"), Offer::Documents)
            .unwrap_or(Accepted::JSON)
    };
    let bytes = view::encode(value, accepted);
    text_page(StatusCode::OK, accepted.format.media_type(), bytes)
}

fn json_page(headers: &HeaderMap, query: &Query, value: &Value) -> Result<Response<Body>> {
    let accepted = negotiate::accept(headers, query.get("pretty"), Offer::Documents)?;
    // What has no protobuf form is answered as JSON, and says so.
    let (format, bytes) = match (accepted.format, view::encode_protobuf(value)) {
        (negotiate::Format::Protobuf, Some(bytes)) => (accepted.format, bytes),
        (negotiate::Format::Protobuf, None) => {
            (negotiate::Format::Json, view::encode(value, Accepted::JSON))
        }
        (format, _) => (format, view::encode(value, accepted)),
    };
    Ok(text_page(StatusCode::OK, format.media_type(), bytes))
}

fn aggregated_page(headers: &HeaderMap, aggregated: &Aggregated) -> Response<Body> {
    let unchanged = headers
        .get(IF_NONE_MATCH)
        .is_some_and(|tag| tag.as_bytes() == aggregated.etag.as_bytes());
    let mut response = match unchanged {
        true => text_page(StatusCode::NOT_MODIFIED, AGGREGATED_TYPE, ""),
        false => text_page(StatusCode::OK, AGGREGATED_TYPE, aggregated.text.clone()),
    };
    let out = response.headers_mut();
    out.insert(VARY, HeaderValue::from_static("Accept"));
    out.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    if let Ok(tag) = HeaderValue::from_str(&aggregated.etag) {
        out.insert(ETAG, tag);
    }
    response
}

/// The forms of OpenAPI v2 by the names clients have for them, older ones included, and what the answer says it is
/// (upstream's kube-openapi).
const OPENAPI_V2: [(&str, &str); 3] = [
    ("application/json", "application/json"),
    (
        "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    ),
    (
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    ),
];

fn openapi_v2(headers: &HeaderMap, published: &Published) -> Result<Response<Body>> {
    let accept = headers.get(ACCEPT).and_then(|v| v.to_str().ok());
    let form = openapi_v2_form(accept.unwrap_or_default());
    let form = form.ok_or_else(|| ApiError::not_acceptable("application/json"))?;
    let (made, own) = match form {
        "application/json" => (published.v2(), openapi::v2()),
        _ => (published.v2_protobuf(), openapi::v2_protobuf()),
    };
    let document = made.map_or(Document::Own(own), Document::Made);
    Ok(document_page(headers, &document, form))
}

fn openapi_v2_form(accept: &str) -> Option<&'static str> {
    negotiate::by_preference(accept).find_map(|media| {
        let mut forms = OPENAPI_V2.iter();
        let found =
            forms.find(|(name, _)| *name == media || media == "*/*" || media == "application/*");
        found.map(|(_, form)| *form)
    })
}

/// A document of the program, or one of custom resources.
enum Document<'p> {
    Own(&'static openapi::Document),
    Made(&'p published::Page),
}

impl Document<'_> {
    fn hash(&self) -> &str {
        match self {
            Document::Own(document) => document.hash,
            Document::Made(page) => &page.hash,
        }
    }
}

fn openapi_v3(
    headers: &HeaderMap,
    name: &str,
    query: &Query,
    published: &Published,
) -> Result<Response<Body>> {
    let place = name
        .strip_prefix("v3/")
        .ok_or_else(ApiError::no_such_path)?;
    let own = openapi::document(place).map(Document::Own);
    let document = own.or_else(|| published.document(place).map(Document::Made));
    let document = document.ok_or_else(ApiError::no_such_path)?;
    let mut response = document_page(headers, &document, "application/json");
    match query.get("hash") {
        Some(hash) if hash == document.hash() => {
            let out = response.headers_mut();
            out.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
            let next_year = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24 * 365);
            if let Ok(value) =
                HeaderValue::from_str(&next_year.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string())
            {
                out.insert(EXPIRES, value);
            }
        }
        Some(_) => {
            let target = format!("/openapi/{name}?hash={}", document.hash());
            let mut moved = text_page(
                StatusCode::MOVED_PERMANENTLY,
                "text/plain; charset=utf-8",
                "",
            );
            if let Ok(value) = HeaderValue::from_str(&target) {
                moved.headers_mut().insert(LOCATION, value);
            }
            return Ok(moved);
        }
        None => {}
    }
    Ok(response)
}

/// The text of a document, unpacked once: however many ask for it, it is in memory once.
fn unpacked(document: &'static openapi::Document) -> Bytes {
    static TEXTS: Mutex<BTreeMap<&str, Bytes>> = Mutex::new(BTreeMap::new());
    // Nothing can panic while it is held.
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    // Not by path: OpenAPI v2 has two forms there.
    let text = texts.entry(document.hash);
    text.or_insert_with(|| document.json().into()).clone()
}

// The compressed bytes are in the binary; only a client that takes no gzip costs work.
fn document_page(
    headers: &HeaderMap,
    document: &Document<'_>,
    content_type: &'static str,
) -> Response<Body> {
    let tag = format!("\"{}\"", document.hash());
    if headers
        .get(IF_NONE_MATCH)
        .is_some_and(|t| t.as_bytes() == tag.as_bytes())
    {
        return text_page(StatusCode::NOT_MODIFIED, content_type, "");
    }
    let gzip = headers
        .get(http::header::ACCEPT_ENCODING)
        .and_then(|v| v.to_str().ok())
        .is_some_and(|v| v.contains("gzip"));
    let body = match (document, gzip) {
        (Document::Own(own), true) => Body::Shared([Bytes::from_static(own.gzip)].into()),
        (Document::Own(own), false) => Body::Shared([unpacked(own)].into()),
        (Document::Made(page), true) => Body::Shared([page.gzip.clone()].into()),
        (Document::Made(page), false) => {
            Body::Chunks(Box::new(packing::unpacked(page.gzip.clone())))
        }
    };
    let mut response = Response::new(body);
    let out = response.headers_mut();
    out.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    out.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if gzip {
        out.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if let Ok(value) = HeaderValue::from_str(&tag) {
        out.insert(ETAG, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_more_is_not_a_text_more() {
        let own = Document::Own(openapi::v2());
        let ask = || match document_page(&HeaderMap::new(), &own, "application/json").into_body() {
            Body::Shared(parts) => parts[0].clone(),
            other => panic!("{other:?} is not shared"),
        };
        let (first, second) = (ask(), ask());
        assert_eq!(first.len(), openapi::v2().json_len);
        assert_eq!(first.as_ptr(), second.as_ptr());
    }

    #[test]
    fn openapi_v2_comes_in_the_form_that_is_wanted_most() {
        let protobuf = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
        let cases = [
            ("", Some("application/json")),
            ("*/*", Some("application/json")),
            ("application/json", Some("application/json")),
            (
                "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
                Some(protobuf),
            ),
            (protobuf, Some(protobuf)),
            (
                "application/json;q=0.5, application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
                Some(protobuf),
            ),
            (
                "application/yaml, application/json",
                Some("application/json"),
            ),
            ("application/yaml", None),
        ];
        for (accept, expected) in cases {
            assert_eq!(openapi_v2_form(accept), expected, "{accept}");
        }
    }

    #[test]
    fn a_failing_check_is_named_and_can_be_excluded() {
        let checks = [("ping", true), ("etcd", false)];
        let page = |q: &str, only| health_page("readyz", &checks, only, &Query::parse(Some(q)));
        assert_eq!(page("", None).status(), 500);
        assert_eq!(page("exclude=etcd", None).status(), 200);
        assert_eq!(page("", Some("ping")).status(), 200);
        assert_eq!(page("", Some("etcd")).status(), 500);
        assert_eq!(page("", Some("other")).status(), 404);
    }
}
