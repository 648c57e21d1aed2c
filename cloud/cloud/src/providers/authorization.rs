//! Microsoft.Authorization: role definitions, role assignments, locks.

use serde_json::{Value, json};

use super::{Call, Provider, Route, delete, get, put};
use crate::arm::access;
use crate::arm::document::{self, Document};
use crate::arm::fault::Fault;
use crate::arm::kind::{At, Draft, Kind, PLAIN};
use crate::arm::role;
use crate::chance::seven_digits;
use crate::entra::directory;
use crate::exchange::Reply;
use crate::turn::Turn;

const EXTENSION: Kind = Kind {
    at: At::Anywhere,
    has_location: false,
    ..PLAIN
};

pub(super) const PROVIDER: Provider = Provider {
    namespace: "Microsoft.Authorization",
    versions: &["2022-04-01", "2020-05-01", "2016-09-01"],
    kinds: &[&[
        Kind {
            name: "Microsoft.Authorization/roleAssignments",
            put: (201, 200),
            required: &["/properties/roleDefinitionId", "/properties/principalId"],
            decide: Some(assign),
            ..EXTENSION
        },
        Kind {
            name: "Microsoft.Authorization/locks",
            required: &["/properties/level"],
            decide: Some(lock),
            ..EXTENSION
        },
    ]],
    routes: ROUTES,
    more: &["roleDefinitions", "permissions", "policyAssignments"],
};

const ROUTES: &[Route] = &[
    get("roleDefinitions", definitions),
    get("roleDefinitions/{}", definition),
    put("roleDefinitions/{}", define),
    delete("roleDefinitions/{}", undefine),
    get("roleAssignments", assignments),
    get("locks", locks),
    get("permissions", permissions),
    get("policyAssignments", nothing),
    get("denyAssignments", nothing),
];

fn nothing(_: &mut Turn<'_>, _: &Call<'_>) -> Result<Reply, Fault> {
    Ok(Reply::list(Vec::new()))
}

/// The roles that can be assigned: built in, and made by people.
fn all(turn: &Turn<'_>) -> Vec<Value> {
    let subscription = &turn.settings.subscription;
    let built_in = role::built_ins()
        .iter()
        .map(|role| role::shown(role, subscription));
    let custom = turn.under("role/").into_iter().map(|(_, role)| role);
    built_in.chain(custom).collect()
}

fn definitions(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let filter = call.asked.param("$filter").unwrap_or_default();
    let wanted = filter.split('\'').nth(1).unwrap_or_default();
    let fits = |role: &Value| match filter.split_whitespace().next() {
        Some(word) if word.eq_ignore_ascii_case("roleName") => role["properties"]["roleName"]
            .as_str()
            .is_some_and(|name| name.eq_ignore_ascii_case(wanted)),
        Some(word) if word.eq_ignore_ascii_case("type") => role["properties"]["type"] == wanted,
        _ => true,
    };
    Ok(Reply::list(all(turn).into_iter().filter(fits).collect()))
}

fn not_there(id: &str) -> Fault {
    let message = format!("The specified role definition with ID '{id}' does not exist.");
    Fault::new(404, "RoleDefinitionDoesNotExist", message)
}

fn definition(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let id = call.names[0].to_lowercase();
    let found = all(turn).into_iter().find(|role| role["name"] == *id);
    found.map(Reply::ok).ok_or_else(|| not_there(&id))
}

fn define(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let id = call.names[0].to_lowercase();
    let body = call.body()?;
    if role::built_ins().iter().any(|role| role.id == id) {
        let message = "The role definition is built in and cannot be changed.";
        return Err(Fault::conflict("RoleDefinitionIsReadOnly", message));
    }
    let asked = &body["properties"];
    let name = asked["roleName"].as_str().unwrap_or_default();
    let scopes = asked["assignableScopes"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    if name.is_empty() || scopes.is_empty() {
        let message = "The role definition needs a name and at least one assignable scope.";
        return Err(Fault::bad("InvalidRoleDefinition", message));
    }
    let taken = |role: &Value| role["properties"]["roleName"] == name && role["name"] != *id;
    if all(turn).iter().any(taken) {
        let message = format!(
            "A custom role with the same name already exists in this directory. Use a different name: '{name}'."
        );
        return Err(Fault::conflict("RoleDefinitionWithSameNameExists", message));
    }
    let before = turn.get(&role::key(&id));
    let now = seven_digits(turn.now);
    let empty = json!([]);
    let words = |permission: &Value, field: &str| match permission[field].is_array() {
        true => permission[field].clone(),
        false => empty.clone(),
    };
    let permissions = asked["permissions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|p| {
            json!({"actions": words(p, "actions"), "notActions": words(p, "notActions"),
            "dataActions": words(p, "dataActions"), "notDataActions": words(p, "notDataActions")})
        });
    let made = json!({
        "id": format!("/subscriptions/{}/providers/Microsoft.Authorization/roleDefinitions/{id}", turn.settings.subscription),
        "name": id, "type": "Microsoft.Authorization/roleDefinitions",
        "properties": {"roleName": name, "type": "CustomRole", "description": asked["description"],
            "assignableScopes": scopes, "permissions": permissions.collect::<Vec<_>>(),
            "createdOn": before.map_or_else(|| json!(now), |b| b["properties"]["createdOn"].clone()), "updatedOn": now,
            "createdBy": call.caller.object_id, "updatedBy": call.caller.object_id},
    });
    turn.put(role::key(&id), made.clone());
    Ok(Reply::json(201, made))
}

fn undefine(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let id = call.names[0].to_lowercase();
    let Some(role) = turn.get(&role::key(&id)) else {
        return Ok(Reply::empty(204));
    };
    let mut used = turn.under("rbac/").into_iter();
    if used.any(|(_, entry)| entry["role"] == *id) {
        let message = "There are existing role assignments referencing role (code: RoleDefinitionHasAssignments)";
        return Err(Fault::bad("RoleDefinitionHasAssignments", message));
    }
    turn.remove(role::key(&id));
    Ok(Reply::ok(role))
}

/// A role assignment: of a principal that exists, to a role that exists, once.
fn assign(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let (own, scope) = (draft.id.to_string(), draft.id.scope.clone());
    let now = seven_digits(turn.now);
    let properties = draft.properties();
    let principal = properties["principalId"]
        .as_str()
        .unwrap_or_default()
        .to_lowercase();
    let role = role::id_of(properties["roleDefinitionId"].as_str().unwrap_or_default());
    if !role::exists(turn, &role) {
        return Err(not_there(&role));
    }
    let found = directory::object(turn, &principal);
    let asked = properties["principalType"].as_str().map(str::to_owned);
    if found.is_none() {
        let message = format!(
            "Principal {principal} does not exist in the directory {}. Check that you have the correct principal ID. If \
             you are creating this principal and then immediately assigning a role, this error might be related to a \
             replication delay.",
            turn.settings.tenant
        );
        return Err(Fault::bad("PrincipalNotFound", message));
    }
    let kind = found
        .map(|(kind, _)| kind.to_owned())
        .or(asked)
        .unwrap_or_default();
    let twin = |(key, entry): &(String, Value)| {
        !key.ends_with(&own.to_lowercase())
            && entry["role"] == *role
            && entry["scope"] == *scope.to_lowercase()
    };
    if turn.under(&format!("rbac/{principal}/")).iter().any(twin) {
        let message = "The role assignment already exists.";
        return Err(Fault::conflict("RoleAssignmentExists", message));
    }
    access::grant(turn, &principal, &own, &scope, &role);
    let shown_scope = if scope.is_empty() {
        "/".to_owned()
    } else {
        scope
    };
    document::fill(
        properties,
        &json!({"principalType": kind, "scope": shown_scope, "condition": null, "conditionVersion": null,
            "createdOn": now, "updatedOn": now, "createdBy": null, "updatedBy": null,
            "delegatedManagedIdentityResourceId": null, "description": null}),
    );
    document::take(properties, "/provisioningState");
    Ok(())
}

/// The assignments at a scope, above it and, unless only those at it are wanted, below it.
fn assignments(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let filter = call
        .asked
        .param("$filter")
        .unwrap_or_default()
        .to_lowercase();
    let scope = call.path.scope.to_lowercase();
    let only_here = filter.contains("atscope()");
    let principal = filter
        .split("principalid eq '")
        .nth(1)
        .or_else(|| filter.split("assignedto('").nth(1));
    let principal = principal.and_then(|rest| rest.split('\'').next());
    let fits = |body: &Value| {
        let at = body["properties"]["scope"]
            .as_str()
            .unwrap_or_default()
            .to_lowercase();
        let at = at.trim_end_matches('/');
        let is_above = scope == at || scope.starts_with(&format!("{at}/"));
        let is_below = at.starts_with(&format!("{scope}/"));
        let of_whom = body["properties"]["principalId"]
            .as_str()
            .unwrap_or_default()
            .to_lowercase();
        (is_above || (is_below && !only_here)) && principal.is_none_or(|wanted| wanted == of_whom)
    };
    let all = turn.under("arm/").into_iter();
    let its =
        all.filter(|(key, _)| key.contains("/providers/microsoft.authorization/roleassignments/"));
    Ok(Reply::list(
        its.map(|(_, entry)| Document::read(entry).body)
            .filter(fits)
            .collect(),
    ))
}

fn lock(_: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    document::take(draft.properties(), "/provisioningState");
    match draft.body["properties"]["level"].as_str() {
        Some("CanNotDelete" | "ReadOnly") => Ok(()),
        other => {
            let message = format!(
                "The lock level '{}' is not valid.",
                other.unwrap_or_default()
            );
            Err(Fault::bad("InvalidLockLevel", message))
        }
    }
}

/// The locks at a scope and below it.
fn locks(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let below = turn
        .under(&crate::arm::id::key(&call.path.scope))
        .into_iter();
    let its = below.filter(|(key, _)| key.contains("/providers/microsoft.authorization/locks/"));
    Ok(Reply::list(
        its.map(|(_, entry)| Document::read(entry).body).collect(),
    ))
}

fn permissions(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let may = access::may(turn, call.caller, "*", &call.path.scope, false);
    let actions = if may { json!(["*"]) } else { json!([]) };
    Ok(Reply::list(vec![
        json!({"actions": actions, "notActions": [], "dataActions": [], "notDataActions": []}),
    ]))
}

/// A principal loses its role together with the assignment.
pub(super) fn removed(turn: &mut Turn<'_>, kind: &Kind, document: &Document) {
    if kind.collection() == "roleAssignments" {
        let principal = document.body["properties"]["principalId"]
            .as_str()
            .unwrap_or_default();
        turn.remove(access::key(principal, document.id()));
    }
}
