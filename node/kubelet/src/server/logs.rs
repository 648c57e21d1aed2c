//! Logs of containers: which file, what of it, and how it goes on.

mod line;
mod options;
mod reader;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus};

use crate::cri;
use crate::pods::{ContainerRef, KnownPod, Pods};

pub(super) use options::{Options, Refused};
pub(super) use reader::stream;

/// The container whose log is meant, or upstream's words for why there is none (`validateContainerLogStatus`).
pub(super) fn choose(known: &KnownPod, name: &str, previous: bool) -> Result<ContainerRef, String> {
    let pod = known.pod.metadata.name.as_deref().unwrap_or_default();
    let of_runtime = match previous {
        true => known.previous(name),
        false => known.container(name),
    };
    let id = match status(known, name) {
        Some(status) => id(status, name, pod, previous),
        None => Err(format!(
            "container {name:?} in pod {pod:?} is not available"
        )),
    };
    let all = known.containers.get(name).into_iter().flatten();
    let told = match &id {
        Ok(id) => all.into_iter().find(|container| container.id == *id),
        Err(_) => None,
    };
    // The status may be behind the runtime for a moment.
    match (told.or(of_runtime), id) {
        (Some(container), _) => Ok(container.clone()),
        (None, Err(why)) => Err(why),
        (None, Ok(id)) => Err(format!("unable to retrieve container logs for {id}")),
    }
}

fn status<'a>(known: &'a KnownPod, name: &str) -> Option<&'a ContainerStatus> {
    let status = known.pod.status.as_ref()?;
    let kinds = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let mut all = kinds.into_iter().flatten().flatten();
    all.find(|status| status.name == name)
}

fn id(status: &ContainerStatus, name: &str, pod: &str, previous: bool) -> Result<String, String> {
    let plain = |id: &Option<String>| {
        let id = id.as_deref().unwrap_or_default();
        let id = id.split_once("://").map_or(id, |(_, id)| id);
        Some(id.to_owned()).filter(|id| !id.is_empty())
    };
    let none = ContainerState::default();
    let state = status.state.as_ref().unwrap_or(&none);
    let last = status
        .last_state
        .as_ref()
        .and_then(|s| s.terminated.as_ref());
    let last_id = last.and_then(|terminated| plain(&terminated.container_id));
    let ended = || format!("container {name:?} in pod {pod:?} is terminated");
    if previous {
        let missing = || format!("previous terminated container {name:?} in pod {pod:?} not found");
        return last_id.ok_or_else(missing);
    }
    if state.running.is_some() {
        return plain(&status.container_id).ok_or_else(ended);
    }
    if let Some(terminated) = &state.terminated {
        return plain(&terminated.container_id)
            .or(last_id)
            .ok_or_else(ended);
    }
    if last.is_some() {
        return last_id.ok_or_else(ended);
    }
    let start = format!("container {name:?} in pod {pod:?} is waiting to start");
    let reason = state
        .waiting
        .as_ref()
        .map(|waiting| waiting.reason.as_deref());
    Err(match reason {
        Some(Some("ErrImagePull")) => format!("{start}: image can't be pulled"),
        Some(Some("ImagePullBackOff")) => {
            format!("{start}: trying and failing to pull image")
        }
        Some(reason) => format!("{start}: {}", reason.unwrap_or_default()),
        None => format!("{start} - no logs yet"),
    })
}

/// Whether a container still writes.
#[derive(Clone)]
pub(super) struct Writer {
    pub(super) pods: Arc<Pods>,
    pub(super) uid: String,
    pub(super) container: String,
    pub(super) id: String,
}

impl Writer {
    fn is_running(&self) -> bool {
        let known = self.pods.by_uid(&self.uid);
        let state = known.and_then(|known| {
            let all = known.containers.get(&self.container)?;
            all.iter().find(|c| c.id == self.id).map(|c| c.state)
        });
        matches!(
            state,
            Some(cri::ContainerState::Running | cri::ContainerState::Created)
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::{Value, json};

    fn known(status: Value, ids: &[&str]) -> KnownPod {
        let container = |id: &&str| ContainerRef {
            id: (*id).into(),
            state: cri::ContainerState::Exited,
            attempt: 0,
            log_path: format!("/{id}").into(),
            created_at: 0,
        };
        let pod = json!({"metadata": {"name": "p"}, "status": {"containerStatuses": [status]}});
        KnownPod {
            pod: Arc::new(serde_json::from_value(pod).unwrap()),
            sandbox_id: None,
            containers: [("c".to_owned(), ids.iter().map(container).collect())].into(),
        }
    }

    fn with(state: Value, last: Value) -> Value {
        json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "containerID": "containerd://now", "state": state, "lastState": last})
    }

    #[test]
    fn the_container_is_the_one_whose_log_there_is() {
        let running = || json!({"running": {}});
        let ended = |id: &str| json!({"terminated": {"exitCode": 0, "containerID": format!("containerd://{id}")}});
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        for (state, last, ids, previous, wanted) in [
            (running(), json!({}), vec!["now"], false, Ok("now")),
            (running(), ended("old"), vec!["now", "old"], true, Ok("old")),
            (
                running(),
                json!({}),
                vec!["now"],
                true,
                Err("previous terminated container \"c\" in pod \"p\" not found"),
            ),
            (ended("now"), json!({}), vec!["now"], false, Ok("now")),
            (
                waiting("CrashLoopBackOff"),
                ended("old"),
                vec!["old"],
                false,
                Ok("old"),
            ),
            (
                waiting("ContainerCreating"),
                json!({}),
                vec![],
                false,
                Err("container \"c\" in pod \"p\" is waiting to start: ContainerCreating"),
            ),
            (
                waiting("ErrImagePull"),
                json!({}),
                vec![],
                false,
                Err("container \"c\" in pod \"p\" is waiting to start: image can't be pulled"),
            ),
            (
                waiting("ImagePullBackOff"),
                json!({}),
                vec![],
                false,
                Err(
                    "container \"c\" in pod \"p\" is waiting to start: trying and failing to pull image",
                ),
            ),
            (
                json!({}),
                json!({}),
                vec![],
                false,
                Err("container \"c\" in pod \"p\" is waiting to start - no logs yet"),
            ),
            // The runtime is ahead of the status.
            (
                waiting("ContainerCreating"),
                json!({}),
                vec!["new"],
                false,
                Ok("new"),
            ),
        ] {
            let known = known(with(state, last), &ids);
            let found = choose(&known, "c", previous).map(|c| c.id);
            assert_eq!(found.as_deref().map_err(String::as_str), wanted);
        }
    }
}
