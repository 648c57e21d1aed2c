//! Workloads: what makes pods.

use jiff::Timestamp;
use kube_kit::duration;
use kube_kit::selector::LabelSelector;
use serde_json::Value;

use super::column::{AGE, CONTAINERS, IMAGES, NAME, SELECTOR, boolean, integer, text};
use super::row::{self, Row, is_set, is_true};
use super::{Column, Printer};

pub(super) const PRINTERS: [Printer; 10] = [
    Printer("apps", "Deployment", &DEPLOYMENT, deployment),
    Printer("apps", "ReplicaSet", &REPLICA_SET, replica_set),
    Printer(
        "",
        "ReplicationController",
        &REPLICA_SET,
        replication_controller,
    ),
    Printer("apps", "DaemonSet", &DAEMON_SET, daemon_set),
    Printer("apps", "StatefulSet", &STATEFUL_SET, stateful_set),
    Printer(
        "apps",
        "ControllerRevision",
        &CONTROLLER_REVISION,
        controller_revision,
    ),
    Printer("batch", "Job", &JOB, job),
    Printer("batch", "CronJob", &CRON_JOB, cron_job),
    Printer("", "PodTemplate", &POD_TEMPLATE, pod_template),
    Printer(
        "policy",
        "PodDisruptionBudget",
        &DISRUPTION_BUDGET,
        disruption_budget,
    ),
];

const TEMPLATE: &str = "/spec/template/spec";

const DEPLOYMENT: [Column; 8] = [
    NAME,
    text("Ready", "Ready pods and wanted pods."),
    text("Up-to-date", "Pods made from the current template."),
    text("Available", "Pods that have been ready for long enough."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

fn deployment(row: &Row<'_>) -> Vec<Value> {
    let [names, images] = row.containers(TEMPLATE);
    vec![
        row.name(),
        ready_of_wanted(row),
        row.int("/status/updatedReplicas").into(),
        row.int("/status/availableReplicas").into(),
        row.age(),
        names,
        images,
        deployment_selector(row),
    ]
}

// Unlike the other kinds, a deployment without a selector shows nothing and a bad one `<invalid>`.
fn deployment_selector(row: &Row<'_>) -> Value {
    match LabelSelector::from_object(&row.object["spec"]["selector"]) {
        Ok(selector) => selector.to_string().into(),
        Err(_) => "<invalid>".into(),
    }
}

fn ready_of_wanted(row: &Row<'_>) -> Value {
    format!(
        "{}/{}",
        row.int("/status/readyReplicas"),
        row.int("/spec/replicas")
    )
    .into()
}

const REPLICA_SET: [Column; 8] = [
    NAME,
    integer("Desired", "Wanted pods."),
    integer("Current", "Existing pods."),
    integer("Ready", "Ready pods."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

fn replica_set(row: &Row<'_>) -> Vec<Value> {
    replicas(row, row.selector("/spec/selector"))
}

fn replication_controller(row: &Row<'_>) -> Vec<Value> {
    replicas(row, row.labels("/spec/selector"))
}

fn replicas(row: &Row<'_>, selector: Value) -> Vec<Value> {
    let [names, images] = row.containers(TEMPLATE);
    vec![
        row.name(),
        row.int("/spec/replicas").into(),
        row.int("/status/replicas").into(),
        row.int("/status/readyReplicas").into(),
        row.age(),
        names,
        images,
        selector,
    ]
}

const DAEMON_SET: [Column; 11] = [
    NAME,
    integer("Desired", "Nodes that should run a pod."),
    integer("Current", "Nodes that run a pod and should."),
    integer("Ready", "Nodes whose pod is ready."),
    integer(
        "Up-to-date",
        "Nodes whose pod is made from the current template.",
    ),
    integer(
        "Available",
        "Nodes whose pod has been ready for long enough.",
    ),
    text(
        "Node Selector",
        "Labels of the nodes that should run a pod.",
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

fn daemon_set(row: &Row<'_>) -> Vec<Value> {
    let [names, images] = row.containers(TEMPLATE);
    vec![
        row.name(),
        row.int("/status/desiredNumberScheduled").into(),
        row.int("/status/currentNumberScheduled").into(),
        row.int("/status/numberReady").into(),
        row.int("/status/updatedNumberScheduled").into(),
        row.int("/status/numberAvailable").into(),
        row.labels("/spec/template/spec/nodeSelector"),
        row.age(),
        names,
        images,
        row.selector("/spec/selector"),
    ]
}

const STATEFUL_SET: [Column; 5] = [
    NAME,
    text("Ready", "Ready pods and wanted pods."),
    AGE,
    CONTAINERS,
    IMAGES,
];

fn stateful_set(row: &Row<'_>) -> Vec<Value> {
    let [names, images] = row.containers(TEMPLATE);
    vec![row.name(), ready_of_wanted(row), row.age(), names, images]
}

const CONTROLLER_REVISION: [Column; 4] = [
    NAME,
    text("Controller", "What the revision belongs to."),
    text("Revision", "Number of the revision."),
    AGE,
];

fn controller_revision(row: &Row<'_>) -> Vec<Value> {
    let mut owners = row.list("/metadata/ownerReferences").iter();
    let controller = match owners.find(|owner| row::flag(owner, "/controller")) {
        Some(owner) => owner_name(owner),
        None => "<none>".to_owned(),
    };
    vec![
        row.name(),
        controller.into(),
        row.int("/revision").into(),
        row.age(),
    ]
}

/// `kind.group/name`, without the dot in core.
fn owner_name(owner: &Value) -> String {
    let kind = row::text(owner, "/kind").to_lowercase();
    let name = row::text(owner, "/name");
    let group = row::text(owner, "/apiVersion")
        .split_once('/')
        .map(|(group, _)| group.to_lowercase());
    match (kind.as_str(), group) {
        (kind, Some(group)) => format!("{kind}.{group}/{name}"),
        ("", None) => name.to_owned(),
        (kind, None) => format!("{kind}/{name}"),
    }
}

const JOB: [Column; 8] = [
    NAME,
    text("Status", "How far the job is."),
    text("Completions", "Pods that succeeded and pods that must."),
    text("Duration", "How long the job ran, or runs."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

fn job(row: &Row<'_>) -> Vec<Value> {
    let [names, images] = row.containers(TEMPLATE);
    vec![
        row.name(),
        job_status(row).into(),
        job_completions(row).into(),
        job_duration(row).into(),
        row.age(),
        names,
        images,
        row.selector("/spec/selector"),
    ]
}

fn job_status(row: &Row<'_>) -> &'static str {
    let conditions = row.list("/status/conditions");
    let first = |types: &[&'static str]| types.iter().copied().find(|ty| is_true(conditions, ty));
    if let Some(ended) = first(&["Complete", "Failed"]) {
        return ended;
    }
    if row.is_deleting() {
        return "Terminating";
    }
    first(&["Suspended", "FailureTarget", "SuccessCriteriaMet"]).unwrap_or("Running")
}

// Without a number of completions, one success ends the job.
fn job_completions(row: &Row<'_>) -> String {
    let succeeded = row.int("/status/succeeded");
    if is_set(row.object, "/spec/completions") {
        return format!("{succeeded}/{}", row.int("/spec/completions"));
    }
    match row.int("/spec/parallelism") {
        parallelism if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    }
}

fn job_duration(row: &Row<'_>) -> String {
    let time = |pointer: &str| row.text(pointer).parse::<Timestamp>().ok();
    match time("/status/startTime") {
        None => String::new(),
        Some(start) => {
            let end = time("/status/completionTime").unwrap_or(row.now);
            duration::human(end.duration_since(start))
        }
    }
}

const CRON_JOB: [Column; 10] = [
    NAME,
    text("Schedule", "When the job runs, in cron's form."),
    text("Timezone", "Time zone of the schedule."),
    boolean("Suspend", "Whether no further jobs are started."),
    integer("Active", "Jobs running now."),
    text("Last Schedule", "Time since a job was last started."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

fn cron_job(row: &Row<'_>) -> Vec<Value> {
    let [names, images] = row.containers("/spec/jobTemplate/spec/template/spec");
    let last = is_set(row.object, "/status/lastScheduleTime")
        .then(|| row.since("/status/lastScheduleTime"));
    let zone = is_set(row.object, "/spec/timeZone").then(|| row.text("/spec/timeZone"));
    let suspend = match row.object["spec"]["suspend"].as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    vec![
        row.name(),
        row.text("/spec/schedule").into(),
        zone.unwrap_or("<none>").into(),
        suspend.into(),
        row.count("/status/active").into(),
        last.unwrap_or_else(|| "<none>".to_owned()).into(),
        row.age(),
        names,
        images,
        row.selector("/spec/jobTemplate/spec/selector"),
    ]
}

const POD_TEMPLATE: [Column; 4] = [
    NAME,
    text("Containers", "Names of the template's containers."),
    text("Images", "Images of the template's containers."),
    text("Pod Labels", "Labels of pods made from the template."),
];

fn pod_template(row: &Row<'_>) -> Vec<Value> {
    let [names, images] = row.containers("/template/spec");
    vec![
        row.name(),
        names,
        images,
        row.labels("/template/metadata/labels"),
    ]
}

const DISRUPTION_BUDGET: [Column; 5] = [
    NAME,
    text("Min Available", "Pods that must stay available."),
    text("Max Unavailable", "Pods that may be unavailable."),
    integer("Allowed Disruptions", "Pods that may be disrupted now."),
    AGE,
];

fn disruption_budget(row: &Row<'_>) -> Vec<Value> {
    let count_or_percent = |field: &str| match &row.object["spec"][field] {
        Value::Null => "N/A".to_owned(),
        Value::String(percent) => percent.clone(),
        number => number.to_string(),
    };
    vec![
        row.name(),
        count_or_percent("minAvailable").into(),
        count_or_percent("maxUnavailable").into(),
        row.int("/status/disruptionsAllowed").into(),
        row.age(),
    ]
}
