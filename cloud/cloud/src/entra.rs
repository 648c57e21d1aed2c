//! Entra ID: who there is (`directory`, `graph`), how they prove it (`grant`), and what they get for it (`token`).

pub(crate) mod assertion;
pub(crate) mod directory;
pub(crate) mod discovery;
pub(crate) mod grant;
mod graph;
pub(crate) mod token;

use serde_json::{Value, json};

use crate::exchange::{Asked, Reply};
use crate::turn::Turn;
use token::{Caller, Keys};

/// A refusal as Entra words it: OAuth's error, and a numbered sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: u16,
    pub(crate) error: &'static str,
    pub(crate) number: u32,
    pub(crate) text: String,
}

impl Refused {
    pub(crate) fn new(error: &'static str, number: u32, text: impl Into<String>) -> Refused {
        let status = if error == "invalid_client" { 401 } else { 400 };
        Refused {
            status,
            error,
            number,
            text: text.into(),
        }
    }

    fn reply(&self, turn: &mut Turn<'_>) -> Reply {
        let (trace, correlation) = (turn.chance.guid(), turn.chance.guid());
        let time = turn.now.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
        let description = format!(
            "AADSTS{}: {} Trace ID: {trace} Correlation ID: {correlation} Timestamp: {time}",
            self.number, self.text
        );
        Reply::json(
            self.status,
            json!({
                "error": self.error, "error_description": description, "error_codes": [self.number], "timestamp": time,
                "trace_id": trace, "correlation_id": correlation,
                "error_uri": format!("{}/error?code={}", turn.settings.origin, self.number),
            }),
        )
    }
}

/// Whether a path belongs to Entra: a tenant, one of its aliases, or `adfs`, and then one of its trees.
pub(crate) fn is_its(segments: &[&str]) -> bool {
    const TREES: [&str; 6] = [
        ".well-known",
        "v2.0",
        "oauth2",
        "discovery",
        "userrealm",
        "kerberos",
    ];
    matches!(segments, [_, tree, ..] if TREES.contains(tree))
}

/// Answers a request to Entra.
pub(crate) fn answer(turn: &mut Turn<'_>, keys: &Keys, asked: &Asked) -> Reply {
    let segments = asked.segments();
    let (tenant, rest) = (segments[0], &segments[1..]);
    let outcome = match (asked.method.as_str(), rest) {
        ("GET", ["v2.0", ".well-known", "openid-configuration"]) => {
            discovery::document(turn, tenant, discovery::Version::Two)
        }
        ("GET", [".well-known", "openid-configuration"]) => {
            discovery::document(turn, tenant, discovery::Version::One)
        }
        ("GET", ["discovery", "v2.0", "keys"] | ["discovery", "keys"]) => {
            Ok(Reply::ok(keys.jwks()))
        }
        ("GET", ["discovery", "instance"]) => Ok(discovery::instance(turn)),
        ("GET", ["userrealm", name]) => Ok(discovery::user_realm(name)),
        ("POST", ["oauth2", "v2.0", "devicecode"] | ["oauth2", "devicecode"]) => {
            grant::device_code(turn, tenant, &asked.form())
        }
        ("POST", ["oauth2", "v2.0", "token"] | ["oauth2", "token"]) => {
            grant::token(turn, keys, tenant, &asked.form())
        }
        _ => Ok(Reply::empty(404)),
    };
    outcome.unwrap_or_else(|refused| {
        turn.forget();
        refused.reply(turn)
    })
}

/// Answers a request to Graph.
pub(crate) fn graph(turn: &mut Turn<'_>, caller: &Caller, asked: &Asked) -> Reply {
    graph::answer(turn, caller, asked)
}

/// The tenant's identifier for what a path calls it.
fn tenant_of(turn: &Turn<'_>, named: &str) -> Result<String, Refused> {
    let own = &turn.settings.tenant;
    let aliases = ["common", "organizations", "adfs", directory::DOMAIN];
    match named.eq_ignore_ascii_case(own) || aliases.contains(&named) {
        true => Ok(own.clone()),
        false => Err(Refused::new(
            "invalid_request",
            90002,
            format!(
                "Tenant '{named}' not found. Check to make sure you have the correct tenant ID and are signing into \
                 the correct cloud."
            ),
        )),
    }
}

/// A text field of a document, or nothing.
fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}
