//! The end of a pod: its containers, its volumes, its cgroup, and last its object.

use std::sync::Arc;
use std::time::Duration;

use super::{AFTER_ERROR, Order, Worker, pod_ip};
use crate::cri;
use crate::lifecycle;
use crate::seen::Seen;
use crate::spec;

impl Worker {
    /// Stops everything, cleans up and lets the object go.
    pub(super) async fn end(mut self) {
        while let Err(error) = self.stop_all().await {
            tracing::warn!(uid = self.uid, error, "a pod does not end yet");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.probes.abort_all();
        while let Err(error) = self.clean_up().await {
            tracing::warn!(
                uid = self.uid,
                error,
                "what a pod left cannot be removed yet"
            );
            tokio::time::sleep(AFTER_ERROR / 5).await;
        }
        let pod = self.order().pod;
        self.ctx.statuses.finish(&pod);
        self.wait_for_deletion().await;
        self.remove_containers().await;
        self.ctx.pods.remove(&self.uid);
        self.ctx.statuses.forget(&self.uid);
    }

    async fn stop_all(&mut self) -> Result<(), String> {
        let text = |status: tonic::Status| status.message().to_owned();
        let (seen, _) = self.look(true, false).await.map_err(text)?;
        self.kill_within_grace(&seen).await?;
        let (seen, _) = self.look(true, false).await.map_err(text)?;
        if let Some(left) = seen
            .containers
            .iter()
            .find(|c| c.state == cri::ContainerState::Running)
        {
            return Err(format!("container {} still runs", left.name));
        }
        self.look(true, true).await.map_err(text)?;
        Ok(())
    }

    /// Time only gets shorter: an order with less of it starts the stopping over.
    async fn kill_within_grace(&mut self, seen: &Seen) -> Result<(), String> {
        let ctx = Arc::clone(&self.ctx);
        loop {
            let order = self.order();
            self.take_ending(&order);
            let seconds = order.grace();
            let ip = pod_ip(&order.pod, seen, &ctx.host_ips());
            let mut orders = self.orders.clone();
            let shorter = orders.wait_for(|order: &Order| order.grace() < seconds);
            tokio::select! {
                done = lifecycle::kill_pod(&ctx, &order.pod, seen, &ip, seconds) => {
                    return done.map_err(|status| status.message().to_owned());
                }
                Ok(_) = shorter => {}
            }
        }
    }

    fn take_ending(&mut self, order: &Order) {
        if let Some((Some(ending), _)) = &order.kill {
            self.ending.get_or_insert_with(|| ending.clone());
        }
    }

    async fn clean_up(&mut self) -> Result<(), String> {
        let directory = self.ctx.pod_directory(&self.uid);
        self.ctx
            .mounts
            .unmount(&self.uid, &directory)
            .await
            .map_err(|e| e.message)?;
        self.ctx.cgroups.remove(&self.uid).await;
        self.ctx.allocated.forget(&self.uid);
        self.ctx.actuated.forget(&self.uid);
        Ok(())
    }

    /// A pod that has come to its end stays until somebody deletes it; its logs can be read until then.
    async fn wait_for_deletion(&mut self) {
        let mut told = false;
        loop {
            let order = self.order();
            if order.gone {
                return;
            }
            if order.pod.metadata.deletion_timestamp.is_some() && !told {
                told = true;
                // The status of an object that is deleted is written once more, then the object goes.
                self.ctx.statuses.finish(&order.pod);
            }
            if self.orders.changed().await.is_err() {
                return;
            }
        }
    }

    async fn remove_containers(&mut self) {
        let Ok(seen) = crate::seen::look(&*self.ctx.runtime, &self.uid).await else {
            return;
        };
        for container in &seen.containers {
            self.remove(&container.id).await;
        }
        for sandbox in &seen.sandboxes {
            let request = cri::RemovePodSandboxRequest {
                pod_sandbox_id: sandbox.id.clone(),
            };
            if let Err(status) = self.ctx.runtime.remove_pod_sandbox(request).await
                && !cri::is_not_found(&status)
            {
                tracing::warn!(
                    sandbox = sandbox.id,
                    error = status.message(),
                    "a sandbox cannot be removed"
                );
            }
        }
        let pod = self.order().pod;
        let _ = tokio::fs::remove_dir_all(self.ctx.pod_directory(spec::uid(&pod))).await;
        let _ = tokio::fs::remove_dir_all(self.ctx.log_directory(&pod)).await;
    }
}
