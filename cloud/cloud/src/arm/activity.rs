//! The activity log: every write that was asked for, by whom, and what came of it.

use serde_json::{Value, json};

use super::access;
use super::fault::Fault;
use super::id::Path;
use crate::chance::seven_digits;
use crate::entra::token::Caller;
use crate::exchange::{Asked, Reply};
use crate::turn::Turn;

/// Writes one line of the log.
pub(crate) fn record(
    turn: &mut Turn<'_>,
    caller: &Caller,
    asked: &Asked,
    outcome: &Result<Reply, Fault>,
) {
    let path = Path::parse(&asked.path);
    let (Some(subscription), Some(action)) =
        (&path.subscription, access::action(&asked.method, &path))
    else {
        return;
    };
    let (status, code) = match outcome {
        Ok(reply) if reply.status.as_u16() == 202 => ("Accepted", 202),
        Ok(reply) => ("Succeeded", reply.status.as_u16()),
        Err(fault) => ("Failed", fault.status),
    };
    let (id, now) = (turn.chance.guid(), seven_digits(turn.now));
    let named = |value: &str| json!({"value": value, "localizedValue": value});
    let group = path.group.clone().unwrap_or_default();
    let event = json!({
        "authorization": {"action": action.name, "scope": action.scope},
        "caller": if caller.is_app { &caller.object_id } else { &caller.name },
        "channels": "Operation", "correlationId": asked.header("x-ms-client-request-id").unwrap_or(&id),
        "eventDataId": id, "eventName": named("EndRequest"), "category": named("Administrative"),
        "eventTimestamp": now, "submissionTimestamp": now, "level": if status == "Failed" { "Error" } else { "Informational" },
        "id": format!("{}/events/{id}", action.scope), "operationName": named(&action.name), "operationId": id,
        "resourceGroupName": group, "resourceProviderName": named(path.namespace.as_deref().unwrap_or("Microsoft.Resources")),
        "resourceId": action.scope, "status": named(status), "subStatus": named(&code.to_string()),
        "subscriptionId": subscription, "tenantId": turn.settings.tenant,
        "httpRequest": {"method": asked.method.as_str(), "uri": asked.path},
    });
    turn.put(
        format!("activity/{}/{now}-{id}", subscription.to_lowercase()),
        event,
    );
}

/// The log, as `eventtypes/management/values` shows it: newest first, by group, resource and time.
pub(crate) fn events(turn: &Turn<'_>, subscription: &str, filter: &str) -> Vec<Value> {
    let mut all = turn.under(&format!("activity/{}/", subscription.to_lowercase()));
    all.reverse();
    let fits = |event: &Value| {
        filter
            .split(" and ")
            .all(|clause| clause_fits(event, clause.trim()))
    };
    all.into_iter()
        .map(|(_, event)| event)
        .filter(fits)
        .collect()
}

fn clause_fits(event: &Value, clause: &str) -> bool {
    let mut words = clause.splitn(3, ' ');
    let (Some(field), Some(word), Some(value)) = (words.next(), words.next(), words.next()) else {
        return true;
    };
    let value = value.trim_matches('\'');
    match (field.to_lowercase().as_str(), word) {
        ("eventtimestamp", "ge") => event["eventTimestamp"].as_str().unwrap_or_default() >= value,
        ("eventtimestamp", "le") => event["eventTimestamp"].as_str().unwrap_or_default() <= value,
        ("resourcegroupname", _) => event["resourceGroupName"]
            .as_str()
            .is_some_and(|g| g.eq_ignore_ascii_case(value)),
        ("resourceid" | "resourceuri", _) => event["resourceId"]
            .as_str()
            .is_some_and(|g| g.eq_ignore_ascii_case(value)),
        ("correlationid", _) => event["correlationId"] == value,
        _ => true,
    }
}
