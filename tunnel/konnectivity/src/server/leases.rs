//! Keeps this server's lease and removes those of servers that are gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use tokio::sync::watch;

use crate::kubernetes::outcome;
use crate::leases::{is_valid, lease, name};
use crate::listen::raised;
use crate::metrics::ServerMetrics;

/// How often the lease is renewed and the others are looked at.
const RENEW: Duration = Duration::from_secs(15);
/// How soon a failed renewal is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Where and how leases are kept.
#[derive(Clone)]
pub struct LeaseSettings {
    /// Who keeps them.
    pub client: kube::Client,
    /// Their namespace.
    pub namespace: String,
    /// The labels agents find them by.
    pub labels: BTreeMap<String, String>,
}

impl std::fmt::Debug for LeaseSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LeaseSettings({} {:?})", self.namespace, self.labels)
    }
}

/// Runs until `ended`, then takes the lease away.
pub(super) async fn publish(
    settings: LeaseSettings,
    server_id: String,
    metrics: Arc<ServerMetrics>,
    mut ended: watch::Receiver<bool>,
) {
    let keeper = Keeper {
        api: Api::namespaced(settings.client, &settings.namespace),
        labels: settings.labels,
        server_id,
        metrics,
    };
    loop {
        let wait = match keeper.renew().await {
            Ok(()) => RENEW,
            Err(error) => {
                tracing::warn!(%error, "the server's lease could not be renewed");
                RETRY
            }
        };
        keeper.collect().await;
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = raised(&mut ended) => break,
        }
    }
    // A lease that stays runs out by itself.
    let _ = keeper
        .api
        .delete(&name(&keeper.server_id), &DeleteParams::default())
        .await;
}

struct Keeper {
    api: Api<Lease>,
    labels: BTreeMap<String, String>,
    server_id: String,
    metrics: Arc<ServerMetrics>,
}

impl Keeper {
    // Read, then create or replace: what the roles of upstream's manifests allow.
    async fn renew(&self) -> kube::Result<()> {
        let name = name(&self.server_id);
        let fresh = |acquired| lease(&self.server_id, &self.labels, acquired, Timestamp::now());
        let params = PostParams::default();
        match self.api.get_opt(&name).await? {
            None => self.api.create(&params, &fresh(None)).await?,
            Some(old) => {
                let acquired = old.spec.and_then(|spec| spec.acquire_time);
                let mut renewed = fresh(acquired);
                renewed.metadata.resource_version = old.metadata.resource_version;
                self.api.replace(&name, &params, &renewed).await?
            }
        };
        Ok(())
    }

    async fn collect(&self) {
        let selector: Vec<String> = self
            .labels
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect();
        let params = ListParams::default().labels(&selector.join(","));
        let began = Instant::now();
        let listed = self.api.list(&params).await;
        self.metrics.lease_list_latency.observe(began.elapsed());
        let (code, reason) = outcome(&listed);
        self.metrics
            .lease_lists
            .add(&[("http_status_code", &code), ("reason", &reason)]);
        let now = Timestamp::now();
        for lease in listed.into_iter().flatten() {
            if !is_valid(&lease, now) {
                self.delete(&lease).await;
            }
        }
    }

    // Only as it was seen: its server may have come back.
    async fn delete(&self, lease: &Lease) {
        let Some(name) = &lease.metadata.name else {
            return;
        };
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                resource_version: lease.metadata.resource_version.clone(),
                uid: None,
            }),
            ..DeleteParams::default()
        };
        let began = Instant::now();
        let deleted = self.api.delete(name, &params).await;
        self.metrics.lease_delete_latency.observe(began.elapsed());
        let (code, reason) = outcome(&deleted);
        self.metrics
            .lease_deletes
            .add(&[("http_status_code", &code), ("reason", &reason)]);
        if deleted.is_ok() {
            self.metrics.culled_leases.add();
        }
    }
}
