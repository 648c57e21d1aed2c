//! What a value can be asked to be.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_kit::duration::go;
use kube_kit::quantity::Quantity;

use crate::config::declare::View;
use crate::config::json;
use crate::environment::sysctl::port_range;
use crate::version::Version;

/// A rule for one value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Check {
    /// Base64 of PEM with at least one such block.
    Pem(&'static str),
    /// Base64 of anything.
    Base64,
    /// A JSON object, plain or in base64.
    Environment,
    /// A release number.
    Release,
    /// `http://` or `https://` and a host.
    Url,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A whole number between these, both included.
    Between(i32, i32),
    /// A duration of Go: `30s`, `1m30s`.
    Duration,
    /// A host name or address without a scheme.
    Host,
    /// An IP address.
    Ip,
    /// `id.secret` of a bootstrap token.
    Token,
    /// An absolute path.
    Path,
    /// An amount such as `100m` or `2Gi`.
    Quantity,
    /// An amount or a percentage.
    Threshold,
    /// `low high`.
    PortRange,
    /// A limit of systemd: a number, perhaps with a unit, or `infinity`; `soft:hard`.
    Limit,
    /// A user's name.
    User,
}

impl Check {
    /// Whether `view` is what it should be. What is not there is nobody's problem.
    pub(super) fn holds(self, view: &View<'_>) -> bool {
        match view {
            View::Text(text) | View::Secret(text) => text.is_empty() || self.text_holds(text),
            View::Number(number) => match self {
                Check::Between(low, high) => (low..=high).contains(number),
                _ => true,
            },
            _ => true,
        }
    }

    fn text_holds(self, text: &str) -> bool {
        match self {
            Check::Pem(label) => decoded(text).is_some_and(|pem| is_pem(&pem, label)),
            Check::Base64 => decoded(text).is_some(),
            Check::Environment => {
                is_object(text.as_bytes()) || decoded(text).is_some_and(|json| is_object(&json))
            }
            Check::Release => {
                Version::parse(text).is_some()
                    && text.split('.').count() >= 3
                    && !text.starts_with('v')
            }
            Check::Url => is_url(text),
            Check::OneOf(words) => words.contains(&text),
            Check::Between(..) => true,
            Check::Duration => is_duration(text),
            Check::Host => is_host(text),
            Check::Ip => text.parse::<IpAddr>().is_ok(),
            Check::Token => is_token(text),
            Check::Path => text.starts_with('/'),
            Check::Quantity => is_quantity(text),
            Check::Threshold => is_percentage(text) || is_quantity(text),
            Check::PortRange => port_range(text).is_some_and(|(_, end)| end <= 65535),
            Check::Limit => text.split(':').count() <= 2 && text.split(':').all(is_limit),
            Check::User => is_user(text),
        }
    }

    /// The rule, after "must be".
    pub(super) fn rule(self) -> String {
        let text = match self {
            Check::Pem(label) => return format!("must be base64 of PEM with a {label}"),
            Check::OneOf(words) => return format!("must be one of {}", words.join(", ")),
            Check::Between(low, i32::MAX) => return format!("must be {low} or more"),
            Check::Between(low, high) => return format!("must be between {low} and {high}"),
            Check::Base64 => "base64",
            Check::Environment => "a JSON object, plain or in base64",
            Check::Release => "a release such as 1.34.8, without `v`",
            Check::Url => "an http:// or https:// URL with a host",
            Check::Duration => "a duration such as 30s, 5m or 1h30m",
            Check::Host => "a host name or IP address, without https://",
            Check::Ip => "an IP address",
            Check::Token => "six characters, a dot and sixteen characters out of a-z and 0-9",
            Check::Path => "an absolute path",
            Check::Quantity => "an amount such as 100m or 2Gi",
            Check::Threshold => "an amount such as 750Mi or a percentage such as 10%",
            Check::PortRange => "two ports, the lower first, with one space between",
            Check::Limit => "a number, or `infinity`, or two of them as soft:hard",
            Check::User => "a user name: a-z, 0-9, _ and -, not starting with a digit",
        };
        format!("must be {text}")
    }

    /// What usually helps.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Check::Pem(_) => "encode the PEM file: `base64 -w0 FILE`",
            Check::Base64 => "encode it: `base64 -w0 FILE`",
            Check::Token => "make one: `kyanite token create`",
            Check::Release => {
                "give the cluster's version as `kubectl version` prints it, without `v`"
            }
            Check::Host => "give the name alone, as in the kubeconfig after https://",
            _ => "correct the value",
        }
    }
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    STANDARD.decode(text).ok()
}

/// Whether `pem` has a block whose label ends so, with base64 inside.
fn is_pem(pem: &[u8], label: &str) -> bool {
    let Ok(text) = std::str::from_utf8(pem) else {
        return false;
    };
    let begin = format!("{label}-----");
    let Some((_, rest)) = text
        .split_once("-----BEGIN ")
        .and_then(|(_, rest)| rest.split_once(&begin))
    else {
        return false;
    };
    let body = rest
        .split_once("-----END ")
        .map(|(body, _)| body.split_whitespace().collect::<String>());
    body.is_some_and(|body| !body.is_empty() && STANDARD.decode(body).is_ok())
}

fn is_object(text: &[u8]) -> bool {
    matches!(json::parse(text), Ok(node) if matches!(node.value, json::Json::Object(_)))
}

fn is_url(text: &str) -> bool {
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split(['/', '?']).next());
    host.is_some_and(|host| !host.is_empty() && !host.contains(char::is_whitespace))
}

pub(super) fn is_host(text: &str) -> bool {
    let text = text.trim();
    let name = match text.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => text,
    };
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.parse::<IpAddr>().is_ok()
        || (name.len() <= 253 && name.trim_end_matches('.').split('.').all(label))
}

fn is_token(text: &str) -> bool {
    let part = |part: &str, length| {
        part.len() == length
            && part
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    text.split_once('.')
        .is_some_and(|(id, secret)| part(id, 6) && part(secret, 16))
}

fn is_duration(text: &str) -> bool {
    go::parse(text).is_ok()
}

fn is_quantity(text: &str) -> bool {
    text.parse::<Quantity>().is_ok()
}

fn is_percentage(text: &str) -> bool {
    let number = text
        .strip_suffix('%')
        .and_then(|number| number.parse::<f64>().ok());
    number.is_some_and(|percent| (0.0..=100.0).contains(&percent))
}

fn is_limit(text: &str) -> bool {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T', 'P', 'E']);
    let number = text.len() - digits.len() <= 1
        && !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit());
    text == "infinity" || number
}

fn is_user(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
    text.len() <= 32
        && text.bytes().all(allowed)
        && !text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
}
