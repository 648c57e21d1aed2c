//! What is not a resource: discovery, OpenAPI, health, version, metrics.

use access::tokens::discovery;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, EXPIRES, IF_NONE_MATCH, LOCATION,
    VARY,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::app::{App, not_found_page, text_page};
use crate::body::Body;
use crate::discovery::Aggregated;
use crate::negotiate::{self, Accepted, Offer};
use crate::request::Query;
use crate::status::{ApiError, Result};
use crate::view;

/// The Kubernetes version this server speaks.
pub(crate) const VERSION: (&str, &str) = ("1", "36");
/// The same as nodes are asked for it: their kubelets are of this release.
pub const RELEASE: &str = "1.36.0";

const AGGREGATED_TYPE: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

impl App {
    pub(crate) async fn page(
        &self,
        request: &Request<Incoming>,
        path: &str,
    ) -> Result<Response<Body>> {
        let query = Query::parse(request.uri().query());
        let headers = request.headers();
        let is_health = ["/healthz", "/livez", "/readyz"]
            .iter()
            .any(|p| path.starts_with(p));
        if !matches!(*request.method(), Method::GET | Method::HEAD) && !is_health {
            let known = self.discovery.document(path).is_some() || path == "/version";
            return if known {
                Err(ApiError::method_not_allowed())
            } else {
                Ok(not_found_page())
            };
        }
        if let Some(response) = self.discovery_page(headers, path, &query)? {
            return Ok(response);
        }
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
            ("version", None) if !negotiate::takes_json(headers) => {
                Err(ApiError::no_representation("application/json"))
            }
            ("version", None) => Ok(only_json_page(headers, &query, &version())),
            ("livez" | "readyz" | "healthz", name) => Ok(self.health(check, name, &query).await),
            ("metrics", None) => Ok(self.metrics_page().await),
            (".well-known", Some("openid-configuration")) => {
                let address = self.advertise.to_string();
                Ok(issuer_page(
                    self.api.authenticator.accounts.metadata(&address),
                    "application/json",
                ))
            }
            ("openid", Some("v1/jwks")) => Ok(issuer_page(
                self.api.authenticator.accounts.key_set(),
                discovery::KEYS_TYPE,
            )),
            ("openapi", Some("v2")) => openapi_v2(headers),
            ("openapi", Some("v3")) => Ok(text_page(
                StatusCode::OK,
                "application/json",
                openapi::index(),
            )),
            ("openapi", Some(name)) => openapi_v3(headers, name, &query),
            _ => Ok(not_found_page()),
        }
    }

    fn discovery_page(
        &self,
        headers: &HeaderMap,
        path: &str,
        query: &Query,
    ) -> Result<Option<Response<Body>>> {
        if negotiate::wants_aggregated_discovery(headers)
            && let Some(aggregated) = self.discovery.aggregated(path)
        {
            return Ok(Some(aggregated_page(headers, aggregated)));
        }
        match self.discovery.document(path) {
            Some(document) => json_page(headers, query, document).map(Some),
            None => Ok(None),
        }
    }

    fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = [
            "/healthz",
            "/livez",
            "/metrics",
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
        for resource in kinds::resources::all() {
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
        let counts = self
            .api
            .cache
            .collections()
            .map(|c| (c.resource.qualified(), c.count()));
        let size = self.api.store.size().await.unwrap_or(0);
        for (name, file) in &self.access.reported_certificates {
            if let Some(at) = crate::identity::expiry(file) {
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

    async fn health(&self, endpoint: &str, only: Option<&str>, query: &Query) -> Response<Body> {
        let mut checks = vec![
            ("ping", true),
            ("log", true),
            ("etcd", self.api.store.revision().await.is_ok()),
        ];
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
        health_page(endpoint, &checks, only, query)
    }
}

// Whoever checks our tokens may keep these for a while, as upstream says.
fn issuer_page(document: Option<String>, content_type: &'static str) -> Response<Body> {
    let Some(document) = document else {
        return not_found_page();
    };
    let mut page = text_page(StatusCode::OK, content_type, document);
    let lifetime = HeaderValue::from_static(discovery::CACHE_CONTROL);
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
        "gitVersion": format!("v{major}.{minor}.0+kyanite-{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, go_arch()),
    })
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

fn openapi_v2(headers: &HeaderMap) -> Result<Response<Body>> {
    let accept = headers
        .get(ACCEPT)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let wants_json =
        accept.is_empty() || accept.contains("*/*") || accept.contains("application/json");
    if !wants_json {
        return Err(ApiError::not_acceptable("application/json"));
    }
    Ok(document_page(headers, openapi::v2()))
}

fn openapi_v3(headers: &HeaderMap, name: &str, query: &Query) -> Result<Response<Body>> {
    let document = name
        .strip_prefix("v3/")
        .and_then(openapi::document)
        .ok_or_else(ApiError::no_such_path)?;
    let mut response = document_page(headers, document);
    match query.get("hash") {
        Some(hash) if hash == document.hash => {
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
            let target = format!("/openapi/{name}?hash={}", document.hash);
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

// The compressed bytes are in the binary; only a client that takes no gzip costs work.
fn document_page(headers: &HeaderMap, document: &'static openapi::Document) -> Response<Body> {
    let tag = format!("\"{}\"", document.hash);
    if headers
        .get(IF_NONE_MATCH)
        .is_some_and(|t| t.as_bytes() == tag.as_bytes())
    {
        return text_page(StatusCode::NOT_MODIFIED, "application/json", "");
    }
    let gzip = headers
        .get(http::header::ACCEPT_ENCODING)
        .and_then(|v| v.to_str().ok())
        .is_some_and(|v| v.contains("gzip"));
    let body = match gzip {
        true => Body::Whole(Some(bytes::Bytes::from_static(document.gzip))),
        false => document.json().into(),
    };
    let mut response = Response::new(body);
    let out = response.headers_mut();
    out.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
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
