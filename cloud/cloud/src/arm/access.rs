//! Who may do what: role assignments at a scope, for everything below it. What nothing allows is refused.

use http::Method;
use serde_json::json;

use super::document::{self, Document};
use super::fault::Fault;
use super::id::Path;
use super::role;
use crate::entra::directory;
use crate::entra::token::Caller;
use crate::turn::Turn;

/// The action that a request is, and what it is done to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Action {
    pub(crate) name: String,
    pub(crate) scope: String,
}

/// What a request is, in the words of roles; nothing for what everybody may.
pub(crate) fn action(method: &Method, path: &Path) -> Option<Action> {
    let verb = match *method {
        Method::GET | Method::HEAD => "read",
        Method::DELETE => "delete",
        _ => "write",
    };
    let Some(namespace) = &path.namespace else {
        return without_provider(method, verb, path);
    };
    let types: Vec<&str> = path.rest.iter().step_by(2).map(String::as_str).collect();
    let is_collection = path.rest.len() % 2 == 1;
    let pairs = path.rest.len() / 2;
    let name = match (is_collection, method == Method::POST) {
        // What is posted to a resource is an action of its type, named last.
        (true, true) => format!("{namespace}/{}/action", types.join("/")),
        _ if types.is_empty() => format!("{namespace}/{verb}"),
        _ => format!("{namespace}/{}/{verb}", types.join("/")),
    };
    let own: Vec<&str> = path.rest[..pairs * 2].iter().map(String::as_str).collect();
    let scope = match own.is_empty() {
        true => path.scope.clone(),
        false => format!("{}/providers/{namespace}/{}", path.scope, own.join("/")),
    };
    Some(Action { name, scope })
}

fn without_provider(method: &Method, verb: &str, path: &Path) -> Option<Action> {
    path.subscription.as_ref()?;
    let words = path.words();
    let is_group =
        path.group.is_some() || words.first().is_some_and(|word| word == "resourcegroups");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let name = match (is_group, &words[..]) {
        (true, [] | ["resourcegroups"]) => {
            format!("Microsoft.Resources/subscriptions/resourceGroups/{verb}")
        }
        (true, ["resources"]) => "Microsoft.Resources/subscriptions/resources/read".into(),
        (_, ["deployments", _, "operations"]) => {
            "Microsoft.Resources/deployments/operations/read".into()
        }
        (true, [action, ..]) => {
            format!("Microsoft.Resources/subscriptions/resourceGroups/{action}/action")
        }
        (false, [first, ..]) if method == Method::POST => {
            format!("Microsoft.Resources/subscriptions/{first}/action")
        }
        (false, [first, ..]) => format!("Microsoft.Resources/subscriptions/{first}/{verb}"),
        (false, []) => format!("Microsoft.Resources/subscriptions/{verb}"),
    };
    Some(Action {
        name,
        scope: path.scope.clone(),
    })
}

/// The key of what says that a principal has a role.
pub(crate) fn key(principal: &str, assignment: &str) -> String {
    format!(
        "rbac/{}/{}",
        principal.to_lowercase(),
        assignment.to_lowercase()
    )
}

/// Stages that a principal has a role at a scope.
pub(crate) fn grant(
    turn: &mut Turn<'_>,
    principal: &str,
    assignment: &str,
    scope: &str,
    role: &str,
) {
    let value = json!({"scope": scope.to_lowercase(), "role": role::id_of(role)});
    turn.put(key(principal, assignment), value);
}

/// Gives a principal a role at a scope, as an assignment that lists show.
pub(crate) fn assign(turn: &mut Turn<'_>, principal: &str, scope: &str, role: &str) {
    let name = turn.chance.guid();
    let id = format!("{scope}/providers/Microsoft.Authorization/roleAssignments/{name}");
    let definition = format!(
        "/subscriptions/{}/providers/Microsoft.Authorization/roleDefinitions/{role}",
        turn.settings.subscription
    );
    let kind = directory::object(turn, principal).map_or("ServicePrincipal", |(kind, _)| kind);
    let now = crate::chance::seven_digits(turn.now);
    let body = json!({"id": id, "name": name, "type": "Microsoft.Authorization/roleAssignments",
        "properties": {"principalId": principal, "principalType": kind, "roleDefinitionId": definition, "scope": scope,
            "condition": null, "conditionVersion": null, "createdOn": now, "updatedOn": now, "createdBy": null,
            "updatedBy": null, "description": null, "delegatedManagedIdentityResourceId": null}});
    let document = Document::new(turn, body);
    document::put(turn, &document);
    grant(turn, principal, &id, scope, role);
}

fn assignments(turn: &Turn<'_>, caller: &Caller) -> Vec<(String, String)> {
    let principals = std::iter::once(&caller.object_id).chain(&caller.groups);
    let entries = principals.flat_map(|id| turn.under(&format!("rbac/{}/", id.to_lowercase())));
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    entries
        .map(|(_, entry)| (text(&entry["scope"]), text(&entry["role"])))
        .collect()
}

fn covers(scope: &str, target: &str) -> bool {
    let scope = scope.trim_end_matches('/');
    target == scope
        || target
            .strip_prefix(scope)
            .is_some_and(|rest| rest.starts_with('/'))
}

/// Whether a caller may do something.
pub(crate) fn may(
    turn: &Turn<'_>,
    caller: &Caller,
    action: &str,
    scope: &str,
    on_data: bool,
) -> bool {
    let target = scope.to_lowercase();
    let covering = assignments(turn, caller)
        .into_iter()
        .filter(|(scope, _)| covers(scope, &target));
    let mut permissions = covering.flat_map(|(_, role)| role::permissions(turn, &role));
    permissions.any(|permission| permission.allows(action, on_data))
}

/// Whether a caller has to do with a scope at all: some role there, above, or below.
pub(crate) fn sees(turn: &Turn<'_>, caller: &Caller, scope: &str) -> bool {
    let target = scope.to_lowercase();
    let mut all = assignments(turn, caller).into_iter();
    all.any(|(scope, _)| covers(&scope, &target) || covers(&target, &scope))
}

/// Refuses what a caller may not do.
pub(crate) fn check(turn: &Turn<'_>, caller: &Caller, action: &Action) -> Result<(), Fault> {
    match may(turn, caller, &action.name, &action.scope, false) {
        true => Ok(()),
        false => Err(refused(caller, action)),
    }
}

fn refused(caller: &Caller, action: &Action) -> Fault {
    let message = format!(
        "The client '{}' with object id '{}' does not have authorization to perform action '{}' over scope '{}' or \
         the scope is invalid. If access was recently granted, please refresh your credentials.",
        caller.name, caller.object_id, action.name, action.scope
    );
    Fault::new(403, "AuthorizationFailed", message).gateway()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::chance::Chance;
    use crate::settings::Settings;
    use crate::turn::Remembered;

    #[test]
    fn requests_are_actions() {
        let s = "/subscriptions/s";
        for (method, path, name, scope) in [
            (
                Method::GET,
                "/subscriptions/s",
                "Microsoft.Resources/subscriptions/read",
                s,
            ),
            (
                Method::PUT,
                "/subscriptions/s/resourcegroups/g",
                "Microsoft.Resources/subscriptions/resourceGroups/write",
                "/subscriptions/s/resourceGroups/g",
            ),
            (
                Method::GET,
                "/subscriptions/s/resourcegroups",
                "Microsoft.Resources/subscriptions/resourceGroups/read",
                s,
            ),
            (
                Method::DELETE,
                "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d",
                "Microsoft.Compute/disks/delete",
                "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d",
            ),
            (
                Method::POST,
                "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v/start",
                "Microsoft.Compute/virtualMachines/start/action",
                "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v",
            ),
            (
                Method::GET,
                "/subscriptions/s/providers/Microsoft.Compute/virtualMachines",
                "Microsoft.Compute/virtualMachines/read",
                s,
            ),
        ] {
            let found = action(&method, &Path::parse(path)).unwrap();
            assert_eq!(
                (found.name.as_str(), found.scope.as_str()),
                (name, scope),
                "{method} {path}"
            );
        }
        assert_eq!(action(&Method::GET, &Path::parse("/subscriptions")), None);
    }

    #[test]
    fn a_role_counts_at_its_scope_and_below() {
        const READER: &str = "acdd72a7-3385-48ef-bd42-f606fba81ae7";
        let state = Remembered(BTreeMap::from([(
            key("me", "/a"),
            json!({"scope": "/subscriptions/s/resourcegroups/g", "role": READER}),
        )]));
        let settings = Settings::for_tests();
        let turn = Turn::new(
            &state,
            jiff::Timestamp::UNIX_EPOCH,
            Chance::seeded(1),
            &settings,
        );
        let caller = Caller {
            object_id: "ME".into(),
            name: String::new(),
            app_id: String::new(),
            is_app: true,
            groups: vec![],
            token_id: String::new(),
        };
        let read = "Microsoft.Network/virtualNetworks/read";
        for (action, scope, expected) in [
            (
                read,
                "/subscriptions/s/resourceGroups/G/providers/Microsoft.Network/virtualNetworks/v",
                true,
            ),
            (read, "/subscriptions/s/resourceGroups/gg", false),
            (read, "/subscriptions/s", false),
            (
                "Microsoft.Network/virtualNetworks/write",
                "/subscriptions/s/resourceGroups/g",
                false,
            ),
        ] {
            assert_eq!(
                may(&turn, &caller, action, scope, false),
                expected,
                "{action} {scope}"
            );
        }
        assert!(sees(&turn, &caller, "/subscriptions/s"));
        assert!(!sees(&turn, &caller, "/subscriptions/other"));
    }
}
