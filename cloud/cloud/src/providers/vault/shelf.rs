//! What secrets, keys and certificates share: versions, lists, and the time between deleted and gone.
//!
//! `vault/<vault>/<collection>/<name>/<time>-<version>` holds one version, `{"bundle", "private"}`; the newest is the
//! last. What is deleted lies as a whole at `vault/<vault>/deleted<collection>/<name>`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::data::{Collection, Refused};
use crate::arm::document::{self, Document};
use crate::exchange::{Asked, Reply, encode};
use crate::turn::Turn;

/// How many a page has when nobody asks for fewer.
const PAGE: usize = 25;
const DAY: i64 = 86_400;

/// The place that a request is about.
pub(super) struct Shelf<'s> {
    pub(super) vault: &'s str,
    pub(super) document: &'s Document,
    pub(super) collection: Collection,
    pub(super) name: &'s str,
    pub(super) version: &'s str,
}

impl<'s> Shelf<'s> {
    /// The place of the same name in another collection.
    pub(super) fn beside(&self, collection: Collection) -> Shelf<'s> {
        Shelf {
            collection,
            ..*self
        }
    }

    fn root(&self) -> String {
        let (vault, word) = (self.vault.to_lowercase(), self.collection.word());
        format!("vault/{vault}/{word}/")
    }

    fn prefix(&self) -> String {
        format!("{}{}/", self.root(), self.name.to_lowercase())
    }

    fn deleted_root(&self) -> String {
        let (vault, word) = (self.vault.to_lowercase(), self.collection.word());
        format!("vault/{vault}/deleted{word}/")
    }

    fn deleted_key(&self) -> String {
        format!("{}{}", self.deleted_root(), self.name.to_lowercase())
    }

    /// Where clients find it.
    pub(super) fn address(&self, turn: &Turn<'_>, word: &str) -> String {
        let host = turn.settings.host();
        format!("https://{}.vault.{host}/{word}/{}", self.vault, self.name)
    }

    /// The version that is asked for, or the newest.
    pub(super) fn find(&self, turn: &Turn<'_>) -> Result<(String, Value), Refused> {
        let all = turn.under(&self.prefix()).into_iter();
        let found = match self.version {
            "" => all.last(),
            version => {
                let end = format!("-{version}");
                all.into_iter().find(|(key, _)| key.ends_with(&end))
            }
        };
        found.ok_or_else(|| self.not_found())
    }

    fn not_found(&self) -> Refused {
        let (one, name) = (self.collection.one(), self.name);
        let (code, word) = match self.collection {
            Collection::Secrets => ("SecretNotFound", "secret"),
            Collection::Keys => ("KeyNotFound", "key"),
            Collection::Certificates => ("CertificateNotFound", "certificate"),
        };
        let message = format!(
            "A {word} with (name/id) {name} was not found in this key vault. If you recently deleted this {word} you \
             may be able to recover it using the correct recovery command. {one}s are found by their names."
        );
        Refused::new(404, code, message)
    }

    /// Whether something new may have this name.
    pub(super) fn check_name(&self, turn: &Turn<'_>) -> Result<(), Refused> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self.name.is_empty() || self.name.len() > 127 || !self.name.chars().all(fits) {
            let message = format!("The request URI contains an invalid name: {}", self.name);
            return Err(Refused::bad(message));
        }
        match deleted(turn, &self.deleted_key()) {
            Some(_) => {
                let (one, name) = (self.collection.one(), self.name);
                let message = format!(
                    "{one} {name} is currently in a deleted but recoverable state, and its name cannot be reused; in \
                     this state, the {} can only be recovered or purged.",
                    one.to_lowercase()
                );
                Err(Refused::new(409, "Conflict", message).inner("ObjectIsDeletedButRecoverable"))
            }
            None => Ok(()),
        }
    }

    /// What every version has: when it was made, whether it is on, and what happens when it is deleted.
    pub(super) fn attributes(&self, turn: &Turn<'_>, asked: &Value) -> Value {
        let now = turn.now.as_second();
        let properties = &self.document.body["properties"];
        let level = match properties["enablePurgeProtection"] == true {
            true => "Recoverable",
            false => "Recoverable+Purgeable",
        };
        let mut attributes = json!({"enabled": true, "created": now, "updated": now, "recoveryLevel": level,
            "recoverableDays": self.days()});
        document::overlay(&mut attributes, asked);
        attributes
    }

    fn days(&self) -> i64 {
        let days = &self.document.body["properties"]["softDeleteRetentionInDays"];
        days.as_i64().unwrap_or(90)
    }

    /// Keeps a new version.
    pub(super) fn keep(&self, turn: &mut Turn<'_>, version: &str, bundle: &Value, private: &Value) {
        let key = format!(
            "{}{:020}-{version}",
            self.prefix(),
            turn.now.as_nanosecond()
        );
        turn.put(key, json!({"bundle": bundle, "private": private}));
    }

    /// A version as lists show it.
    fn item(&self, bundle: &Value, with_version: bool) -> Value {
        let (field, id) = match self.collection {
            Collection::Keys => ("kid", &bundle["key"]["kid"]),
            _ => ("id", &bundle["id"]),
        };
        let id = id.as_str().unwrap_or_default();
        let shown = match (with_version, id.rsplit_once('/')) {
            (false, Some((bare, _))) => bare,
            _ => id,
        };
        let mut item = json!({ field: shown });
        for field in [
            "attributes",
            "tags",
            "contentType",
            "x5t",
            "subject",
            "managed",
        ] {
            if !bundle[field].is_null() {
                item[field] = bundle[field].clone();
            }
        }
        item
    }
}

/// What is deleted and not yet gone by itself.
fn deleted(turn: &Turn<'_>, key: &str) -> Option<Value> {
    let entry = turn.get(key)?;
    let is_over = entry["bundle"]["scheduledPurgeDate"]
        .as_i64()
        .is_some_and(|date| date <= turn.now.as_second());
    (!is_over).then_some(entry)
}

fn page(
    turn: &Turn<'_>,
    shelf: &Shelf<'_>,
    asked: &Asked,
    all: Vec<Value>,
) -> Result<Reply, Refused> {
    let number = |name: &str| match asked.param(name).map(str::parse::<usize>) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => Err(Refused::bad(format!("The parameter {name} is no number."))),
    };
    let size = number("maxresults")?.unwrap_or(PAGE).clamp(1, PAGE);
    let from = number("$skiptoken")?.unwrap_or(0);
    let next = (all.len() > from + size).then(|| {
        let host = turn.settings.host();
        let version = encode(asked.param("api-version").unwrap_or_default());
        format!(
            "https://{}.vault.{host}{}?api-version={version}&maxresults={size}&$skiptoken={}",
            shelf.vault,
            asked.path,
            from + size
        )
    });
    let shown: Vec<Value> = all.into_iter().skip(from).take(size).collect();
    Ok(Reply::ok(json!({"value": shown, "nextLink": next})))
}

pub(super) fn list(
    turn: &mut Turn<'_>,
    shelf: &Shelf<'_>,
    asked: &Asked,
) -> Result<Reply, Refused> {
    let mut shown: Vec<Value> = Vec::new();
    let mut last = String::new();
    for (key, entry) in turn.under(&shelf.root()) {
        let item = shelf.item(&entry["bundle"], false);
        // Versions follow each other: the last of a name is the newest.
        let name = key.rsplit_once('/').map_or("", |(name, _)| name);
        if name == last {
            shown.pop();
        }
        last = name.to_owned();
        shown.push(item);
    }
    page(turn, shelf, asked, shown)
}

pub(super) fn versions(
    turn: &mut Turn<'_>,
    shelf: &Shelf<'_>,
    asked: &Asked,
) -> Result<Reply, Refused> {
    let all = turn.under(&shelf.prefix()).into_iter();
    let shown = all.map(|(_, entry)| shelf.item(&entry["bundle"], true));
    page(turn, shelf, asked, shown.collect())
}

pub(super) fn get(turn: &mut Turn<'_>, shelf: &Shelf<'_>, _: &Asked) -> Result<Reply, Refused> {
    let (_, mut entry) = shelf.find(turn)?;
    let is_off = entry["bundle"]["attributes"]["enabled"] == false;
    if is_off && shelf.collection == Collection::Secrets {
        let message = "Operation get is not allowed on a disabled secret.";
        return Err(Refused::new(403, "Forbidden", message).inner("SecretDisabled"));
    }
    Ok(Reply::ok(entry["bundle"].take()))
}

/// Changes what is said about a version, never what it is.
pub(super) fn update(
    turn: &mut Turn<'_>,
    shelf: &Shelf<'_>,
    asked: &Asked,
) -> Result<Reply, Refused> {
    let body = json_of(asked)?;
    let (key, mut entry) = shelf.find(turn)?;
    let bundle = &mut entry["bundle"];
    document::overlay(&mut bundle["attributes"], &body["attributes"]);
    bundle["attributes"]["updated"] = json!(turn.now.as_second());
    for field in ["tags", "contentType"] {
        if !body[field].is_null() {
            bundle[field] = body[field].clone();
        }
    }
    if !body["key_ops"].is_null() {
        bundle["key"]["key_ops"] = body["key_ops"].clone();
    }
    let mut shown = bundle.clone();
    if shelf.collection == Collection::Secrets {
        document::take(&mut shown, "/value");
    }
    turn.put(key, entry);
    Ok(Reply::ok(shown))
}

/// The body of a request.
pub(super) fn json_of(asked: &Asked) -> Result<Value, Refused> {
    let body = asked
        .json()
        .map_err(|e| Refused::bad(format!("The body is no JSON: {e}")))?;
    match body.is_object() {
        true => Ok(body),
        false => Err(Refused::bad("The body is no JSON object.")),
    }
}

pub(super) fn delete(turn: &mut Turn<'_>, shelf: &Shelf<'_>, _: &Asked) -> Result<Reply, Refused> {
    let shown = put_aside(turn, shelf)?;
    // A certificate's key and secret go with it.
    if shelf.collection == Collection::Certificates {
        for collection in [Collection::Keys, Collection::Secrets] {
            put_aside(turn, &shelf.beside(collection))?;
        }
    }
    Ok(Reply::ok(shown))
}

fn put_aside(turn: &mut Turn<'_>, shelf: &Shelf<'_>) -> Result<Value, Refused> {
    let all = turn.under(&shelf.prefix());
    let (_, last) = all.last().ok_or_else(|| shelf.not_found())?;
    let now = turn.now.as_second();
    let mut bundle = last["bundle"].clone();
    document::take(&mut bundle, "/value");
    let word = format!("deleted{}", shelf.collection.word());
    bundle["recoveryId"] = json!(shelf.address(turn, &word));
    bundle["deletedDate"] = json!(now);
    bundle["scheduledPurgeDate"] = json!(now + shelf.days() * DAY);
    for (key, _) in &all {
        turn.remove(key.clone());
    }
    let entry = json!({"bundle": bundle, "versions": all});
    turn.put(shelf.deleted_key(), entry);
    Ok(bundle)
}

pub(super) fn list_deleted(
    turn: &mut Turn<'_>,
    shelf: &Shelf<'_>,
    asked: &Asked,
) -> Result<Reply, Refused> {
    let all = turn.under(&shelf.deleted_root()).into_iter();
    let left = all.filter_map(|(key, _)| deleted(turn, &key));
    let shown = left.map(|entry| {
        let mut item = shelf.item(&entry["bundle"], false);
        for field in ["recoveryId", "deletedDate", "scheduledPurgeDate"] {
            item[field] = entry["bundle"][field].clone();
        }
        item
    });
    let shown = shown.collect();
    page(turn, shelf, asked, shown)
}

pub(super) fn get_deleted(
    turn: &mut Turn<'_>,
    shelf: &Shelf<'_>,
    _: &Asked,
) -> Result<Reply, Refused> {
    let entry = deleted(turn, &shelf.deleted_key()).ok_or_else(|| shelf.not_found())?;
    Ok(Reply::ok(entry["bundle"].clone()))
}

pub(super) fn purge(turn: &mut Turn<'_>, shelf: &Shelf<'_>, _: &Asked) -> Result<Reply, Refused> {
    deleted(turn, &shelf.deleted_key()).ok_or_else(|| shelf.not_found())?;
    if shelf.document.body["properties"]["enablePurgeProtection"] == true {
        let message = "Operation \"purge\" is not allowed because purge protection is enabled for this vault.";
        return Err(Refused::new(403, "Forbidden", message).inner("OperationNotAllowed"));
    }
    for shelf in together(shelf) {
        turn.remove(shelf.deleted_key());
    }
    Ok(Reply::empty(204))
}

pub(super) fn recover(turn: &mut Turn<'_>, shelf: &Shelf<'_>, _: &Asked) -> Result<Reply, Refused> {
    deleted(turn, &shelf.deleted_key()).ok_or_else(|| shelf.not_found())?;
    for shelf in together(shelf) {
        let key = shelf.deleted_key();
        let entry = turn.get(&key).unwrap_or_default();
        for version in entry["versions"].as_array().into_iter().flatten() {
            if let Some(key) = version[0].as_str() {
                turn.put(key, version[1].clone());
            }
        }
        turn.remove(key);
    }
    let (_, mut entry) = shelf.find(turn)?;
    document::take(&mut entry["bundle"], "/value");
    Ok(Reply::ok(entry["bundle"].take()))
}

/// What goes and comes back with something.
fn together<'s>(shelf: &Shelf<'s>) -> Vec<Shelf<'s>> {
    let own = shelf.beside(shelf.collection);
    match shelf.collection {
        Collection::Certificates => vec![
            own,
            shelf.beside(Collection::Keys),
            shelf.beside(Collection::Secrets),
        ],
        _ => vec![own],
    }
}

/// All versions in one piece of text that only a vault can read: here it is not even sealed.
pub(super) fn backup(turn: &mut Turn<'_>, shelf: &Shelf<'_>, _: &Asked) -> Result<Reply, Refused> {
    let all = turn.under(&shelf.prefix());
    if all.is_empty() {
        return Err(shelf.not_found());
    }
    let whole = json!({"collection": shelf.collection.word(), "name": shelf.name, "versions": all});
    let value = URL_SAFE_NO_PAD.encode(whole.to_string());
    Ok(Reply::ok(json!({ "value": value })))
}

pub(super) fn restore(
    turn: &mut Turn<'_>,
    shelf: &Shelf<'_>,
    asked: &Asked,
) -> Result<Reply, Refused> {
    let body = json_of(asked)?;
    let text = body["value"].as_str().unwrap_or_default();
    let whole: Option<Value> = URL_SAFE_NO_PAD
        .decode(text.trim_end_matches('='))
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let whole = whole.filter(|whole| whole["collection"] == shelf.collection.word());
    let Some(whole) = whole else {
        return Err(Refused::bad(
            "The value is no backup of this sort of thing.",
        ));
    };
    let name = whole["name"].as_str().unwrap_or_default();
    let place = Shelf {
        name,
        ..shelf.beside(shelf.collection)
    };
    place.check_name(turn)?;
    if !turn.under(&place.prefix()).is_empty() {
        let message = format!(
            "{} {name} exists already in this vault.",
            shelf.collection.one()
        );
        return Err(Refused::new(409, "Conflict", message));
    }
    for version in whole["versions"].as_array().into_iter().flatten() {
        let end = version[0].as_str().and_then(|key| key.rsplit('/').next());
        if let Some(end) = end {
            turn.put(format!("{}{end}", place.prefix()), version[1].clone());
        }
    }
    let (_, mut entry) = place.find(turn)?;
    document::take(&mut entry["bundle"], "/value");
    Ok(Reply::ok(entry["bundle"].take()))
}
