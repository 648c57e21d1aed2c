//! The pods of a job as they are made.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod};

use super::super::pod_view::{JOB_TRACKING, Phase, PodView};
use super::super::pods::pod_from_template;

const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// The longest name of a host.
const LONGEST_HOSTNAME: usize = 63;

/// A pod of a job, for an index if it has one; `pods` tell how often the index has failed.
pub(super) fn pod(job: &Job, index: Option<i32>, pods: &[Arc<PodView>]) -> Pod {
    let empty = JobSpec::default();
    let spec = job.spec.as_ref().unwrap_or(&empty);
    let mut pod = pod_from_template(job, &spec.template);
    pod.metadata
        .finalizers
        .get_or_insert_default()
        .push(JOB_TRACKING.into());
    let Some(index) = index else {
        return pod;
    };
    let name = job.metadata.name.clone().unwrap_or_default();
    let hostname = format!("{name}-{index}");
    pod.metadata.generate_name = Some(format!("{hostname}-"));
    pod.metadata
        .labels
        .get_or_insert_default()
        .insert(INDEX.into(), index.to_string());
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(INDEX.into(), index.to_string());
    if spec.backoff_limit_per_index.is_some() {
        annotations.insert(INDEX_FAILURES.into(), failures(index, pods).to_string());
    }
    let inside = pod.spec.get_or_insert_default();
    if hostname.len() <= LONGEST_HOSTNAME {
        inside.hostname = Some(hostname);
    }
    let init = inside.init_containers.iter_mut().flatten();
    for container in init.chain(&mut inside.containers) {
        let variables = container.env.get_or_insert_default();
        if variables
            .iter()
            .all(|variable| variable.name != INDEX_VARIABLE)
        {
            variables.push(index_variable());
        }
    }
    pod
}

fn failures(index: i32, pods: &[Arc<PodView>]) -> i32 {
    let of_index = pods
        .iter()
        .filter(|pod| pod.index == Some(index) && pod.phase == Phase::Failed);
    of_index
        .map(|pod| pod.index_failures + 1)
        .max()
        .unwrap_or(0)
}

fn index_variable() -> EnvVar {
    EnvVar {
        name: INDEX_VARIABLE.into(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: format!("metadata.labels['{INDEX}']"),
                api_version: None,
            }),
            ..EnvVarSource::default()
        }),
    }
}
