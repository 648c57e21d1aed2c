//! Azure Resource Manager: ids, verbs and long-running operations, done once for every type of resource.
//!
//! A request becomes a [`Path`](id::Path), is held against role assignments (`access`), and goes to whom the path
//! belongs: the subscription, a group, an operation, a provider's own route, or the verbs of every resource
//! (`resource`). Types are rows (`kind`) of the tables in `providers`.

pub(crate) mod access;
pub(crate) mod activity;
mod checks;
pub(crate) mod deployment;
pub(crate) mod document;
pub(crate) mod fault;
pub(crate) mod group;
pub(crate) mod id;
pub(crate) mod inner;
pub(crate) mod kind;
pub(crate) mod list;
mod lock;
mod moving;
pub(crate) mod operation;
pub(crate) mod orders;
mod properties;
pub(crate) mod query;
pub(crate) mod reference;
pub(crate) mod region;
pub(crate) mod resource;
pub(crate) mod role;
mod subscription;
mod tags;
mod template;

use http::Method;
use serde_json::json;

use crate::entra::token::Caller;
use crate::exchange::{Asked, Reply};
use crate::providers;
use crate::turn::Turn;
use fault::Fault;
use id::Path;

/// Answers a request to ARM.
pub(crate) fn answer(turn: &mut Turn<'_>, caller: &Caller, asked: &Asked) -> Reply {
    let outcome = decide(turn, caller, asked);
    if outcome.is_err() {
        turn.forget();
    }
    if !matches!(asked.method, Method::GET | Method::HEAD) {
        activity::record(turn, caller, asked, &outcome);
    }
    outcome.unwrap_or_else(|fault| fault.reply())
}

fn decide(turn: &mut Turn<'_>, caller: &Caller, asked: &Asked) -> Result<Reply, Fault> {
    check_version(asked)?;
    let path = Path::parse(&asked.path);
    check_age(turn, asked, &path)?;
    if let Some(subscription) = &path.subscription {
        subscription::require(turn, subscription)?;
    }
    if let Some((id, is_result)) = operation::of_path(&path) {
        return operation::answer(turn, &id, is_result, asked);
    }
    let words = path.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let Some(reply) = lists_by_sight(turn, caller, asked, &path, &words) {
        return reply;
    }
    // The graph shows everybody what they may see.
    let is_graph = path.scope.is_empty()
        && path
            .namespace
            .as_deref()
            .is_some_and(|n| n.eq_ignore_ascii_case("Microsoft.ResourceGraph"));
    if let Some(action) = access::action(&asked.method, &path).filter(|_| !is_graph) {
        access::check(turn, caller, &action)?;
    }
    match &path.namespace {
        None => without_provider(turn, caller, asked, &path, &words),
        Some(_) => with_provider(turn, caller, asked, &path),
    }
}

fn check_version(asked: &Asked) -> Result<(), Fault> {
    let Some(version) = asked
        .param("api-version")
        .filter(|version| !version.is_empty())
    else {
        let message =
            "The api-version query parameter (?api-version=) is required for all requests.";
        return Err(Fault::bad("MissingApiVersionParameter", message).gateway());
    };
    // Every date is taken: each command of az pins one of its own.
    let digits = |part: Option<&str>, n: usize| {
        part.is_some_and(|p| p.len() == n && p.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut parts = version.splitn(4, '-');
    let is_date = digits(parts.next(), 4) && digits(parts.next(), 2) && digits(parts.next(), 2);
    let suffix_fits = parts
        .next()
        .is_none_or(|s| matches!(s, "preview" | "alpha" | "beta" | "rc" | "privatepreview"));
    match is_date && suffix_fits {
        true => Ok(()),
        false => {
            let message = format!(
                "The api-version '{version}' is invalid. The api-version should be of format \
                'yyyy-MM-dd' or 'yyyy-MM-dd-preview'."
            );
            Err(Fault::bad("InvalidApiVersionParameter", message).gateway())
        }
    }
}

/// Every version between ARM's first and the next ones is taken; those before and after are nobody's.
fn check_age(turn: &Turn<'_>, asked: &Asked, path: &Path) -> Result<(), Fault> {
    let version = asked.param("api-version").unwrap_or_default();
    let year: i16 = version
        .get(..4)
        .and_then(|year| year.parse().ok())
        .unwrap_or(0);
    let this = turn.now.to_zoned(jiff::tz::TimeZone::UTC).year();
    if (2014..=this + 1).contains(&year) {
        return Ok(());
    }
    let Some(namespace) = &path.namespace else {
        let message = format!(
            "The api-version '{version}' is invalid. The supported versions are '{}'.",
            providers::PROVIDERS[0].versions.join(",")
        );
        return Err(Fault::bad("InvalidApiVersionParameter", message).gateway());
    };
    let provider = subscription::find(namespace)?;
    let message = format!(
        "No registered resource provider found for location '' and API version '{version}' for type '{}'. The supported \
         api-versions are '{}'.",
        path.rest.first().map_or("", String::as_str),
        provider.versions.join(", ")
    );
    Err(Fault::bad("NoRegisteredProviderFound", message).gateway())
}

/// Lists that show whoever asks what they may see, instead of refusing them all.
fn lists_by_sight(
    turn: &Turn<'_>,
    caller: &Caller,
    asked: &Asked,
    path: &Path,
    words: &[&str],
) -> Option<Result<Reply, Fault>> {
    if asked.method != Method::GET || path.namespace.is_some() {
        return None;
    }
    let sees = |scope: &str| access::sees(turn, caller, scope);
    let may_read = |scope: &str| {
        access::may(
            turn,
            caller,
            "Microsoft.Resources/subscriptions/resources/read",
            scope,
            false,
        )
    };
    match (&path.subscription, &path.group, words) {
        (None, None, ["subscriptions"]) => {
            let all = [subscription::item(turn)];
            let seen = all
                .into_iter()
                .filter(|item| item["id"].as_str().is_some_and(sees));
            let count = json!({"type": "Total", "value": 1});
            Some(Ok(Reply::ok(
                json!({"value": seen.collect::<Vec<_>>(), "count": count}),
            )))
        }
        (None, None, ["tenants"]) => Some(Ok(subscription::tenants(turn))),
        (Some(_), None, []) if sees(&path.scope) => Some(Ok(Reply::ok(subscription::item(turn)))),
        (Some(_), None, ["locations"]) if sees(&path.scope) => {
            Some(Ok(Reply::list(region::list(&turn.settings.subscription))))
        }
        (Some(id), None, ["resourcegroups"]) if sees(&path.scope) => {
            Some(group::list(turn, asked, id, sees))
        }
        (Some(_), None, ["resources"]) if sees(&path.scope) => {
            Some(list::resources(turn, asked, &path.scope, may_read))
        }
        _ => None,
    }
}

fn without_provider(
    turn: &mut Turn<'_>,
    caller: &Caller,
    asked: &Asked,
    path: &Path,
    words: &[&str],
) -> Result<Reply, Fault> {
    let is_get = asked.method == Method::GET;
    match (&path.subscription, &path.group, words) {
        (Some(subscription), Some(group), []) => group::answer(turn, asked, subscription, group),
        (Some(subscription), Some(group), ["resources"]) if is_get => {
            group::require(turn, subscription, group)?;
            list::resources(turn, asked, &path.scope, |_| true)
        }
        (Some(subscription), Some(group), [verb @ ("moveresources" | "validatemoveresources")]) => {
            group::require(turn, subscription, group)?;
            moving::answer(turn, caller, asked, path, *verb == "moveresources")
        }
        (Some(_), _, ["deployments", name, "operations"]) if is_get => {
            let id = format!("{}/providers/{}/{name}", path.scope, deployment::KIND);
            let id = id::Id::parse(&id).ok_or_else(|| unknown_path(asked))?;
            deployment::operations_of(turn, &id)
        }
        (Some(_), None, ["providers"]) if is_get => {
            let all = providers::PROVIDERS
                .iter()
                .map(|p| subscription::provider(turn, p));
            Ok(Reply::list(all.collect()))
        }
        (Some(_), None, ["tagnames"]) if is_get => Ok(Reply::list(subscription::tag_names(turn))),
        _ => Err(unknown_path(asked)),
    }
}

fn unknown_path(asked: &Asked) -> Fault {
    let message = format!("The requested path '{}' was not found.", asked.path);
    Fault::new(404, "NotFound", message).gateway()
}

fn with_provider(
    turn: &mut Turn<'_>,
    caller: &Caller,
    asked: &Asked,
    path: &Path,
) -> Result<Reply, Fault> {
    if let Some(reply) = subscription::feature(path) {
        return Ok(reply);
    }
    let namespace = path.namespace.as_deref().unwrap_or_default();
    if path.rest.is_empty()
        || matches!(&path.words()[..], [word] if word == "register" || word == "unregister")
    {
        return subscription::find(namespace).map(|p| Reply::ok(subscription::provider(turn, p)));
    }
    if namespace.eq_ignore_ascii_case("Microsoft.Resources") && path.words() == ["tags", "default"]
    {
        return tags::answer(turn, asked, &path.scope);
    }
    if let Some((route, names)) = providers::route(&asked.method, path) {
        // Which roles there are does not depend on the scope being there.
        let is_of_group = path.words().first().is_none_or(|w| w != "roledefinitions");
        if let Some(group) = path.group.as_ref().filter(|_| is_of_group) {
            group::require(
                turn,
                path.subscription.as_deref().unwrap_or_default(),
                group,
            )?;
        }
        return (route.run)(
            turn,
            &providers::Call {
                caller,
                asked,
                path,
                names,
            },
        );
    }
    if asked.method == Method::PUT
        && let Some(group) = &path.group
    {
        group::open(
            turn,
            path.subscription.as_deref().unwrap_or_default(),
            group,
        )?;
    }
    resource::answer(turn, asked, path)
}
