//! What extends or guards the API itself: webhooks, policies, flow control, aggregated APIs.

use serde_json::Value;

use super::column::{AGE, NAME, integer, text};
use super::row::{self, Row, condition, is_set};
use super::{Column, Printer};

const ADMISSION: &str = "admissionregistration.k8s.io";
const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io";

pub(super) const PRINTERS: [Printer; 9] = [
    Printer(
        ADMISSION,
        "MutatingWebhookConfiguration",
        &WEBHOOKS,
        webhooks,
    ),
    Printer(
        ADMISSION,
        "ValidatingWebhookConfiguration",
        &WEBHOOKS,
        webhooks,
    ),
    Printer(
        ADMISSION,
        "ValidatingAdmissionPolicy",
        &VALIDATING_POLICY,
        |row| policy(row, "/spec/validations"),
    ),
    Printer(
        ADMISSION,
        "MutatingAdmissionPolicy",
        &MUTATING_POLICY,
        |row| policy(row, "/spec/mutations"),
    ),
    Printer(
        ADMISSION,
        "ValidatingAdmissionPolicyBinding",
        &POLICY_BINDING,
        policy_binding,
    ),
    Printer(
        ADMISSION,
        "MutatingAdmissionPolicyBinding",
        &POLICY_BINDING,
        policy_binding,
    ),
    Printer(FLOW_CONTROL, "FlowSchema", &FLOW_SCHEMA, flow_schema),
    Printer(
        FLOW_CONTROL,
        "PriorityLevelConfiguration",
        &PRIORITY_LEVEL,
        priority_level,
    ),
    Printer(
        "apiregistration.k8s.io",
        "APIService",
        &API_SERVICE,
        api_service,
    ),
];

const WEBHOOKS: [Column; 3] = [NAME, integer("Webhooks", "Number of webhooks."), AGE];

fn webhooks(row: &Row<'_>) -> Vec<Value> {
    vec![row.name(), row.count("/webhooks").into(), row.age()]
}

const PARAM_KIND: Column = text("ParamKind", "Kind of the policy's parameters.");

const VALIDATING_POLICY: [Column; 4] = [
    NAME,
    integer("Validations", "Number of rules."),
    PARAM_KIND,
    AGE,
];

const MUTATING_POLICY: [Column; 4] = [
    NAME,
    integer("Mutations", "Number of changes."),
    PARAM_KIND,
    AGE,
];

fn policy(row: &Row<'_>, rules: &str) -> Vec<Value> {
    let kind = match is_set(row.object, "/spec/paramKind") {
        true => [
            row.text("/spec/paramKind/apiVersion"),
            row.text("/spec/paramKind/kind"),
        ]
        .join("/"),
        false => "<unset>".to_owned(),
    };
    vec![row.name(), row.count(rules).into(), kind.into(), row.age()]
}

const POLICY_BINDING: [Column; 4] = [
    NAME,
    text("PolicyName", "Policy that is put in force."),
    text("ParamRef", "Where the policy's parameters come from."),
    AGE,
];

// A parameter without a namespace shows `*`: whether its kind has namespaces is not known here.
fn policy_binding(row: &Row<'_>) -> Vec<Value> {
    let selector = &row.object["spec"]["paramRef"]["selector"];
    let params = match (
        row.text("/spec/paramRef/namespace"),
        row.text("/spec/paramRef/name"),
    ) {
        (_, "") if selector.is_null() => "<unset>".to_owned(),
        (_, "") => go_selector(selector),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    vec![
        row.name(),
        row.text("/spec/policyName").into(),
        params.into(),
        row.age(),
    ]
}

/// A label selector as Go's generated `String` method prints it, which is what upstream shows here.
fn go_selector(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let mut labels: Vec<String> = labels
        .map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default()))
        .collect();
    labels.sort();
    let expression = |expression: &Value| {
        let values: Vec<&str> = row::list(expression, "/values")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let (key, operator) = (
            row::text(expression, "/key"),
            row::text(expression, "/operator"),
        );
        format!(
            "LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{}],}},",
            values.join(" ")
        )
    };
    let expressions: String = row::list(selector, "/matchExpressions")
        .iter()
        .map(expression)
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}",
        labels.concat()
    )
}

const FLOW_SCHEMA: [Column; 6] = [
    NAME,
    text("PriorityLevel", "Priority level of the matched requests."),
    text("MatchingPrecedence", "Which schema wins; the lowest does."),
    text("DistinguisherMethod", "What parts the requests into flows."),
    AGE,
    text("MissingPL", "Whether the priority level does not exist."),
];

fn flow_schema(row: &Row<'_>) -> Vec<Value> {
    let dangling = condition(row.list("/status/conditions"), "Dangling");
    let method = match is_set(row.object, "/spec/distinguisherMethod") {
        true => row.text("/spec/distinguisherMethod/type"),
        false => "<none>",
    };
    vec![
        row.name(),
        row.text("/spec/priorityLevelConfiguration/name").into(),
        row.int("/spec/matchingPrecedence").into(),
        method.into(),
        row.age(),
        dangling
            .map_or("?", |condition| row::text(condition, "/status"))
            .into(),
    ]
}

const PRIORITY_LEVEL: [Column; 7] = [
    NAME,
    text("Type", "Whether requests of the level are limited."),
    text(
        "NominalConcurrencyShares",
        "Share of the server's concurrency.",
    ),
    text("Queues", "Number of queues."),
    text("HandSize", "Queues one flow may use."),
    text("QueueLengthLimit", "Most requests in one queue."),
    AGE,
];

fn priority_level(row: &Row<'_>) -> Vec<Value> {
    let number_under = |parent: &str, field: &str| match is_set(row.object, parent) {
        true => row.int(&format!("{parent}/{field}")).into(),
        false => "<none>".into(),
    };
    const LIMITED: &str = "/spec/limited";
    const QUEUING: &str = "/spec/limited/limitResponse/queuing";
    vec![
        row.name(),
        row.text("/spec/type").into(),
        number_under(LIMITED, "nominalConcurrencyShares"),
        number_under(QUEUING, "queues"),
        number_under(QUEUING, "handSize"),
        number_under(QUEUING, "queueLengthLimit"),
        row.age(),
    ]
}

const API_SERVICE: [Column; 4] = [
    NAME,
    text("Service", "Service that answers, or the server itself."),
    text("Available", "Whether the API can be reached."),
    AGE,
];

fn api_service(row: &Row<'_>) -> Vec<Value> {
    let service = match is_set(row.object, "/spec/service") {
        true => [
            row.text("/spec/service/namespace"),
            row.text("/spec/service/name"),
        ]
        .join("/"),
        false => "Local".to_owned(),
    };
    let available = match condition(row.list("/status/conditions"), "Available") {
        None => "Unknown".to_owned(),
        Some(condition) => match (
            row::text(condition, "/status"),
            row::text(condition, "/reason"),
        ) {
            (status @ "True", _) | (status, "") => status.to_owned(),
            (status, reason) => format!("{status} ({reason})"),
        },
    };
    vec![row.name(), service.into(), available.into(), row.age()]
}
