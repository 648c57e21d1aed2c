//! URLs: absolute ones and absolute paths, taken apart as Go does.

use super::{Opaque, Table, opaque, text};
use crate::error::{Error, Result};
use crate::value::Value;

pub(super) const TABLE: Table = &[
    ("url", |args| {
        let url = Url::parse(text(args, 0)?).map_err(Error::new)?;
        Ok(Value::opaque(Opaque::Url(url)))
    }),
    ("isURL", |args| {
        Ok(Value::Bool(Url::parse(text(args, 0)?).is_ok()))
    }),
    ("getScheme", |args| {
        Ok(Value::string(url(args)?.scheme.clone()))
    }),
    ("getHost", |args| Ok(Value::string(url(args)?.host.clone()))),
    ("getHostname", |args| {
        Ok(Value::string(url(args)?.hostname()))
    }),
    ("getPort", |args| Ok(Value::string(url(args)?.port()))),
    ("getEscapedPath", |args| {
        Ok(Value::string(url(args)?.path.clone()))
    }),
    ("getQuery", |args| Ok(url(args)?.query_values())),
];

/// A URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
}

fn url<'v>(args: &'v [Value<'_>]) -> Result<&'v Url> {
    match opaque(args, 0)? {
        Opaque::Url(url) => Ok(url),
        _ => Err(Error::no_overload()),
    }
}

impl Url {
    fn parse(text: &str) -> std::result::Result<Url, String> {
        let fail = |why: &str| {
            format!("URL parse error during conversion from string: parse {text:?}: {why}")
        };
        if text.is_empty() {
            return Err(fail("empty url"));
        }
        if text.chars().any(|c| c.is_control()) {
            return Err(fail("net/url: invalid control character in URL"));
        }
        if !escapes_are_good(text) {
            return Err(fail("invalid URL escape"));
        }
        let (scheme, rest) = match scheme_of(text) {
            Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
            None => (String::new(), text),
        };
        if scheme.is_empty() && !rest.starts_with('/') {
            return Err(fail("invalid URI for request"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) = match rest.strip_prefix("//") {
            Some(rest) if !scheme.is_empty() => {
                let end = rest.find('/').unwrap_or(rest.len());
                rest.split_at(end)
            }
            _ if !scheme.is_empty() && !rest.starts_with('/') => {
                return Err(fail("invalid URI for request"));
            }
            _ => ("", rest),
        };
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        if !host_is_good(host) {
            return Err(fail("invalid character in host name"));
        }
        let query = query.to_owned();
        Ok(Url {
            scheme,
            host: host.to_owned(),
            path: path.to_owned(),
            query,
        })
    }

    fn split_host(&self) -> (&str, &str) {
        match self.host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => (host, port),
            _ => (&self.host, ""),
        }
    }

    fn hostname(&self) -> String {
        self.split_host().0.trim_matches(['[', ']']).to_owned()
    }

    fn port(&self) -> String {
        self.split_host().1.to_owned()
    }

    fn query_values<'a>(&self) -> Value<'a> {
        let mut found: Vec<(String, Vec<Value<'a>>)> = Vec::new();
        let pairs = self.query.split('&').filter(|pair| !pair.is_empty());
        // Go drops pairs with a semicolon.
        for pair in pairs.filter(|pair| !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (unescaped(key), Value::string(unescaped(value)));
            match found.iter_mut().find(|(known, _)| *known == key) {
                Some((_, values)) => values.push(value),
                None => found.push((key, vec![value])),
            }
        }
        let entries = found.into_iter();
        Value::map(
            entries
                .map(|(k, v)| (Value::string(k), Value::list(v)))
                .collect(),
        )
    }
}

fn scheme_of(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let first = scheme.chars().next()?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    (first.is_ascii_alphabetic() && scheme.chars().all(fits)).then_some((scheme, rest))
}

fn escapes_are_good(text: &str) -> bool {
    let bytes = text.as_bytes();
    let path_end = text.find('?').unwrap_or(bytes.len());
    (0..path_end).filter(|at| bytes[*at] == b'%').all(|at| {
        let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
        hex(at + 1) && hex(at + 2)
    })
}

fn host_is_good(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        let Some((inner, port)) = rest.split_once(']') else {
            return false;
        };
        let port = port.strip_prefix(':').unwrap_or(port);
        return inner.parse::<std::net::Ipv6Addr>().is_ok()
            && port.bytes().all(|b| b.is_ascii_digit());
    }
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    port.bytes().all(|b| b.is_ascii_digit()) && !name.chars().any(|c| " \"<>\\^`{|}#".contains(c))
}

fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = text
            .get(at + 1..at + 3)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[at], code) {
            (b'%', Some(code)) => {
                out.push(code);
                at += 3;
                continue;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}
