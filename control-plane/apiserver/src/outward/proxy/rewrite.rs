//! What a proxy changes on the way: headers, redirects, links in pages. Pure.
//!
//! The rules are those of `apimachinery/pkg/util/proxy/transport.go` and of Go's reverse proxy: a server
//! behind us thinks that it is at the root, so what it says about its own paths gets our prefix.

mod html;

pub(super) use html::rewrite as html;

use http::header::{CONNECTION, HeaderName, HeaderValue, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, Method};

use crate::door::request::percent_decoded;

/// Headers that are about one connection, not about the message.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// What a server behind us may not say about who may read its answers: that is for us to say.
const CORS: [HeaderName; 4] = [
    HeaderName::from_static("access-control-allow-credentials"),
    HeaderName::from_static("access-control-allow-headers"),
    HeaderName::from_static("access-control-allow-methods"),
    HeaderName::from_static("access-control-allow-origin"),
];

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// Takes out what must not be passed on.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let keeps_trailers = headers.get_all(TE).iter().any(|value| value == "trailers");
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    if keeps_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Takes out what a server behind us may not say.
pub(super) fn strip_cors(headers: &mut HeaderMap) {
    for name in &CORS {
        headers.remove(name);
    }
}

/// Adds the client to those for whom a request was passed on.
pub(super) fn forwarded_for(headers: &mut HeaderMap, client: std::net::IpAddr) {
    let before = headers.get_all(&FORWARDED_FOR).iter();
    let mut all: Vec<String> = before
        .filter_map(|value| value.to_str().ok().map(str::to_owned))
        .collect();
    all.push(client.to_canonical().to_string());
    if let Ok(value) = HeaderValue::from_str(&all.join(", ")) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// Says which of our paths the client asked for.
pub(super) fn forwarded_uri(headers: &mut HeaderMap, path: &str) {
    if let Ok(value) = HeaderValue::from_str(path) {
        headers.insert(FORWARDED_URI, value);
    }
}

/// The path behind us that a proxied request means: decoded, cleaned, with its last slash. Empty where the
/// request ends with `proxy`.
pub(super) fn path_behind(rest: &str, request_path: &str) -> String {
    let ends_in_slash = request_path.ends_with('/');
    if rest.is_empty() {
        return if ends_in_slash {
            "/".into()
        } else {
            String::new()
        };
    }
    let mut path = clean(rest);
    if ends_in_slash && !path.ends_with('/') {
        path.push('/');
    }
    path
}

/// Where a page at an empty path really is: links in it would otherwise miss the last part of the path.
pub(super) fn redirect_to_root(
    method: &Method,
    behind: &str,
    path: &str,
    query: Option<&str>,
) -> Option<String> {
    let asks = matches!(*method, Method::GET | Method::HEAD);
    (asks && behind.is_empty()).then(|| match query {
        Some(query) => format!("{path}/?{query}"),
        None => format!("{path}/"),
    })
}

/// Go's `path.Clean` of a rooted path.
fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// A path as a request line has it (Go's escaping of paths).
pub(super) fn escape_path(path: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        b'-' | b'_' | b'.' | b'~' | b'$' | b'&' | b'+' | b',' | b'/' | b':' | b';' | b'='
        | b'@' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    path.bytes().map(byte).collect()
}

/// Turns addresses that a server behind us knows into ones that its clients can use.
#[derive(Debug)]
pub(super) struct Links {
    /// What stands before the path behind us: `/api/v1/nodes/n/proxy`.
    prefix: String,
    /// `host:port` behind us.
    behind: String,
    /// The `Host` the client asked for.
    asked: String,
}

impl Links {
    pub(super) fn new(
        request_path: &str,
        path_behind: &str,
        behind: String,
        asked: String,
    ) -> Links {
        let decoded = percent_decoded(request_path);
        let prefix = decoded.strip_suffix(path_behind).unwrap_or(&decoded);
        Links {
            prefix: escape_path(prefix),
            behind,
            asked,
        }
    }

    /// A link as it must be; nothing where it is right as it is.
    pub(super) fn rewrite(&self, link: &str) -> Option<String> {
        let (authority, path) = split(link)?;
        let foreign = authority.is_some_and(|host| host != self.behind && host != self.asked);
        if foreign || !path.starts_with('/') {
            return None;
        }
        // A link to the host that the client asked for keeps its beginning.
        let kept = match authority {
            Some(host) if host == self.asked => &link[..link.len() - path.len()],
            _ => "",
        };
        if path.starts_with(&self.prefix) {
            return Some(format!("{kept}{path}"));
        }
        let end = path.find(['?', '#']).unwrap_or(path.len());
        let (path, rest) = path.split_at(end);
        let mut cleaned = clean(path);
        if path.ends_with('/') && !cleaned.ends_with('/') {
            cleaned.push('/');
        }
        Some(format!("{kept}{}{cleaned}{rest}", self.prefix))
    }
}

// The authority, where there is one, and all from the path on. Nothing for `mailto:` and the like.
fn split(link: &str) -> Option<(Option<&str>, &str)> {
    let after_scheme = match link.find([':', '/', '?', '#']) {
        Some(at) if link.as_bytes()[at] == b':' => {
            let rest = &link[at + 1..];
            rest.starts_with('/').then_some(rest)?
        }
        _ => link,
    };
    let Some(rest) = after_scheme.strip_prefix("//") else {
        return Some((None, after_scheme));
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    Some((Some(host), path))
}

#[cfg(test)]
mod tests;
