//! Giving running containers what was allocated to them: the pod's cgroup grows before its containers and shrinks after
//! them, memory before processors (upstream's `doPodResizeAction`).

use std::sync::Arc;

use client_runtime::Severity;
use k8s_openapi::api::core::v1::Pod;

use super::Worker;
use crate::cgroups::Allowance;
use crate::cri;
use crate::images::status_text;
use crate::make::container;
use crate::resize::{self, Condition, IN_PROGRESS, PENDING, Plan, PodResources, Resource, Update};
use crate::seen::Seen;
use crate::spec;

impl Worker {
    /// The conditions of the pod that are about resizes. A resize that has come to its end is told as an event.
    pub(super) fn resizes(&mut self, pod: &Pod, seen: &Seen) -> Vec<Condition> {
        let now = PodResources::of(pod);
        let generation = pod.metadata.generation;
        match self.sized.replace(now.clone()) {
            // What a kubelet before this one began is ended by this one.
            None => self.resizing = Condition::told(pod, IN_PROGRESS),
            Some(before) if !before.is_same(&now) => {
                self.resizing = Some(Condition::in_progress(generation));
            }
            Some(_) => {}
        }
        let actuated = self.ctx.actuated.get(&self.uid).unwrap_or_default();
        if resize::is_in_progress(pod, &actuated, seen) {
            let begin = || Condition::in_progress(generation);
            self.resizing.get_or_insert_with(begin);
        } else if let Some(done) = self.resizing.take() {
            let text = resize::event("Pod resize completed", pod, done.generation, "");
            self.ctx.say(pod, Severity::Normal, "ResizeCompleted", text);
        }
        let pending = self.orders.borrow().pending.clone();
        debug_assert!(pending.as_ref().is_none_or(|p| p.kind == PENDING));
        pending.into_iter().chain(self.resizing.clone()).collect()
    }

    /// What has to change so that containers have what was allocated.
    pub(super) fn resize_plan(&self, pod: &Pod, seen: &Seen) -> Plan {
        let actuated = self.ctx.actuated.get(&self.uid).unwrap_or_default();
        resize::plan(pod, &actuated, seen)
    }

    /// Carries a plan out; whether that is done. What fails is shown, and tried again.
    pub(super) async fn resize(&mut self, pod: &Arc<Pod>, seen: &Seen, plan: &Plan) -> bool {
        let Err(error) = self.try_resize(pod, seen, plan).await else {
            return true;
        };
        let generation = pod.metadata.generation;
        let now = self
            .resizing
            .get_or_insert_with(|| Condition::in_progress(generation));
        let new = now.message.as_deref() != Some(&error);
        now.reason = Some("Error".to_owned());
        now.message = Some(error.clone());
        if new {
            let text = resize::event("Pod resize error", pod, now.generation, &error);
            self.ctx.say(pod, Severity::Warning, "ResizeError", text);
        }
        false
    }

    async fn try_resize(&self, pod: &Arc<Pod>, seen: &Seen, plan: &Plan) -> Result<(), String> {
        let cgroups = &self.ctx.cgroups;
        let (wanted, current) = (cgroups.wanted(pod), cgroups.current(pod));
        self.check_memory(pod, plan, &wanted, &current)?;
        let sandbox = seen.sandboxes.first().map(|s| s.id.as_str());
        for resource in [Resource::Memory, Resource::Cpu] {
            let steps = pod_steps(resource, &wanted, &current);
            for step in &steps.before {
                self.resize_pod(pod, sandbox, step).await?;
            }
            for update in plan.of(resource) {
                self.resize_container(pod, resource, update).await?;
            }
            for step in &steps.after {
                self.resize_pod(pod, sandbox, step).await?;
            }
        }
        self.ctx
            .actuated
            .set_whole(&self.uid, spec::spec(pod).resources.as_ref());
        Ok(())
    }

    /// Memory that is in use cannot be taken away; better to know before anything is changed.
    fn check_memory(
        &self,
        pod: &Pod,
        plan: &Plan,
        wanted: &Allowance,
        current: &Allowance,
    ) -> Result<(), String> {
        let cgroups = &self.ctx.cgroups;
        let mut wrong = Vec::new();
        if let Some(limit) = wanted.memory
            && current.memory.is_none_or(|now| limit < now)
        {
            match cgroups.memory_used(pod, None) {
                None => wrong.push("missing pod memory usage".to_owned()),
                Some(used) if used >= limit => wrong.push(format!(
                    "attempting to set pod memory limit ({limit}) below current usage ({used})"
                )),
                Some(_) => {}
            }
        }
        for update in &plan.memory {
            let (name, Some(limit)) = (&update.name, update.lower_memory) else {
                continue;
            };
            match cgroups.memory_used(pod, Some(&update.id)) {
                None => wrong.push(format!("missing container {name:?} memory usage")),
                Some(used) if used >= limit => wrong.push(format!(
                    "attempting to set container {name:?} memory limit ({limit}) below current usage ({used})"
                )),
                Some(_) => {}
            }
        }
        let text = match wrong.len() {
            0 => return Ok(()),
            1 => wrong.remove(0),
            _ => format!("[{}]", wrong.join(", ")),
        };
        Err(format!("cannot decrease memory limits: {text}"))
    }

    async fn resize_pod(
        &self,
        pod: &Pod,
        sandbox: Option<&str>,
        step: &Allowance,
    ) -> Result<(), String> {
        let resources = cri::LinuxContainerResources {
            cpu_shares: step.shares.unwrap_or_default(),
            cpu_quota: step.quota.unwrap_or_default(),
            memory_limit_in_bytes: step.memory.unwrap_or_default(),
            ..cri::LinuxContainerResources::default()
        };
        let request = cri::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: sandbox.unwrap_or_default().to_owned(),
            overhead: None,
            resources: Some(resources),
        };
        if let Err(status) = self.ctx.runtime.update_pod_sandbox_resources(request).await {
            // containerd 2.2 says so with a code of its own.
            let unknown = status.code() == tonic::Code::Unimplemented
                || status.message().contains("not implemented");
            if !unknown && sandbox.is_some() {
                return Err(status_text(&status));
            }
        }
        let changed = self.ctx.cgroups.change(pod, step).await;
        changed.map_err(|error| format!("failed to set pod cgroup config: {error}"))
    }

    async fn resize_container(
        &self,
        pod: &Arc<Pod>,
        resource: Resource,
        update: &Update,
    ) -> Result<(), String> {
        let ctx = &self.ctx;
        let found = spec::containers(pod).find(|(_, c)| c.name == update.name);
        let Some((role, container)) = found else {
            return Ok(());
        };
        let actuated = ctx.actuated.get(&self.uid).unwrap_or_default();
        let had = actuated.containers.get(&update.name).cloned();
        let gets = container.resources.clone().unwrap_or_default();
        let step = resize::step(resource, &had.unwrap_or_default(), &gets);
        let mut sized = container.clone();
        sized.resources = Some(step.clone());
        let request = cri::UpdateContainerResourcesRequest {
            container_id: update.id.clone(),
            linux: Some(container::limits(pod, &sized, role, self.machine())),
            ..cri::UpdateContainerResourcesRequest::default()
        };
        let updated = ctx.runtime.update_container_resources(request).await;
        updated.map_err(|status| status_text(&status))?;
        ctx.actuated.set_container(&self.uid, &update.name, step);
        Ok(())
    }
}

/// Changes of a pod's cgroup before and after those of its containers.
#[derive(Debug, Default, PartialEq)]
struct PodSteps {
    before: Vec<Allowance>,
    after: Vec<Allowance>,
}

/// Limits grow before requests and shrink after them, so that requests are never above. A limit that is not said any
/// more stays: upstream cannot take it away either.
fn pod_steps(resource: Resource, wanted: &Allowance, current: &Allowance) -> PodSteps {
    let memory = |bytes| Allowance {
        memory: Some(bytes),
        ..Allowance::default()
    };
    let quota = |quota| Allowance {
        quota: Some(quota),
        ..Allowance::default()
    };
    let shares = |shares| Allowance {
        shares: Some(shares),
        ..Allowance::default()
    };
    let mut steps = PodSteps::default();
    let mut put = |wanted: Option<i64>, current: Option<i64>, step: &dyn Fn(i64) -> Allowance| {
        let (Some(wanted), current) = (wanted, current.unwrap_or(i64::MAX)) else {
            return;
        };
        if wanted > current {
            steps.before.push(step(wanted));
        } else if wanted < current {
            steps.after.insert(0, step(wanted));
        }
    };
    match resource {
        Resource::Memory => put(wanted.memory, current.memory, &memory),
        Resource::Cpu => {
            put(wanted.quota, current.quota, &quota);
            put(wanted.shares, current.shares, &shares);
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowance(shares: i64, quota: Option<i64>, memory: Option<i64>) -> Allowance {
        Allowance {
            shares: Some(shares),
            quota,
            memory,
            ..Allowance::default()
        }
    }

    #[test]
    fn a_pod_grows_before_its_containers_and_shrinks_after_them() {
        let only = |shares, quota, memory| Allowance {
            shares,
            quota,
            memory,
            ..Allowance::default()
        };
        let small = allowance(100, Some(10_000), Some(1000));
        let large = allowance(200, Some(20_000), Some(2000));
        let grown = pod_steps(Resource::Cpu, &large, &small);
        assert_eq!(
            grown.before,
            [only(None, Some(20_000), None), only(Some(200), None, None)]
        );
        assert!(grown.after.is_empty());
        let shrunk = pod_steps(Resource::Cpu, &small, &large);
        assert_eq!(
            shrunk.after,
            [only(Some(100), None, None), only(None, Some(10_000), None)]
        );
        let memory = pod_steps(Resource::Memory, &small, &large);
        assert_eq!(memory.after, [only(None, None, Some(1000))]);
        // A first limit is less than none; no limit any more changes nothing.
        let free = allowance(100, None, None);
        assert_eq!(pod_steps(Resource::Memory, &small, &free).after.len(), 1);
        assert_eq!(
            pod_steps(Resource::Memory, &free, &small),
            PodSteps::default()
        );
    }
}
