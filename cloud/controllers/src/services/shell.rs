//! Follows Services and nodes, and tells Services how it went.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use client_runtime::{Actor, Answer, Cache, End, Queue, Recorder, Severity, Synced, is_outdated};
use k8s_openapi::api::core::v1::Service;
use kube::api::Patch;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::wish::{FINALIZER, Wish, key, leaves, wants};
use super::writing::{Outcome, Writer};
use super::{lock, pools};
use crate::Manager;
use crate::nodes::NodeView;

/// How long changes wait for each other.
const TOGETHER: Duration = Duration::from_millis(200);
/// The waits after failures, as upstream's.
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LAST_RETRY: Duration = Duration::from_secs(300);
/// After somebody else wrote, what they wrote is read at once.
const OUTDATED: Duration = Duration::from_millis(500);

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let services = manager.whole::<Service>();
    let nodes = manager.shared::<NodeView>();
    let actor = manager.act_as("service-controller");
    let config = Arc::clone(&manager.config);
    let shell = Arc::new(Shell {
        recorder: manager.recorder("service-controller", actor.clone()),
        actor,
        services: services.clone(),
        nodes: nodes.clone(),
        work: Mutex::new(Work {
            writer: Writer::new(
                config.instances(),
                Arc::clone(&config.cloud),
                &config.cluster_name,
            ),
            failures: 0,
            ensured: BTreeSet::new(),
        }),
    });
    let queue = Arc::new(Queue::new());
    let noticed = Arc::clone(&queue);
    services.on_change(move |change| {
        let counts = |service: Option<&Service>| service.is_some_and(|s| wants(s) || leaves(s));
        if counts(change.before) || counts(change.after) {
            noticed.add_after(&(), TOGETHER);
        }
    });
    let (noticed, cloud) = (Arc::clone(&queue), Arc::clone(&config.cloud));
    nodes.on_change(move |change| {
        let part = |node: Option<&NodeView>| {
            let node = node.filter(|node| pools::is_eligible(node, &cloud))?;
            Some((
                node.uid.clone(),
                node.provider_id.clone(),
                node.addresses.clone(),
            ))
        };
        if part(change.before) != part(change.after) {
            noticed.add_after(&(), TOGETHER);
        }
    });
    let complete = [services.completion(), nodes.completion()];
    manager.start_work(name, queue, 1, complete, move |()| {
        let shell = Arc::clone(&shell);
        async move { shell.sync().await }
    });
}

struct Shell {
    actor: Actor,
    recorder: Recorder,
    services: Cache<Service>,
    nodes: Cache<NodeView>,
    work: Mutex<Work>,
}

struct Work {
    writer: Writer,
    failures: u32,
    /// Services that were told that they have what they ask for.
    ensured: BTreeSet<String>,
}

/// Services as they are now.
struct Services {
    all: BTreeMap<String, Arc<Service>>,
    wishes: Vec<Wish>,
    /// What is wrong with those that cannot be read.
    broken: BTreeMap<String, String>,
    /// Addresses that those show.
    kept: Vec<IpAddr>,
}

impl Shell {
    fn now(&self) -> Services {
        let mut now = Services {
            all: BTreeMap::new(),
            wishes: Vec::new(),
            broken: BTreeMap::new(),
            kept: Vec::new(),
        };
        for (_, service) in self.services.all() {
            if !wants(&service) && !leaves(&service) {
                continue;
            }
            match Wish::of(&service) {
                Ok(wish) => now.wishes.push(wish),
                Err(cause) => {
                    now.broken.insert(key(&service), cause);
                    let status = service.status.clone().unwrap_or_default();
                    let ingress = status.load_balancer.and_then(|own| own.ingress);
                    let shown = ingress.into_iter().flatten();
                    now.kept
                        .extend(shown.filter_map(|one| one.ip?.parse::<IpAddr>().ok()));
                }
            }
            now.all.insert(key(&service), service);
        }
        // Who was there first has what two ask for.
        now.wishes
            .sort_by(|a, b| (a.created, &a.key).cmp(&(b.created, &b.key)));
        now
    }

    async fn sync(&self) -> Synced {
        let mut work = self.work.lock().await;
        let now = self.now();
        work.ensured.retain(|key| now.all.contains_key(key));
        if now.all.is_empty() {
            return Ok(End::Done);
        }
        for wish in now
            .wishes
            .iter()
            .filter(|wish| !work.ensured.contains(&wish.key))
        {
            self.begin(&now.all[&wish.key], wish).await?;
        }
        let held = lock::take(&self.actor).await?;
        if held.others_wrote {
            work.writer.forget();
        }
        let nodes: Vec<Arc<NodeView>> =
            self.nodes.all().into_iter().map(|(_, node)| node).collect();
        let outcome = work.writer.sync(&now.wishes, &nodes, &now.kept).await;
        lock::give_back(&self.actor, held).await;
        match outcome {
            Ok(outcome) => self.report(&mut work, &now, outcome).await,
            Err(error) => self.failed(&mut work, &now, &error),
        }
    }

    /// What comes before anything is made for a Service: it must not vanish before that is gone again.
    async fn begin(&self, service: &Service, wish: &Wish) -> Answer<()> {
        let (reason, message) = match wish.leaving {
            true => ("DeletingLoadBalancer", "Deleting load balancer"),
            false => ("EnsuringLoadBalancer", "Ensuring load balancer"),
        };
        self.recorder
            .about(service, Severity::Normal, reason, message);
        for later in &wish.options.later {
            let message = format!("annotation {later} is not followed yet");
            self.recorder
                .about(service, Severity::Warning, "UnsupportedAnnotation", message);
        }
        let finalizers = service.metadata.finalizers.iter().flatten();
        if wish.leaving || finalizers.into_iter().any(|own| own == FINALIZER) {
            return Ok(());
        }
        let patch = json!({"metadata": {"uid": service.metadata.uid, "finalizers": [FINALIZER]}});
        self.patch(service, None, patch).await
    }

    async fn patch(&self, service: &Service, part: Option<&str>, patch: Value) -> Answer<()> {
        let meta = &service.metadata;
        let place = (
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        );
        let patched = self
            .actor
            .patch::<Service>(place, part, &Patch::Strategic(patch))
            .await;
        match patched {
            // Gone, or another one: the watch tells.
            Err(error) if is_outdated(&error) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Tells each Service how it went.
    async fn report(&self, work: &mut Work, now: &Services, outcome: Outcome) -> Synced {
        for wish in &now.wishes {
            let service: &Service = &now.all[&wish.key];
            if outcome.errors.contains_key(&wish.key) {
                continue;
            }
            match (wish.leaving, outcome.ready.get(&wish.key)) {
                (true, _) => self.left(service).await?,
                (false, Some(addresses)) => {
                    self.show(service, wish, addresses).await?;
                    let is_new = work.ensured.insert(wish.key.clone());
                    if is_new || outcome.touched.contains(&wish.key) {
                        let message = "Ensured load balancer";
                        self.recorder.about(
                            service,
                            Severity::Normal,
                            "EnsuredLoadBalancer",
                            message,
                        );
                    }
                }
                (false, None) => {}
            }
            if let Some(ranges) = outcome.invalid_ranges.get(&wish.key) {
                self.warn_of_ranges(service, wish, ranges);
            }
        }
        let missing = now.wishes.iter().filter(|wish| {
            !wish.leaving
                && !outcome.errors.contains_key(&wish.key)
                && !outcome.ready.contains_key(&wish.key)
        });
        let missing =
            missing.map(|wish| (wish.key.clone(), "its address is not known yet".to_owned()));
        let errors: BTreeMap<String, String> = missing
            .chain(outcome.errors.clone())
            .chain(now.broken.clone())
            .collect();
        if errors.is_empty() {
            work.failures = 0;
            return Ok(End::Done);
        }
        for (key, cause) in &errors {
            work.ensured.remove(key);
            self.complain(now, key, cause);
        }
        Ok(End::After(later(work)))
    }

    fn warn_of_ranges(&self, service: &Service, wish: &Wish, ranges: &[String]) {
        let (reason, field) = match wish.ranges {
            Some(_) => ("InvalidSourceRanges", "LoadBalancerSourceRanges"),
            None => ("InvalidAllowedIPRanges", "AllowedIPRanges"),
        };
        let message = format!(
            "Found invalid {field} {ranges:?}, ignoring and adding a default DenyAll rule in security group."
        );
        self.recorder
            .about(service, Severity::Warning, reason, message);
    }

    fn complain(&self, now: &Services, key: &str, cause: &str) {
        let Some(service) = now.all.get(key) else {
            return;
        };
        let reason = match leaves(service) {
            true => "DeleteLoadBalancerFailed",
            false => "SyncLoadBalancerFailed",
        };
        let message = format!("Error syncing load balancer: {cause}");
        self.recorder
            .about(service.as_ref(), Severity::Warning, reason, message);
    }

    /// Nothing came of it, for anybody who waits for something.
    fn failed(&self, work: &mut Work, now: &Services, error: &azure::Error) -> Synced {
        work.writer.forget();
        if error.is_outdated() {
            tracing::debug!(%error, "somebody else wrote: looked at again");
            return Ok(End::After(OUTDATED));
        }
        tracing::warn!(%error, "load balancers could not be written");
        let waiting: Vec<String> = now
            .wishes
            .iter()
            .map(|wish| wish.key.clone())
            .filter(|key| !work.ensured.contains(key))
            .collect();
        for key in waiting {
            self.complain(now, &key, &error.to_string());
        }
        let wait = later(work);
        Ok(End::After(
            error.retry_after().map_or(wait, |told| told.max(OUTDATED)),
        ))
    }

    async fn show(&self, service: &Service, wish: &Wish, addresses: &[IpAddr]) -> Answer<()> {
        let wanted: Vec<IpAddr> = addresses
            .iter()
            .chain(&wish.options.more_addresses)
            .copied()
            .collect();
        if wish.shown == wanted {
            return Ok(());
        }
        let ingress: Vec<Value> = wanted
            .iter()
            .map(|ip| json!({"ip": ip.to_string()}))
            .collect();
        let patch = json!({"status": {"loadBalancer": {"ingress": ingress}}});
        self.patch(service, Some("status"), patch).await
    }

    /// Everything of a Service is gone: it may go, too.
    async fn left(&self, service: &Service) -> Answer<()> {
        let patch = json!({"status": {"loadBalancer": {"ingress": null}}});
        self.patch(service, Some("status"), patch).await?;
        let patch = json!({"metadata": {"uid": service.metadata.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}});
        self.patch(service, None, patch).await?;
        let message = "Deleted load balancer";
        self.recorder
            .about(service, Severity::Normal, "DeletedLoadBalancer", message);
        Ok(())
    }
}

fn later(work: &mut Work) -> Duration {
    let wait = FIRST_RETRY.saturating_mul(2u32.saturating_pow(work.failures));
    work.failures = work.failures.saturating_add(1);
    wait.min(LAST_RETRY)
}
