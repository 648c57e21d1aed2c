//! One pod's life: it is looked at, something is decided, that is done, and its status is told. Then the end: stop,
//! clean up, forget. A turn reads the runtime anew, so what the turn before did is always seen.

mod config;
mod container;
mod end;
mod resize;
mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use client_runtime::Severity;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::backoff::Backoff;
use crate::context::Context;
use crate::cri::ContainerState;
use crate::pods::{ContainerRef, KnownPod};
use crate::probes::{self, Board, Kind, Running};
use crate::resize::{Condition, PodResources};
use crate::seen::{self, Seen};
use crate::spec;
use crate::status::{self, Ending, Facts, Waiting};
use crate::{decide, lifecycle, messages};

/// What a worker is told. The newest order counts.
#[derive(Clone)]
pub struct Order {
    /// The pod as its source has it, with the resources that it was granted.
    pub pod: Arc<Pod>,
    /// The source does not have it any more.
    pub gone: bool,
    /// It must end, for this reason, in so many seconds.
    pub kill: Option<(Option<Ending>, Option<i64>)>,
    /// It asks for other resources, which it has not been granted.
    pub pending: Option<Condition>,
}

impl Order {
    fn ends(&self) -> bool {
        let phase = self.pod.status.as_ref().and_then(|s| s.phase.as_deref());
        let over = matches!(phase, Some("Failed" | "Succeeded"));
        self.gone || self.kill.is_some() || over || self.pod.metadata.deletion_timestamp.is_some()
    }

    /// Seconds to end in.
    fn grace(&self) -> i64 {
        let asked = self.kill.as_ref().and_then(|(_, seconds)| *seconds);
        asked.unwrap_or_else(|| lifecycle::grace(&self.pod)).max(1)
    }
}

/// The way to a worker.
pub struct Handle {
    /// Orders.
    pub orders: watch::Sender<Order>,
    /// Something happened to the pod in the runtime.
    pub news: Arc<Notify>,
}

/// How long until the next turn when nothing happens: upstream's numbers.
const AFTER_SUCCESS: Duration = Duration::from_secs(60);
const AFTER_ERROR: Duration = Duration::from_secs(10);
const WITHOUT_NETWORK: Duration = Duration::from_secs(1);

struct Worker {
    ctx: Arc<Context>,
    uid: String,
    orders: watch::Receiver<Order>,
    board: Arc<Board>,
    probes: JoinSet<()>,
    probed: BTreeSet<(String, Kind)>,
    waiting: BTreeMap<String, Waiting>,
    backoff: Backoff,
    messages: BTreeMap<String, String>,
    status: Option<PodStatus>,
    ending: Option<Ending>,
    adopted: bool,
    /// The resources that it was granted when it was last looked at.
    sized: Option<PodResources>,
    /// A resize that was granted and is not done.
    resizing: Option<Condition>,
}

/// Starts a worker; it ends when nothing of the pod is left.
pub fn start(
    ctx: Arc<Context>,
    order: Order,
) -> (Handle, impl Future<Output = ()> + Send + 'static) {
    let uid = spec::uid(&order.pod).to_owned();
    let (sender, orders) = watch::channel(order);
    let board = Arc::new(Board::default());
    let handle = Handle {
        orders: sender,
        news: Arc::clone(&board.news),
    };
    let most = ctx
        .settings
        .config
        .crash_loop_back_off
        .max_container_restart_period
        .0;
    let worker = Worker {
        ctx,
        uid,
        orders,
        board,
        probes: JoinSet::new(),
        probed: BTreeSet::new(),
        waiting: BTreeMap::new(),
        backoff: Backoff::new(Duration::from_secs(10), most),
        messages: BTreeMap::new(),
        status: None,
        ending: None,
        adopted: false,
        sized: None,
        resizing: None,
    };
    (handle, worker.run())
}

/// When the next turn is due, or that the pod has come to its end.
enum Next {
    After(Duration),
    Over,
}

impl Worker {
    async fn run(mut self) {
        while !self.order().ends() {
            let wait = match self.turn().await {
                Ok(Next::Over) => break,
                Ok(Next::After(wait)) => wait,
                Err(status) => {
                    tracing::warn!(pod = %spec::full_name(&self.order().pod), error = status.message(), "a turn failed");
                    AFTER_ERROR
                }
            };
            let wait = wait.mul_f64(1.0 + rand::random::<f64>() / 2.0);
            let news = Arc::clone(&self.board.news);
            tokio::select! {
                changed = self.orders.changed() => if changed.is_err() { return },
                () = news.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        self.end().await;
    }

    fn order(&mut self) -> Order {
        self.orders.borrow_and_update().clone()
    }

    /// The pod with the newest status there is: ours, if we have worked one out, with conditions of others.
    fn pod(&mut self) -> Arc<Pod> {
        let pod = self.order().pod;
        let Some(ours) = &self.status else { return pod };
        let mut pod = (*pod).clone();
        let theirs = pod.status.take().unwrap_or_default();
        let mut status = ours.clone();
        let own = status.conditions.get_or_insert_default();
        for condition in theirs.conditions.into_iter().flatten() {
            match own.iter_mut().find(|c| c.type_ == condition.type_) {
                // The kubelet's own are newer here.
                Some(_) if status::is_own(&condition.type_) => {}
                Some(mine) => *mine = condition,
                None if status::is_own(&condition.type_) => {}
                None => own.push(condition),
            }
        }
        status.resource_claim_statuses = theirs.resource_claim_statuses;
        pod.status = Some(status);
        Arc::new(pod)
    }

    /// Reads the runtime and tells everybody how the pod is.
    async fn look(
        &mut self,
        terminating: bool,
        terminal: bool,
    ) -> Result<(Seen, PodStatus), tonic::Status> {
        let seen = seen::look(&*self.ctx.runtime, &self.uid).await?;
        let pod = self.pod();
        self.adopt(&pod, &seen);
        messages::read(&seen, spec::containers(&pod).count(), &mut self.messages).await;
        let host_ips = self.ctx.host_ips();
        let running = seen.containers.iter().rev().map(|c| {
            let started_at = Timestamp::from_nanosecond(c.started_at.into()).unwrap_or_default();
            let running = c.state == ContainerState::Running;
            (
                c.name.clone(),
                Running {
                    id: c.id.clone(),
                    running,
                    started_at,
                },
            )
        });
        let pod_ip = pod_ip(&pod, &seen, &host_ips);
        self.board.update(running, &pod_ip, terminating);
        let resizes = self.resizes(&pod, &seen);
        let actuated = self.ctx.actuated.get(&self.uid).unwrap_or_default();
        let facts = Facts {
            pod: &pod,
            seen: &seen,
            waiting: &self.waiting,
            verdicts: &self.board.verdicts(),
            readiness: &self.board.readiness(),
            messages: &self.messages,
            terminating,
            terminal,
            ending: self.ending.as_ref(),
            host_ips: &host_ips,
            actuated: &actuated,
            resizes: &resizes,
            now: Timestamp::now(),
        };
        let status = status::generate(&facts);
        self.publish(&pod, &seen, status.clone());
        Ok((seen, status))
    }

    fn publish(&mut self, pod: &Arc<Pod>, seen: &Seen, status: PodStatus) {
        let mut shown = (**pod).clone();
        shown.status = Some(status.clone());
        let logs = self.ctx.log_directory(pod);
        let mut containers: BTreeMap<String, Vec<ContainerRef>> = BTreeMap::new();
        for container in &seen.containers {
            let attempt = u32::try_from(container.restart_count).unwrap_or(0);
            let log_path = match container.log_path.is_empty() {
                true => logs.join(&container.name).join(format!("{attempt}.log")),
                false => container.log_path.clone().into(),
            };
            containers
                .entry(container.name.clone())
                .or_default()
                .push(ContainerRef {
                    id: container.id.clone(),
                    state: container.state,
                    attempt,
                    log_path,
                    created_at: container.created_at,
                });
        }
        let known = KnownPod {
            pod: Arc::new(shown),
            sandbox_id: seen.sandboxes.first().map(|s| s.id.clone()),
            containers,
        };
        self.ctx.pods.put(&self.uid, known);
        self.status = Some(status.clone());
        let pod = self.order().pod;
        if let Some(object) = self.ctx.object(&pod) {
            self.ctx.statuses.set(&object, status);
        }
    }

    /// Containers that ran before this kubelet did keep what was found out about them, so that pods stay ready.
    fn adopt(&mut self, pod: &Pod, seen: &Seen) {
        if std::mem::replace(&mut self.adopted, true) {
            return;
        }
        let Some(old) = &pod.status else { return };
        for found in seen
            .containers
            .iter()
            .filter(|c| c.state == ContainerState::Running)
        {
            let lists = [&old.container_statuses, &old.init_container_statuses];
            let mut known = lists.into_iter().flatten().flatten();
            let id = format!("containerd://{}", found.id);
            let Some(before) = known.find(|c| c.container_id.as_deref() == Some(&id)) else {
                continue;
            };
            if before.started == Some(true) {
                self.board
                    .set(Kind::Startup, &found.id, decide::Verdict::Success);
            }
            if before.ready {
                self.board
                    .set(Kind::Readiness, &found.id, decide::Verdict::Success);
            }
        }
    }

    /// One turn.
    async fn turn(&mut self) -> Result<Next, tonic::Status> {
        let (seen, status) = self.look(false, false).await?;
        if matches!(status.phase.as_deref(), Some("Failed" | "Succeeded")) {
            return Ok(Next::Over);
        }
        let pod = self.pod();
        if self
            .deadline(&pod, &status)
            .is_some_and(|rest| rest.is_zero())
        {
            return Ok(Next::Over);
        }
        if !spec::host_network(&pod) && !self.ctx.network_is_ready() {
            let text =
                "network is not ready: container runtime network not ready: NetworkReady=false";
            self.ctx
                .say(&pod, Severity::Warning, "NetworkNotReady", text);
            return Ok(Next::After(WITHOUT_NETWORK));
        }
        let next = self.work(&pod, &seen).await?;
        let (_, status) = self.look(false, false).await?;
        if matches!(status.phase.as_deref(), Some("Failed" | "Succeeded")) {
            return Ok(Next::Over);
        }
        let deadline = self.deadline(&pod, &status).unwrap_or(AFTER_SUCCESS);
        Ok(Next::After(next.min(deadline)))
    }

    /// What is left of the pod's time, if it was given any. Over, the pod has failed.
    fn deadline(&mut self, pod: &Pod, status: &PodStatus) -> Option<Duration> {
        let seconds = spec::spec(pod).active_deadline_seconds?;
        let since = status.start_time.as_ref()?.0;
        let age = Duration::try_from(Timestamp::now().duration_since(since)).unwrap_or_default();
        let rest = Duration::from_secs(seconds.max(0) as u64).saturating_sub(age);
        if rest.is_zero() {
            let message = "Pod was active on the node longer than the specified deadline";
            self.ctx
                .say(pod, Severity::Normal, "DeadlineExceeded", message);
            self.ending = Some(Ending {
                reason: "DeadlineExceeded".to_owned(),
                message: message.to_owned(),
                disruption: false,
            });
        }
        Some(rest)
    }

    /// Starts the probes that do not run yet.
    fn start_probes(&mut self, pod: &Arc<Pod>) {
        for (role, container) in spec::containers(pod) {
            if role == spec::Role::Init {
                continue;
            }
            for (kind, _) in Kind::of(container) {
                if self.probed.insert((container.name.clone(), kind)) {
                    let (ctx, pod) = (Arc::clone(&self.ctx), Arc::clone(pod));
                    let board = Arc::clone(&self.board);
                    self.probes.spawn(probes::watch_over(
                        ctx,
                        pod,
                        role,
                        container.clone(),
                        kind,
                        board,
                    ));
                }
            }
        }
    }

    /// Lets something go on until the pod is to end; `None` if that came first.
    async fn unless_ending<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut orders = self.orders.clone();
        tokio::select! {
            done = work => Some(done),
            _ = orders.wait_for(Order::ends) => None,
        }
    }
}

/// The pod's address, which with the host's network is the node's.
fn pod_ip(pod: &Pod, seen: &Seen, host_ips: &[String]) -> String {
    let own = seen.sandboxes.first().and_then(|s| s.ips.first());
    let ip = if spec::host_network(pod) {
        host_ips.first()
    } else {
        own
    };
    ip.cloned().unwrap_or_default()
}
