//! Namespaces and what lives in them besides workloads: configuration, events, quotas, bindings.

use std::borrow::Cow;

use serde_json::Value;

use super::column::{self, AGE, NAME, text, wide};
use super::row::{self, Row, is_set, joined};
use super::{Column, Printer};
use crate::convert::core_event;

pub(super) const PRINTERS: [Printer; 10] = [
    Printer("", "Namespace", &NAMESPACE, namespace),
    Printer("", "ConfigMap", &CONFIG_MAP, config_map),
    Printer("", "Secret", &SECRET, secret),
    Printer("", "ServiceAccount", &[NAME, AGE], |row| {
        vec![row.name(), row.age()]
    }),
    Printer("", "Event", &EVENT, event),
    Printer("events.k8s.io", "Event", &EVENT, event),
    Printer("", "ResourceQuota", &RESOURCE_QUOTA, resource_quota),
    Printer(
        "rbac.authorization.k8s.io",
        "RoleBinding",
        &ROLE_BINDING,
        role_binding,
    ),
    Printer(
        "rbac.authorization.k8s.io",
        "ClusterRoleBinding",
        &ROLE_BINDING,
        role_binding,
    ),
    Printer("coordination.k8s.io", "Lease", &LEASE, lease),
];

const NAMESPACE: [Column; 3] = [
    NAME,
    text("Status", "Whether the namespace is in use or ending."),
    AGE,
];

fn namespace(row: &Row<'_>) -> Vec<Value> {
    vec![row.name(), row.text("/status/phase").into(), row.age()]
}

const CONFIG_MAP: [Column; 3] = [NAME, text("Data", "Number of entries."), AGE];

fn config_map(row: &Row<'_>) -> Vec<Value> {
    vec![
        row.name(),
        (row.count("/data") + row.count("/binaryData")).into(),
        row.age(),
    ]
}

const SECRET: [Column; 4] = [
    NAME,
    text("Type", "What the secret is for."),
    text("Data", "Number of entries."),
    AGE,
];

fn secret(row: &Row<'_>) -> Vec<Value> {
    vec![
        row.name(),
        row.text("/type").into(),
        row.count("/data").into(),
        row.age(),
    ]
}

const EVENT: [Column; 10] = [
    text("Last Seen", "Time since the event last happened."),
    text("Type", "Normal or warning."),
    text("Reason", "Why it happened, in one word."),
    text("Object", "What it happened to."),
    wide("Subobject", "Part of the object it happened to."),
    wide("Source", "Who reports it."),
    text("Message", "What happened."),
    wide("First Seen", "Time since the event first happened."),
    wide("Count", "How often it happened."),
    column::name("Name", "The object's name.", 1),
];

fn event(row: &Row<'_>) -> Vec<Value> {
    let object = match row.object.get("involvedObject") {
        Some(_) => Cow::Borrowed(row.object),
        None => Cow::Owned(core_event(row.object)),
    };
    let row = Row {
        object: &object,
        now: row.now,
    };
    let (first, last) = event_ages(&row);
    // Both are zero for a single event of the newer API.
    let count = match is_set(row.object, "/series") {
        true => row.int("/series/count"),
        false => row.int("/count").max(1),
    };
    vec![
        last.into(),
        row.text("/type").into(),
        row.text("/reason").into(),
        event_object(&row).into(),
        row.text("/involvedObject/fieldPath").into(),
        event_source(&row).into(),
        row.text("/message").trim().into(),
        first.into(),
        count.into(),
        row.name(),
    ]
}

fn event_ages(row: &Row<'_>) -> (String, String) {
    let first = if is_set(row.object, "/firstTimestamp") {
        "/firstTimestamp"
    } else {
        "/eventTime"
    };
    let last = match ["/series", "/lastTimestamp"]
        .into_iter()
        .find(|pointer| is_set(row.object, pointer))
    {
        Some("/series") => "/series/lastObservedTime",
        Some(last) => last,
        None => first,
    };
    (row.since(first), row.since(last))
}

fn event_object(row: &Row<'_>) -> String {
    let kind = row.text("/involvedObject/kind").to_lowercase();
    match row.text("/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn event_source(row: &Row<'_>) -> String {
    let component = row::non_empty(
        row.text("/source/component"),
        row.text("/reportingComponent"),
    );
    match row::non_empty(row.text("/source/host"), row.text("/reportingInstance")) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    }
}

const RESOURCE_QUOTA: [Column; 4] = [
    NAME,
    text("Request", "Used and allowed amounts, other than limits."),
    text("Limit", "Used and allowed amounts of limits."),
    AGE,
];

fn resource_quota(row: &Row<'_>) -> Vec<Value> {
    let used = &row.object["status"]["used"];
    let hard = row.object["status"]["hard"]
        .as_object()
        .into_iter()
        .flatten();
    let mut hard: Vec<(&String, &Value)> = hard.collect();
    hard.sort_by_key(|(name, _)| *name);
    let (limits, requests): (Vec<_>, Vec<_>) = hard
        .into_iter()
        .partition(|(name, _)| name.starts_with("limits."));
    let shown = |amounts: Vec<(&String, &Value)>| -> Value {
        let amount = |(name, hard): (&String, &Value)| {
            format!(
                "{name}: {}/{}",
                used[name].as_str().unwrap_or("0"),
                hard.as_str().unwrap_or("0")
            )
        };
        amounts
            .into_iter()
            .map(amount)
            .collect::<Vec<_>>()
            .join(", ")
            .into()
    };
    vec![row.name(), shown(requests), shown(limits), row.age()]
}

const ROLE_BINDING: [Column; 6] = [
    NAME,
    text("Role", "Role that is granted."),
    AGE,
    wide("Users", "Users it is granted to."),
    wide("Groups", "Groups it is granted to."),
    wide("ServiceAccounts", "Service accounts it is granted to."),
];

fn role_binding(row: &Row<'_>) -> Vec<Value> {
    let role = [row.text("/roleRef/kind"), row.text("/roleRef/name")].join("/");
    let subjects = row.list("/subjects");
    let of_kind = |kind: &'static str| {
        subjects
            .iter()
            .filter(move |subject| row::text(subject, "/kind") == kind)
    };
    let names = |kind: &'static str| {
        joined(
            of_kind(kind).map(|subject| row::text(subject, "/name")),
            ", ",
        )
    };
    let accounts = of_kind("ServiceAccount")
        .map(|subject| {
            format!(
                "{}/{}",
                row::text(subject, "/namespace"),
                row::text(subject, "/name")
            )
        })
        .collect::<Vec<_>>();
    vec![
        row.name(),
        role.into(),
        row.age(),
        names("User"),
        names("Group"),
        accounts.join(", ").into(),
    ]
}

const LEASE: [Column; 3] = [NAME, text("Holder", "Who holds the lease."), AGE];

fn lease(row: &Row<'_>) -> Vec<Value> {
    vec![
        row.name(),
        row.text("/spec/holderIdentity").into(),
        row.age(),
    ]
}
