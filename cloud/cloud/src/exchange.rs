//! A request and an answer, without the connection they come over.

mod lenient;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::Value;

/// What a client asks.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    /// As sent, percent-decoded, without a slash at its end.
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Asked {
    /// A request of a method, a path with its query, and a body.
    pub(crate) fn new(method: Method, target: &str, headers: HeaderMap, body: Bytes) -> Asked {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = decode(path, false);
        let path = match path.trim_end_matches('/') {
            "" => "/".to_owned(),
            trimmed => trimmed.to_owned(),
        };
        Asked {
            method,
            path,
            query: form(query),
            headers,
            body,
        }
    }

    /// The path's segments as they were sent.
    pub(crate) fn segments(&self) -> Vec<&str> {
        self.path.split('/').filter(|s| !s.is_empty()).collect()
    }

    /// A parameter of the query; names have no case, as ARM reads them.
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        let found = self
            .query
            .iter()
            .find(|(k, _)| k.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The body as JSON, read as generously as ARM reads; an empty one is `null`.
    pub(crate) fn json(&self) -> Result<Value, serde_json::Error> {
        match self.body.is_empty() {
            true => Ok(Value::Null),
            false => serde_json::from_slice(&self.body).or_else(|error| {
                let text = String::from_utf8_lossy(&self.body);
                serde_json::from_str(&lenient::strict(&text)).map_err(|_| error)
            }),
        }
    }

    /// The fields of a form.
    pub(crate) fn form(&self) -> Vec<(String, String)> {
        form(&String::from_utf8_lossy(&self.body))
    }
}

fn form(text: &str) -> Vec<(String, String)> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let split = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key, true), decode(value, true))
    };
    pairs.map(split).collect()
}

/// Takes percent escapes away; what is not one stays.
fn decode(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped {
            Some(byte) => {
                out.push(byte);
                at += 2;
            }
            None if bytes[at] == b'+' && plus_is_space => out.push(b' '),
            None => out.push(bytes[at]),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Escapes what may not stand in a query's value.
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(byte as char);
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// What a client is told.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

/// What an answer carries.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    Nothing,
    Json(Value),
    Text(&'static str, String),
}

impl Reply {
    /// An answer without a body.
    pub(crate) fn empty(status: u16) -> Reply {
        Reply {
            status: StatusCode::from_u16(status).expect("statuses are constants of ours"),
            headers: HeaderMap::new(),
            body: Body::Nothing,
        }
    }

    pub(crate) fn json(status: u16, body: Value) -> Reply {
        Reply {
            body: Body::Json(body),
            ..Reply::empty(status)
        }
    }

    pub(crate) fn ok(body: Value) -> Reply {
        Reply::json(200, body)
    }

    /// A page of a list without further pages.
    pub(crate) fn list(value: Vec<Value>) -> Reply {
        Reply::ok(serde_json::json!({ "value": value }))
    }

    /// The answer with one more header; a value that no header can carry is left out.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Reply {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    /// The body as a document, where it is one.
    #[cfg(test)]
    pub(crate) fn document(&self) -> &Value {
        match &self.body {
            Body::Json(value) => value,
            _ => &Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_queries_are_decoded_once() {
        let asked = Asked::new(
            Method::GET,
            "/a%20b/c/?$filter=x%20eq+'y'&Api-Version=1&empty",
            HeaderMap::new(),
            Bytes::new(),
        );
        assert_eq!(asked.path, "/a b/c");
        assert_eq!(asked.param("$filter"), Some("x eq 'y'"));
        assert_eq!(asked.param("api-version"), Some("1"));
        assert_eq!(asked.param("empty"), Some(""));
        assert_eq!(decode("100%", false), "100%");
        assert_eq!(decode(&encode("a/b ü&="), true), "a/b ü&=");
    }
}
