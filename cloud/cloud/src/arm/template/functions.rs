//! The functions of templates. One that is missing is named in the error.

mod collections;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Scope, invalid};
use crate::arm::document;
use crate::arm::fault::Fault;
use crate::arm::id::{self, Id};
use crate::arm::kind;
use crate::providers;

type Arguments<'a> = &'a [Value];

/// How long a list or a text may become that a number asks for; ARM's own bound for `range`.
const LONGEST: usize = 10_000;

/// Calls a function.
pub(super) fn call(scope: &Scope<'_, '_>, name: &str, a: Arguments<'_>) -> Result<Value, Fault> {
    let lower = name.to_lowercase();
    match lower.as_str() {
        "parameters" => parameter(scope, text(a, 0)),
        "variables" => scope.variable(text(a, 0)),
        "copyindex" => copy_index(scope, a),
        "resourceid"
        | "subscriptionresourceid"
        | "tenantresourceid"
        | "extensionresourceid"
        | "resourcegroup"
        | "subscription"
        | "tenant"
        | "deployment"
        | "environment"
        | "reference"
        | "providers"
        | "listkeys"
        | "utcnow"
        | "newguid" => about_resources(scope, &lower, a),
        _ => match texts(&lower, a)
            .or_else(|| collections::call(&lower, a))
            .or_else(|| logic(&lower, a))
        {
            Some(value) => Ok(value),
            None => Err(invalid(format!(
                "The template function '{name}' is not valid here, or not known to this cloud"
            ))),
        },
    }
}

fn text<'a>(a: Arguments<'a>, at: usize) -> &'a str {
    a.get(at).and_then(Value::as_str).unwrap_or_default()
}

fn number(a: Arguments<'_>, at: usize) -> Option<i64> {
    a.get(at).and_then(Value::as_i64)
}

fn parameter(scope: &Scope<'_, '_>, name: &str) -> Result<Value, Fault> {
    let found = scope.parameters.get(&name.to_lowercase());
    found
        .cloned()
        .ok_or_else(|| invalid(format!("The template parameter '{name}' is not found")))
}

fn copy_index(scope: &Scope<'_, '_>, a: Arguments<'_>) -> Result<Value, Fault> {
    let name = a.first().and_then(Value::as_str);
    let offset = number(a, usize::from(name.is_some())).unwrap_or(0);
    let index = scope.loop_index(name);
    let index = index.ok_or_else(|| {
        invalid("The template function 'copyIndex' is not expected at this location")
    })?;
    Ok(json!(index as i64 + offset))
}

/// A value as it stands in a text.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        other => other.to_string(),
    }
}

fn texts(name: &str, a: Arguments<'_>) -> Option<Value> {
    let first = text(a, 0);
    Some(match name {
        "concat" if a.first().is_some_and(Value::is_array) => Value::Array(
            a.iter()
                .filter_map(Value::as_array)
                .flatten()
                .cloned()
                .collect(),
        ),
        "concat" => json!(a.iter().map(plain).collect::<String>()),
        "format" => json!(format(first, a.get(1..)?)),
        "tolower" => json!(first.to_lowercase()),
        "toupper" => json!(first.to_uppercase()),
        "trim" => json!(first.trim()),
        "replace" => json!(first.replace(text(a, 1), text(a, 2))),
        "string" => json!(plain(a.first()?)),
        "split" => json!(first.split(text(a, 1)).collect::<Vec<_>>()),
        "join" => json!(
            a.first()?
                .as_array()?
                .iter()
                .map(plain)
                .collect::<Vec<_>>()
                .join(text(a, 1))
        ),
        "startswith" => json!(first.to_lowercase().starts_with(&text(a, 1).to_lowercase())),
        "endswith" => json!(first.to_lowercase().ends_with(&text(a, 1).to_lowercase())),
        "substring" => {
            let from = number(a, 1).unwrap_or(0) as usize;
            let rest = first.chars().skip(from);
            json!(match number(a, 2) {
                Some(length) => rest.take(length as usize).collect::<String>(),
                None => rest.collect(),
            })
        }
        "padleft" => {
            let fill = text(a, 2).chars().next().unwrap_or(' ');
            let value = plain(a.first()?);
            let width = usize::try_from(number(a, 1)?)
                .ok()
                .filter(|w| *w <= LONGEST)?;
            let missing = width.saturating_sub(value.chars().count());
            json!(std::iter::repeat_n(fill, missing).collect::<String>() + &value)
        }
        "indexof" if !a.first()?.is_array() => {
            json!(
                first
                    .to_lowercase()
                    .find(&text(a, 1).to_lowercase())
                    .map_or(-1, |at| at as i64)
            )
        }
        "base64" => json!(STANDARD.encode(first)),
        "base64tostring" => json!(String::from_utf8(STANDARD.decode(first).ok()?).ok()?),
        "uri" => json!(format!(
            "{}/{}",
            first.trim_end_matches('/'),
            text(a, 1).trim_start_matches('/')
        )),
        "uricomponent" => json!(crate::exchange::encode(first)),
        "uniquestring" => json!(unique(a)),
        "guid" => json!(guid(a)),
        "json" => serde_json::from_str(first).ok()?,
        _ => return None,
    })
}

fn format(pattern: &str, a: Arguments<'_>) -> String {
    let mut out = pattern.to_owned();
    for (at, value) in a.iter().enumerate() {
        out = out.replace(&format!("{{{at}}}"), &plain(value));
    }
    out
}

fn digest(a: Arguments<'_>) -> Vec<u8> {
    let joined: Vec<String> = a.iter().map(plain).collect();
    Sha256::digest(joined.join("-")).to_vec()
}

/// Thirteen characters that are the same for the same arguments.
fn unique(a: Arguments<'_>) -> String {
    let alphabet = b"abcdefghijklmnopqrstuvwxyz234567";
    digest(a)
        .iter()
        .take(13)
        .map(|byte| alphabet[usize::from(*byte) % 32] as char)
        .collect()
}

fn guid(a: Arguments<'_>) -> String {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest(a)[..16]);
    uuid::Builder::from_custom_bytes(bytes)
        .into_uuid()
        .to_string()
}

fn logic(name: &str, a: Arguments<'_>) -> Option<Value> {
    let compare = || -> Option<std::cmp::Ordering> {
        match (number(a, 0), number(a, 1)) {
            (Some(one), Some(other)) => Some(one.cmp(&other)),
            _ => Some(text(a, 0).cmp(text(a, 1))),
        }
    };
    let whole = |combine: fn(i64, i64) -> Option<i64>| {
        combine(number(a, 0)?, number(a, 1)?).map(|n| json!(n))
    };
    Some(match name {
        "equals" => json!(a.first()? == a.get(1)?),
        "not" => json!(!a.first()?.as_bool()?),
        "and" => json!(a.iter().all(|one| *one == json!(true))),
        "or" => json!(a.contains(&json!(true))),
        "bool" => json!(matches!(
            plain(a.first()?).to_lowercase().as_str(),
            "true" | "1"
        )),
        "true" => json!(true),
        "false" => json!(false),
        "null" => Value::Null,
        "coalesce" => a
            .iter()
            .find(|one| !one.is_null())
            .cloned()
            .unwrap_or_default(),
        "less" => json!(compare()?.is_lt()),
        "lessorequals" => json!(compare()?.is_le()),
        "greater" => json!(compare()?.is_gt()),
        "greaterorequals" => json!(compare()?.is_ge()),
        "add" => whole(i64::checked_add)?,
        "sub" => whole(i64::checked_sub)?,
        "mul" => whole(i64::checked_mul)?,
        "div" => whole(i64::checked_div)?,
        "mod" => whole(i64::checked_rem)?,
        "int" => json!(plain(a.first()?).trim().parse::<i64>().ok()?),
        "min" | "max" => {
            let listed = a.first()?.as_array();
            let numbers = listed
                .map_or(a, Vec::as_slice)
                .iter()
                .filter_map(Value::as_i64);
            json!(if name == "min" {
                numbers.min()?
            } else {
                numbers.max()?
            })
        }
        _ => return None,
    })
}

fn about_resources(scope: &Scope<'_, '_>, name: &str, a: Arguments<'_>) -> Result<Value, Fault> {
    let turn = scope.turn;
    Ok(match name {
        "resourceid" => json!(resource_id(scope, a)?),
        "subscriptionresourceid" => {
            let rest = if text(a, 0).contains('/') {
                a
            } else {
                a.get(1..).unwrap_or_default()
            };
            json!(below(
                &format!("/subscriptions/{}", scope.subscription),
                rest
            )?)
        }
        "tenantresourceid" => json!(below("", a)?),
        "extensionresourceid" => json!(below(text(a, 0), a.get(1..).unwrap_or_default())?),
        "subscription" => {
            json!({"id": format!("/subscriptions/{}", scope.subscription), "subscriptionId": scope.subscription,
            "tenantId": turn.settings.tenant, "displayName": "Kyanite"})
        }
        "tenant" => json!({"tenantId": turn.settings.tenant}),
        "resourcegroup" => {
            let group = scope
                .group
                .as_deref()
                .ok_or_else(|| invalid("resourceGroup() has no group here"))?;
            let found = document::get(turn, &id::group(&scope.subscription, group));
            let mut body = found.map(|group| group.body).unwrap_or_default();
            document::fill(&mut body, &json!({"tags": {}}));
            body
        }
        "deployment" => {
            json!({"name": scope.deployment, "properties": {"templateLink": {"uri": ""}}})
        }
        "environment" => {
            json!({"name": "AzureCloud", "resourceManager": format!("{}/", turn.settings.origin),
            "authentication": {"loginEndpoint": turn.settings.origin, "audiences": [turn.settings.audience()], "tenant": "common"},
            "suffixes": {"keyvaultDns": format!(".vault.{}", turn.settings.host()), "storage": format!("core.{}", turn.settings.host()),
                "acrLoginServer": format!(".azurecr.{}", turn.settings.host())}})
        }
        "reference" => reference(scope, a)?,
        "providers" => listed_provider(text(a, 0), text(a, 1)),
        "utcnow" => json!(turn.now.strftime("%Y%m%dT%H%M%SZ").to_string()),
        "newguid" => json!(guid(&[
            json!(scope.deployment),
            json!(turn.now.to_string())
        ])),
        _ => {
            return Err(invalid(format!(
                "The template function '{name}' is not supported by this cloud"
            )));
        }
    })
}

/// `resourceId([subscription], [group], type, names…)`.
fn resource_id(scope: &Scope<'_, '_>, a: Arguments<'_>) -> Result<String, Fault> {
    let at = a.iter().position(|one| {
        one.as_str()
            .is_some_and(|text| text.contains('/') && text.contains('.'))
    });
    let at = at.ok_or_else(|| {
        invalid("Unable to evaluate template language function 'resourceId': no type is given")
    })?;
    let place = match &a[..at] {
        [] => scope.place(),
        [group] => id::group(&scope.subscription, group.as_str().unwrap_or_default()),
        [subscription, group, ..] => id::group(
            subscription.as_str().unwrap_or_default(),
            group.as_str().unwrap_or_default(),
        ),
    };
    below(&place, &a[at..])
}

fn below(place: &str, a: Arguments<'_>) -> Result<String, Fault> {
    let (kind, names) = (text(a, 0), a.get(1..).unwrap_or_default());
    let mut parts = kind.split('/');
    let namespace = parts.next().unwrap_or_default();
    let types: Vec<&str> = parts.collect();
    let names: Vec<String> = names
        .iter()
        .map(plain)
        .flat_map(|name| name.split('/').map(str::to_owned).collect::<Vec<_>>())
        .collect();
    if types.len() != names.len() {
        return Err(invalid(format!(
            "Unable to evaluate template language function 'resourceId': the type '{kind}' requires '{}' \
            resource name argument(s)",
            types.len()
        )));
    }
    let pairs: String = types
        .iter()
        .zip(names)
        .map(|(kind, name)| format!("/{kind}/{name}"))
        .collect();
    Ok(format!("{place}/providers/{namespace}{pairs}"))
}

/// `reference(id or name, [version], ['Full'])`: the properties of what is there.
fn reference(scope: &Scope<'_, '_>, a: Arguments<'_>) -> Result<Value, Fault> {
    let wanted = text(a, 0);
    let id = match wanted.starts_with('/') {
        true => Id::parse(wanted),
        false => named(scope, wanted),
    };
    let missing = || {
        invalid(format!(
            "The resource '{wanted}' is not defined in the template and was not found"
        ))
    };
    let id = id.ok_or_else(missing)?;
    let kind = kind::named(&id.kind());
    let found = match kind {
        Some(kind) if kind.within.is_some() => crate::arm::inner::get(scope.turn, &id, kind),
        _ => document::get(scope.turn, &id.to_string()),
    };
    let found = found.ok_or_else(missing)?;
    Ok(match text(a, 2).eq_ignore_ascii_case("full") {
        true => found.body,
        false => found.body["properties"].clone(),
    })
}

/// What a template calls by its name alone: the one resource of the group with that name.
fn named(scope: &Scope<'_, '_>, name: &str) -> Option<Id> {
    let prefix = format!("{}/", id::key(&scope.place()));
    let lower = format!("/{}", name.to_lowercase());
    let found = scope
        .turn
        .under(&prefix)
        .into_iter()
        .find(|(key, _)| key.ends_with(&lower))?;
    Id::parse(found.1["body"]["id"].as_str()?)
}

fn listed_provider(namespace: &str, kind: &str) -> Value {
    let found = providers::PROVIDERS
        .iter()
        .find(|p| p.namespace.eq_ignore_ascii_case(namespace));
    let versions = found.map_or(&[] as &[&str], |provider| provider.versions);
    json!({"resourceType": kind, "locations": crate::arm::region::titles(), "apiVersions": versions})
}
