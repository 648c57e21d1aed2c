//! The resource providers: tables of types, and what is special about some of them.
//!
//! A provider is its types, and routes for what is no verb of a resource: actions, and lists that nobody keeps.
//! Everything here decides; nothing here does. What a decision wants done is staged in its [`Turn`].

mod authorization;
pub(crate) mod compute;
pub(crate) mod containers;
mod identity;
mod monitor;
mod network;
mod registry;
mod resources;
mod storage;
pub(crate) mod vault;

use http::Method;
use serde_json::Value;

use crate::arm::document::Document;
use crate::arm::fault::Fault;
use crate::arm::id::{Id, Path};
use crate::arm::kind::Kind;
use crate::entra::token::Caller;
use crate::exchange::{Asked, Reply};
use crate::region::{Disk, Node};
use crate::turn::Turn;

/// A provider.
#[derive(Debug)]
pub(crate) struct Provider {
    pub(crate) namespace: &'static str,
    /// The newest versions of its API that clients of ours name; every other one is taken too.
    pub(crate) versions: &'static [&'static str],
    /// Tables of its types.
    pub(crate) kinds: &'static [&'static [Kind]],
    pub(crate) routes: &'static [Route],
    /// Types it lists and that are no resources of ours.
    pub(crate) more: &'static [&'static str],
}

/// Every provider.
pub(crate) const PROVIDERS: &[Provider] = &[
    resources::PROVIDER,
    authorization::PROVIDER,
    identity::PROVIDER,
    network::PROVIDER,
    compute::PROVIDER,
    containers::PROVIDER,
    vault::PROVIDER,
    registry::PROVIDER,
    storage::PROVIDER,
    monitor::INSIGHTS,
    monitor::OPERATIONAL_INSIGHTS,
    monitor::HYBRID_COMPUTE,
    resources::GRAPH,
];

/// Something a provider answers besides the verbs of its resources.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    /// The words after the provider; `{}` is any name.
    pub(crate) path: &'static str,
    pub(crate) run: fn(&mut Turn<'_>, &Call<'_>) -> Result<Reply, Fault>,
}

pub(crate) const fn get(
    path: &'static str,
    run: fn(&mut Turn<'_>, &Call<'_>) -> Result<Reply, Fault>,
) -> Route {
    Route {
        method: Method::GET,
        path,
        run,
    }
}

pub(crate) const fn post(
    path: &'static str,
    run: fn(&mut Turn<'_>, &Call<'_>) -> Result<Reply, Fault>,
) -> Route {
    Route {
        method: Method::POST,
        path,
        run,
    }
}

pub(crate) const fn put(
    path: &'static str,
    run: fn(&mut Turn<'_>, &Call<'_>) -> Result<Reply, Fault>,
) -> Route {
    Route {
        method: Method::PUT,
        path,
        run,
    }
}

pub(crate) const fn delete(
    path: &'static str,
    run: fn(&mut Turn<'_>, &Call<'_>) -> Result<Reply, Fault>,
) -> Route {
    Route {
        method: Method::DELETE,
        path,
        run,
    }
}

/// A request that came along a route.
pub(crate) struct Call<'c> {
    pub(crate) caller: &'c Caller,
    pub(crate) asked: &'c Asked,
    pub(crate) path: &'c Path,
    /// What stood where the route has `{}`.
    pub(crate) names: Vec<String>,
}

impl Call<'_> {
    pub(crate) fn subscription(&self) -> &str {
        self.path.subscription.as_deref().unwrap_or_default()
    }

    pub(crate) fn body(&self) -> Result<Value, Fault> {
        let invalid = |e: serde_json::Error| {
            let message =
                format!("The request content was invalid and could not be deserialized: '{e}'.");
            Fault::bad("InvalidRequestContent", message)
        };
        self.asked.json().map_err(invalid)
    }

    pub(crate) fn version(&self) -> &str {
        self.asked.param("api-version").unwrap_or_default()
    }

    /// The resource an action is posted to: everything but the last word.
    pub(crate) fn target(&self) -> Id {
        let mut path = self.path.clone();
        path.rest.truncate(path.rest.len() / 2 * 2);
        path.id().expect("an action is posted to a resource")
    }
}

/// The route of a request, with the names in it.
pub(crate) fn route(method: &Method, path: &Path) -> Option<(&'static Route, Vec<String>)> {
    let namespace = path.namespace.as_deref()?;
    let provider = PROVIDERS
        .iter()
        .find(|p| p.namespace.eq_ignore_ascii_case(namespace))?;
    let mut routes = provider
        .routes
        .iter()
        .filter(|route| route.method == *method);
    routes.find_map(|route| Some((route, names(route.path, &path.rest)?)))
}

fn names(pattern: &str, words: &[String]) -> Option<Vec<String>> {
    let parts: Vec<&str> = pattern.split('/').collect();
    if parts.len() != words.len() {
        return None;
    }
    let mut names = Vec::new();
    for (part, word) in parts.iter().zip(words) {
        match *part {
            "{}" => names.push(word.clone()),
            part if part.eq_ignore_ascii_case(word) => {}
            _ => return None,
        }
    }
    Some(names)
}

/// The machines of a resource, for whom stands behind it.
pub(crate) fn nodes(turn: &Turn<'_>, kind: &Kind, document: &Document) -> Vec<Node> {
    match kind.name {
        "Microsoft.ContainerService/managedClusters" => containers::machines(turn, document),
        _ if kind.namespace() == "Microsoft.Compute" => compute::nodes(turn, kind, document),
        _ => Vec::new(),
    }
}

/// The disks of a resource, for whom stands behind it.
pub(crate) fn disks(turn: &Turn<'_>, kind: &Kind, document: &Document) -> Vec<Disk> {
    match kind.namespace() {
        "Microsoft.Compute" => compute::disks_of(turn, kind, document),
        _ => Vec::new(),
    }
}

/// Adds what `$expand` asks for.
pub(crate) fn expand(turn: &Turn<'_>, kind: &Kind, wanted: &str, document: &mut Document) {
    if kind.namespace() == "Microsoft.Compute" {
        compute::expand(turn, kind, wanted, document);
    }
}

/// Lets go of what a removed resource had outside of ARM.
pub(crate) fn removed(turn: &mut Turn<'_>, kind: &Kind, document: &Document) {
    identity::removed(turn, kind, document);
    match kind.namespace() {
        "Microsoft.Authorization" => authorization::removed(turn, kind, document),
        "Microsoft.Compute" => compute::removed(turn, kind, document),
        "Microsoft.ContainerService" => containers::removed(turn, kind, document),
        "Microsoft.KeyVault" => vault::removed(turn, kind, document),
        _ => {}
    }
}

/// Follows a resource that got another id.
pub(crate) fn moved(turn: &mut Turn<'_>, kind: &Kind, document: &Document, to: &str) {
    if kind.namespace() == "Microsoft.KeyVault" {
        vault::moved(turn, document, to);
    }
}

/// Keeps what a type's own filter lets through.
pub(crate) fn filtered(kind: &Kind, asked: &Asked, all: Vec<Value>) -> Vec<Value> {
    let Some(filter) = asked.param("$filter") else {
        return all;
    };
    match kind.name {
        "Microsoft.Compute/virtualMachines" => compute::of_scale_set(filter, all),
        _ => all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::kind;

    #[test]
    fn every_row_of_the_tables_can_be_used() {
        for kind in kind::all() {
            let defaults: Value = serde_json::from_str(kind.defaults)
                .unwrap_or_else(|e| panic!("{}: {e}", kind.name));
            assert!(defaults.is_object(), "{}", kind.name);
            let is_child = kind.name.matches('/').count() > 1;
            if is_child && kind.within.is_some() {
                let parent = kind.name.rsplit_once('/').unwrap().0;
                assert!(kind::named(parent).is_some(), "{} has no parent", kind.name);
            }
        }
    }
}
