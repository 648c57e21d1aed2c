//! Locks: what may not be removed, or not even changed, here and below.

use super::document::Document;
use super::fault::Fault;
use super::id;
use crate::turn::Turn;

const LOCKS: &str = "/providers/microsoft.authorization/locks/";

/// Whether something may be written.
pub(crate) fn allows_write(turn: &Turn<'_>, id: &str) -> Result<(), Fault> {
    refuse(id, "write", above(turn, id, |level| level == "ReadOnly"))
}

/// Whether something may be removed.
pub(crate) fn allows_delete(turn: &Turn<'_>, id: &str) -> Result<(), Fault> {
    refuse(id, "delete", above(turn, id, |_| true))
}

/// Whether something may be removed with all below it.
pub(crate) fn allows_delete_of_all(turn: &Turn<'_>, id: &str) -> Result<(), Fault> {
    let below = turn.under(&format!("{}/", id::key(id)));
    let locks = below.into_iter().filter(|(key, _)| key.contains(LOCKS));
    let scopes = locks.map(|(_, entry)| scope_of(&Document::read(entry)));
    let mut found: Vec<String> = above(turn, id, |_| true);
    found.extend(scopes);
    found.dedup();
    refuse(id, "delete", found)
}

fn scope_of(lock: &Document) -> String {
    let id = lock.id();
    let end = id.to_lowercase().find(LOCKS).unwrap_or(id.len());
    id[..end].to_owned()
}

fn refuse(id: &str, verb: &str, scopes: Vec<String>) -> Result<(), Fault> {
    // A lock itself can always be taken away.
    if scopes.is_empty() || id.to_lowercase().contains(LOCKS) {
        return Ok(());
    }
    let message = format!(
        "The scope '{id}' cannot perform {verb} operation because following scope(s) are locked: '{}'. Please remove \
         the lock and try again.",
        scopes.join(",")
    );
    Err(Fault::conflict("ScopeLocked", message).gateway())
}

/// The scopes at or above an id that have a lock of such a level.
fn above(turn: &Turn<'_>, id: &str, is_such: impl Fn(&str) -> bool) -> Vec<String> {
    let ends = id
        .match_indices('/')
        .map(|(at, _)| at)
        .skip(1)
        .chain([id.len()]);
    let scopes = ends.map(|end| &id[..end]);
    let mut found = Vec::new();
    for scope in scopes {
        let locks = turn.under(&format!("{}{LOCKS}", id::key(scope)));
        let mut levels = locks
            .iter()
            .filter_map(|(_, lock)| lock["body"]["properties"]["level"].as_str());
        if levels.any(&is_such) {
            found.push(scope.to_owned());
        }
    }
    found
}
