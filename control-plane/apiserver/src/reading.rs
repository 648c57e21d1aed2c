//! Reading: the watch cache, and what lists and watches make of it.

pub(crate) mod cache;
pub(crate) mod collection;
pub(crate) mod compaction;
pub(crate) mod list;
pub(crate) mod negotiate;
pub(crate) mod select;
pub(crate) mod stored;
pub(crate) mod topics;
pub(crate) mod view;
pub(crate) mod watch;

use std::collections::HashMap;
use std::sync::Arc;

/// Which resource a storage key belongs to.
pub(crate) fn naming() -> encryption::Naming {
    let stored = kinds::resources::all().iter();
    let stored = stored.filter(|r| !r.is_virtual && r.stored == r.gv);
    let known: HashMap<String, (&str, &str)> = stored
        .map(|r| (stored::prefix(r), (r.gv.group, r.plural)))
        .collect();
    Arc::new(move |key| {
        let rest = key.strip_prefix(cache::ROOT)?;
        let (first, behind) = rest.split_once('/')?;
        if let Some(found) = known.get(first) {
            return Some(*found);
        }
        let (second, _) = behind.split_once('/')?;
        let both = &rest[..=first.len() + second.len()];
        // What no table knows is a custom resource, by group and plural.
        Some(known.get(both).copied().unwrap_or((first, second)))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn keys_are_known_by_their_resource() {
        let naming = super::naming();
        let cases = [
            ("/registry/secrets/default/a", Some(("", "secrets"))),
            ("/registry/services/specs/default/a", Some(("", "services"))),
            ("/registry/minions/a", Some(("", "nodes"))),
            (
                "/registry/deployments/default/a",
                Some(("apps", "deployments")),
            ),
            (
                "/registry/example.com/lamps/default/a",
                Some(("example.com", "lamps")),
            ),
            ("/elsewhere/a", None),
        ];
        for (key, resource) in cases {
            assert_eq!(naming(key), resource, "{key}");
        }
    }
}
