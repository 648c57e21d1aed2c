//! What is in a vault: secrets, keys and certificates, each with its versions.
//!
//! A request becomes a [`Deed`]: what is done with which collection. Whether the caller may is asked once, by role or by
//! the vault's own policies; then the collection does it. What all three share is in `shelf`.

use http::Method;
use serde_json::{Value, json};

use super::shelf::{self, Shelf};
use super::{certificates, keys, named, secrets};
use crate::arm::access;
use crate::arm::document::Document;
use crate::entra::token::Caller;
use crate::exchange::{Asked, Reply};
use crate::turn::Turn;

/// Where a vault's name leads to its id.
pub(crate) fn by_name(name: &str) -> String {
    format!("vaultname/{}", name.to_lowercase())
}

/// The vault that a host is of: `<name>.vault.<this host>`.
pub(crate) fn of_host(host: &str) -> Option<&str> {
    let (name, rest) = host.split_once('.')?;
    rest.starts_with("vault.").then_some(name)
}

/// A refusal in the vault's own words.
#[derive(Debug)]
pub(super) struct Refused {
    status: u16,
    code: &'static str,
    message: String,
    inner: Option<&'static str>,
}

impl Refused {
    pub(super) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Refused {
        let message = message.into();
        Refused {
            status,
            code,
            message,
            inner: None,
        }
    }

    pub(super) fn bad(message: impl Into<String>) -> Refused {
        Refused::new(400, "BadParameter", message)
    }

    /// With the code that says more than the first one.
    pub(super) fn inner(mut self, code: &'static str) -> Refused {
        self.inner = Some(code);
        self
    }

    fn reply(&self) -> Reply {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(inner) = self.inner {
            error["innererror"] = json!({ "code": inner });
        }
        Reply::json(self.status, json!({ "error": error }))
    }
}

/// Whom a request without a token is sent to.
pub(crate) fn challenge(turn: &Turn<'_>) -> Reply {
    let settings = turn.settings;
    let value = format!(
        "Bearer authorization=\"{}/{}\", resource=\"https://vault.{}\"",
        settings.origin,
        settings.tenant,
        settings.host()
    );
    let message = "AKV10000: Request is missing a Bearer or PoP token.";
    Refused::new(401, "Unauthorized", message)
        .reply()
        .with("www-authenticate", &value)
}

/// What a vault keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Collection {
    Secrets,
    Keys,
    Certificates,
}

impl Collection {
    const ALL: [Collection; 3] = [
        Collection::Secrets,
        Collection::Keys,
        Collection::Certificates,
    ];

    /// Its word in addresses and in policies.
    pub(super) fn word(self) -> &'static str {
        match self {
            Collection::Secrets => "secrets",
            Collection::Keys => "keys",
            Collection::Certificates => "certificates",
        }
    }

    /// One of it, for messages.
    pub(super) fn one(self) -> &'static str {
        match self {
            Collection::Secrets => "Secret",
            Collection::Keys => "Key",
            Collection::Certificates => "Certificate",
        }
    }

    /// The collection of a word, and whether it is that of what was deleted.
    fn of(word: &str) -> Option<(Collection, bool)> {
        let bare = word.strip_prefix("deleted");
        let found = Collection::ALL
            .into_iter()
            .find(|collection| collection.word() == bare.unwrap_or(word));
        found.map(|collection| (collection, bare.is_some()))
    }
}

/// What is done: the word of a vault's policies for it. Roles have words of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Deed {
    collection: Collection,
    word: &'static str,
}

/// What somebody asks a vault for.
type Run = fn(&mut Turn<'_>, &Shelf<'_>, &Asked) -> Result<Reply, Refused>;

/// Every way to ask: the method, what follows the collection (`{}` is a version), what it is called, and who does it.
const WAYS: &[(Method, &str, &str, Run)] = &[
    (Method::GET, "", "list", shelf::list),
    (Method::POST, "restore", "restore", shelf::restore),
    (Method::GET, "{name}", "get", shelf::get),
    (Method::GET, "{name}/versions", "list", shelf::versions),
    (Method::GET, "{name}/{}", "get", shelf::get),
    (Method::PATCH, "{name}", "update", shelf::update),
    (Method::PATCH, "{name}/{}", "update", shelf::update),
    (Method::DELETE, "{name}", "delete", shelf::delete),
    (Method::POST, "{name}/backup", "backup", shelf::backup),
];
const DELETED: &[(Method, &str, &str, Run)] = &[
    (Method::GET, "", "list", shelf::list_deleted),
    (Method::GET, "{name}", "get", shelf::get_deleted),
    (Method::DELETE, "{name}", "purge", shelf::purge),
    (Method::POST, "{name}/recover", "recover", shelf::recover),
];

fn own_ways(collection: Collection) -> &'static [(Method, &'static str, &'static str, Run)] {
    match collection {
        Collection::Secrets => &[(Method::PUT, "{name}", "set", secrets::set)],
        Collection::Keys => keys::WAYS,
        Collection::Certificates => certificates::WAYS,
    }
}

/// The name and the version that a path has where a way has them.
fn fits<'w>(way: &str, words: &[&'w str]) -> Option<(&'w str, &'w str)> {
    let parts: Vec<&str> = way.split('/').filter(|part| !part.is_empty()).collect();
    if parts.len() != words.len() {
        return None;
    }
    let (mut name, mut version) = ("", "");
    for (part, word) in parts.iter().zip(words) {
        match *part {
            "{name}" => name = word,
            "{}" => version = word,
            part if part.eq_ignore_ascii_case(word) => {}
            _ => return None,
        }
    }
    Some((name, version))
}

/// Answers a request to a vault.
pub(crate) fn answer(turn: &mut Turn<'_>, caller: &Caller, vault: &str, asked: &Asked) -> Reply {
    let outcome = decide(turn, caller, vault, asked);
    if outcome.is_err() {
        turn.forget();
    }
    outcome.unwrap_or_else(|refused| refused.reply())
}

fn decide(
    turn: &mut Turn<'_>,
    caller: &Caller,
    vault: &str,
    asked: &Asked,
) -> Result<Reply, Refused> {
    let document = named(turn, vault)
        .ok_or_else(|| Refused::new(404, "VaultNotFound", "The vault was not found."))?;
    let segments = asked.segments();
    let nothing = || Refused::new(404, "NotFound", "A vault has nothing at this address.");
    let (first, rest) = segments.split_first().ok_or_else(nothing)?;
    let (collection, is_deleted) = Collection::of(first).ok_or_else(nothing)?;
    let ways = match is_deleted {
        true => [DELETED, &[]],
        false => [own_ways(collection), WAYS],
    };
    let mut all = ways.into_iter().flatten();
    let (name, version, word, run) = all
        .find_map(|(method, way, word, run)| {
            let (name, version) = fits(way, rest).filter(|_| method == asked.method)?;
            Some((name, version, *word, run))
        })
        .ok_or_else(nothing)?;
    check(turn, caller, &document, Deed { collection, word })?;
    let shelf = Shelf {
        vault,
        document: &document,
        collection,
        name,
        version,
    };
    run(turn, &shelf, asked)
}

/// The words of roles where they are not `<word>/action`.
fn action(deed: Deed) -> String {
    let word = match (deed.collection, deed.word) {
        (Collection::Secrets, "get") => "getSecret/action",
        (Collection::Secrets, "set") => "setSecret/action",
        (Collection::Secrets, "list") => "readMetadata/action",
        (_, "get" | "list") => "read",
        (_, "delete") => "delete",
        (_, "wrapKey") => "wrap/action",
        (_, "unwrapKey") => "unwrap/action",
        (collection, word) => {
            return format!(
                "Microsoft.KeyVault/vaults/{}/{word}/action",
                collection.word()
            );
        }
    };
    format!(
        "Microsoft.KeyVault/vaults/{}/{word}",
        deed.collection.word()
    )
}

fn check(turn: &Turn<'_>, caller: &Caller, vault: &Document, deed: Deed) -> Result<(), Refused> {
    let action = action(deed);
    let allowed = match vault.body["properties"]["enableRbacAuthorization"] != false {
        true => access::may(turn, caller, &action, vault.id(), true),
        false => by_policy(caller, vault, deed),
    };
    if allowed {
        return Ok(());
    }
    let message = format!(
        "Caller is not authorized to perform action on resource.\r\nIf role assignments, deny assignments or role \
         definitions were changed recently, please observe propagation time.\r\nCaller: appid={};oid={}\r\nAction: \
         '{action}'\r\nResource: '{}'\r\nAssignment: (not found)\r\nVault: {};location={}",
        caller.app_id,
        caller.object_id,
        vault.id().to_lowercase(),
        vault.body["name"].as_str().unwrap_or_default(),
        vault.body["location"].as_str().unwrap_or_default()
    );
    Err(Refused::new(403, "Forbidden", message).inner("ForbiddenByRbac"))
}

fn by_policy(caller: &Caller, vault: &Document, deed: Deed) -> bool {
    // Policies know no `update` of secrets: whoever sets may change.
    let word = match (deed.collection, deed.word) {
        (Collection::Secrets, "update") => "set",
        (_, word) => word,
    };
    let policies = vault.body["properties"]["accessPolicies"].as_array();
    policies.into_iter().flatten().any(|policy| {
        let of_caller = policy["objectId"]
            .as_str()
            .is_some_and(|id| id == caller.object_id || caller.groups.iter().any(|g| g == id));
        let allowed = policy["permissions"][deed.collection.word()].as_array();
        let mut allowed = allowed.into_iter().flatten().filter_map(Value::as_str);
        of_caller
            && allowed.any(|one| one.eq_ignore_ascii_case(word) || one.eq_ignore_ascii_case("all"))
    })
}

#[cfg(test)]
mod tests;
