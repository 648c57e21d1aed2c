//! The kubelet's server on 10250 (and its health on 10248): logs, commands and ports of containers, the pods of the node
//! and what they use.
//!
//! `gate` decides who may, `route` what is asked for. `logs` and `streams` are what kubectl uses; `stats` is what
//! autoscalers and dashboards read. Nothing here changes a pod: everything is read from [`Pods`] and the runtime, so a
//! hollow node is served just the same.

mod answer;
mod connections;
mod files;
mod gate;
mod logs;
mod query;
mod reviews;
mod route;
mod start;
mod stats;
mod streams;
mod tls;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::certificates::Authorities;
use async_trait::async_trait;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::cri::{self, Runtime};
use crate::pods::{KnownPod, Pods};
use crate::volumes::VolumeUsage;
use answer::Answer;
use connections::Chain;
use gate::{Gate, Turned};
use query::Query;
use route::{Lost, Route, Target};

pub use gate::{Access, Reviews, Rules};
pub use reviews::Webhook;
pub use start::{StartError, run};
pub use tls::{Certificate, Error, self_signed};

/// How often it is looked whether the file of client CAs has changed.
const RELOAD: Duration = Duration::from_secs(60);

/// How the server behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The node's name.
    pub node: String,
    /// The kubelet's directory; its file system is the node's.
    pub root: PathBuf,
    /// What `/logs/` shows: `/var/log`.
    pub system_logs: PathBuf,
    /// Whose client certificates are believed.
    pub client_ca: Option<PathBuf>,
    /// Who is let in.
    pub rules: Rules,
    /// Whether containers may be looked into (`enableDebuggingHandlers`).
    pub debugging: bool,
}

/// What else the server tells of the kubelet. A hollow node has nothing to add.
#[async_trait]
pub trait Reports: Send + Sync {
    /// How full those volumes of a pod are that outlive it.
    async fn volumes(&self, _uid: &str) -> Vec<VolumeUsage> {
        Vec::new()
    }

    /// The configuration, as `/configz` shows it.
    fn configuration(&self) -> Value {
        json!({})
    }

    /// What is checked for `/healthz` beyond that the server answers.
    fn checks(&self) -> Vec<(&'static str, Result<(), String>)> {
        Vec::new()
    }

    /// The kubelet's own metrics, in the text format.
    fn metrics(&self) -> String {
        String::new()
    }

    /// The metrics of probes, in the text format.
    fn probe_metrics(&self) -> String {
        String::new()
    }
}

/// Nothing to tell.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

#[async_trait]
impl Reports for Silent {}

/// What the server reads.
#[derive(Clone)]
pub struct Sources {
    /// The node's pods.
    pub pods: Arc<Pods>,
    /// Their containers.
    pub runtime: Arc<dyn Runtime>,
    /// Everything else.
    pub reports: Arc<dyn Reports>,
    /// Who decides about tokens and rights.
    pub reviews: Arc<dyn Reviews>,
    /// The certificate to show; it may come later and change.
    pub certificate: Arc<Certificate>,
}

/// The server.
pub struct Server {
    settings: Settings,
    pods: Arc<Pods>,
    runtime: Arc<dyn Runtime>,
    reports: Arc<dyn Reports>,
    certificate: Arc<Certificate>,
    gate: Gate,
    stats: stats::Stats,
}

impl Server {
    /// A server that reads these.
    pub fn new(settings: Settings, sources: Sources) -> Arc<Server> {
        Arc::new(Server {
            gate: Gate::new(settings.rules.clone(), sources.reviews),
            stats: stats::Stats::new(&settings),
            settings,
            pods: sources.pods,
            runtime: sources.runtime,
            reports: sources.reports,
            certificate: sources.certificate,
        })
    }

    /// Serves 10250 until told to stop.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        stop: watch::Receiver<bool>,
    ) -> Result<(), Error> {
        let tls = tls::configuration(Arc::clone(&self.certificate))?;
        let tls = TlsAcceptor::from(Arc::new(tls));
        let server = Arc::clone(&self);
        let handler = move |request, chain| Arc::clone(&server).answer(request, chain);
        tokio::select! {
            () = connections::serve(listener, Some(tls), handler, stop) => {}
            () = self.keep_client_ca() => {}
        }
        Ok(())
    }

    /// Serves 10248 until told to stop: whether the kubelet is well, to whoever asks on this machine.
    pub async fn serve_health(self: Arc<Self>, listener: TcpListener, stop: watch::Receiver<bool>) {
        let handler = move |request: Request<Incoming>, _: Chain| {
            let server = Arc::clone(&self);
            async move {
                match Route::find(request.method(), request.uri().path()) {
                    Ok(Route::Healthz(check)) => server.health(check.as_deref()),
                    _ => not_found(),
                }
            }
        };
        connections::serve(listener, None, handler, stop).await;
    }

    /// Serves 10255 until told to stop: what may be read without a name.
    pub async fn serve_read_only(
        self: Arc<Self>,
        listener: TcpListener,
        stop: watch::Receiver<bool>,
    ) {
        let handler = move |request: Request<Incoming>, _: Chain| {
            let server = Arc::clone(&self);
            async move {
                match Route::find(request.method(), request.uri().path()) {
                    Ok(route) if route.is_open() => server.serve_route(route, request).await,
                    _ => not_found(),
                }
            }
        };
        connections::serve(listener, None, handler, stop).await;
    }

    // Never ends: the server does.
    async fn keep_client_ca(&self) {
        let Some(path) = &self.settings.client_ca else {
            return std::future::pending().await;
        };
        let mut known = Vec::new();
        loop {
            match tokio::fs::read(path).await {
                Ok(pem) if pem != known => match Authorities::from_pem(&pem) {
                    Ok(authorities) => {
                        self.gate.believe(Some(authorities));
                        known = pem;
                    }
                    Err(error) => {
                        tracing::error!(path = %path.display(), %error, "client CAs cannot be used");
                    }
                },
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "client CAs cannot be read");
                }
            }
            tokio::time::sleep(RELOAD).await;
        }
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>, chain: Chain) -> Answer {
        let path = request.uri().path();
        let passed = self
            .gate
            .pass(&chain, request.headers(), request.method(), path)
            .await;
        match passed {
            Ok(_) => {}
            Err(Turned::Unauthorized) => {
                return answer::text(StatusCode::UNAUTHORIZED, "Unauthorized");
            }
            Err(Turned::Forbidden(why)) => return answer::text(StatusCode::FORBIDDEN, why),
            Err(Turned::Failed(why)) => {
                return answer::text(StatusCode::INTERNAL_SERVER_ERROR, why);
            }
        }
        match Route::find(request.method(), path) {
            Ok(route) if route.is_debugging() && !self.settings.debugging => answer::text(
                StatusCode::METHOD_NOT_ALLOWED,
                "Debug endpoints are disabled.\n",
            ),
            Ok(route) => self.serve_route(route, request).await,
            Err(Lost::NotFound) => not_found(),
            Err(Lost::Method) => {
                answer::text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed")
            }
        }
    }

    async fn serve_route(&self, route: Route, request: Request<Incoming>) -> Answer {
        let query = Query::parse(request.uri().query());
        match route {
            Route::Healthz(check) => self.health(check.as_deref()),
            Route::Pods => answer::json(&self.pod_list(|known| Some((*known.pod).clone()))),
            Route::RunningPods => answer::json(&self.pod_list(running)),
            Route::Configz => answer::json(&json!({"kubeletconfig": self.reports.configuration()})),
            Route::Metrics => {
                let volumes = self.volumes().await;
                answer::metrics(self.own_metrics() + &stats::volume_metrics(&volumes))
            }
            Route::Slis => answer::metrics(String::new()),
            Route::ProbeMetrics => answer::metrics(self.reports.probe_metrics()),
            Route::Summary => {
                let brief = query.flag("only_cpu_and_memory");
                answer::json(&self.usage().await.summary(brief))
            }
            Route::ResourceMetrics => answer::metrics(self.usage().await.resource_metrics()),
            Route::Cadvisor => answer::metrics(self.usage().await.cadvisor()),
            Route::SystemLogs(path) => files::serve(&self.settings.system_logs, &path).await,
            Route::ContainerLogs(target) => self.container_log(&target, &query).await,
            Route::Stream(stream, target) => streams::serve(self, stream, &target, request).await,
            Route::Run(target) => self.run_command(&target, &query).await,
            Route::Checkpoint(target) => self.checkpoint(&target, &query).await,
        }
    }

    /// How full the volumes of all pods are.
    async fn volumes(&self) -> Vec<VolumeUsage> {
        let mut all = Vec::new();
        for known in self.pods.all() {
            let uid = known.pod.metadata.uid.as_deref().unwrap_or_default();
            all.extend(self.reports.volumes(uid).await);
        }
        all
    }

    async fn usage(&self) -> stats::Usage {
        let mut usage = self.stats.gather(&*self.runtime, &self.pods).await;
        usage.add_volumes(&*self.reports).await;
        usage
    }

    fn find(&self, target: &Target) -> Option<Arc<KnownPod>> {
        let known = self.pods.by_name(&target.namespace, &target.pod);
        match &target.uid {
            Some(uid) => self.pods.by_uid(uid).or(known),
            None => known,
        }
    }

    fn pod_list(&self, pod: impl Fn(&KnownPod) -> Option<Pod>) -> Value {
        let items: Vec<Pod> = self
            .pods
            .all()
            .iter()
            .filter_map(|known| pod(known))
            .collect();
        json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
    }

    fn health(&self, only: Option<&str>) -> Answer {
        let mut checks = vec![("ping", Ok(())), ("log", Ok(()))];
        checks.extend(self.reports.checks());
        if let Some(only) = only {
            checks.retain(|(name, _)| *name == only);
            if checks.is_empty() {
                return not_found();
            }
        }
        if checks.iter().all(|(_, check)| check.is_ok()) {
            return answer::text(StatusCode::OK, "ok");
        }
        let line = |(name, check): &(&str, Result<(), String>)| match check {
            Ok(()) => format!("[+]{name} ok\n"),
            Err(why) => {
                tracing::warn!(name, why, "the kubelet is not well");
                format!("[-]{name} failed: reason withheld\n")
            }
        };
        let lines: String = checks.iter().map(line).collect();
        answer::text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{lines}healthz check failed\n"),
        )
    }

    fn own_metrics(&self) -> String {
        let pods = self.pods.all();
        let mut lines = stats::own_metrics(&self.settings.node, &pods);
        lines.push_str(&self.reports.metrics());
        lines
    }

    async fn container_log(&self, target: &Target, query: &Query) -> Answer {
        let options = match logs::Options::read(query) {
            Ok(options) => options,
            Err(logs::Refused::Undecodable) => {
                let why = "{\"message\": \"Unable to decode query.\"}";
                return answer::text(StatusCode::BAD_REQUEST, why);
            }
            Err(logs::Refused::Invalid) => {
                let why = "{\"message\": \"Invalid request.\"}";
                return answer::text(StatusCode::UNPROCESSABLE_ENTITY, why);
            }
        };
        let (pod, name) = (&target.pod, &target.container);
        let Some(known) = self.find(target) else {
            return answer::text(
                StatusCode::NOT_FOUND,
                format!("pod {pod:?} does not exist\n"),
            );
        };
        if !has_container(&known, name) {
            let why = format!("container {name:?} not found in pod {pod:?}\n");
            return answer::text(StatusCode::NOT_FOUND, why);
        }
        let container = match logs::choose(&known, name, options.is_previous()) {
            Ok(container) => container,
            Err(why) => return answer::text(StatusCode::BAD_REQUEST, why),
        };
        let writer = logs::Writer {
            pods: Arc::clone(&self.pods),
            uid: known.pod.metadata.uid.clone().unwrap_or_default(),
            container: name.clone(),
            id: container.id.clone(),
        };
        match logs::stream(container.log_path.clone(), options, writer).await {
            Ok(bytes) => answer::of_type("text/plain", answer::coming(bytes)),
            Err(error) => {
                let path = container.log_path.display();
                let why = format!("failed to open log file \"{path}\": {error}");
                answer::text(StatusCode::BAD_REQUEST, why)
            }
        }
    }

    async fn run_command(&self, target: &Target, query: &Query) -> Answer {
        let Some(known) = self.find(target) else {
            return answer::text(StatusCode::NOT_FOUND, "pod does not exist\n");
        };
        let Some(container) = known.container(&target.container) else {
            let why = format!("container not found ({:?})", target.container);
            return answer::text(StatusCode::INTERNAL_SERVER_ERROR, why);
        };
        let command = query.get("cmd").unwrap_or_default();
        let request = cri::ExecSyncRequest {
            container_id: container.id.clone(),
            cmd: command.split(' ').map(str::to_owned).collect(),
            timeout: 0,
        };
        match self.runtime.exec_sync(request).await {
            Ok(mut done) => {
                done.stdout.append(&mut done.stderr);
                if done.exit_code == 0 {
                    return answer::of_type(
                        "text/plain; charset=utf-8",
                        answer::whole(done.stdout),
                    );
                }
                let output = String::from_utf8_lossy(&done.stdout);
                let why = format!(
                    "command '{command}' exited with {}: {output}",
                    done.exit_code
                );
                answer::text(StatusCode::INTERNAL_SERVER_ERROR, why)
            }
            Err(status) => answer::text(StatusCode::INTERNAL_SERVER_ERROR, status.message()),
        }
    }

    async fn checkpoint(&self, target: &Target, query: &Query) -> Answer {
        let known = self.find(target);
        let Some(known) = known else {
            return answer::text(StatusCode::NOT_FOUND, "pod does not exist\n");
        };
        let Some(container) = known.container(&target.container) else {
            let why = format!("container {} does not exist\n", target.container);
            return answer::text(StatusCode::NOT_FOUND, why);
        };
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let Target {
            namespace,
            pod,
            container: name,
            ..
        } = target;
        let file = format!("checkpoint-{pod}_{namespace}-{name}-{now}.tar");
        let location = self.settings.root.join("checkpoints").join(file);
        let location = location.to_string_lossy().into_owned();
        let request = cri::CheckpointContainerRequest {
            container_id: container.id.clone(),
            location: location.clone(),
            timeout: query.number("timeout").ok().flatten().unwrap_or_default(),
        };
        match self.runtime.checkpoint_container(request).await {
            Ok(_) => answer::json(&json!({"items": [location]})),
            Err(status) if status.code() == tonic::Code::Unimplemented => {
                answer::text(StatusCode::NOT_FOUND, status.message())
            }
            Err(status) => {
                let why = format!(
                    "checkpointing of {namespace}/{pod}/{name} failed ({})\n",
                    status.message()
                );
                answer::text(StatusCode::INTERNAL_SERVER_ERROR, why)
            }
        }
    }
}

fn not_found() -> Answer {
    answer::text(StatusCode::NOT_FOUND, "404 page not found\n")
}

fn has_container(known: &KnownPod, name: &str) -> bool {
    let Some(spec) = &known.pod.spec else {
        return false;
    };
    let containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let mut names = containers
        .map(|c| &c.name)
        .chain(spec.ephemeral_containers.iter().flatten().map(|c| &c.name));
    names.any(|own| own == name)
}

// What the runtime runs, and no more than it knows.
fn running(known: &KnownPod) -> Option<Pod> {
    let is_running = |name: &str| {
        let newest = known.container(name);
        newest.is_some_and(|c| c.state == cri::ContainerState::Running)
    };
    let mut pod = Pod::default();
    let meta = &known.pod.metadata;
    pod.metadata.name = meta.name.clone();
    pod.metadata.namespace = meta.namespace.clone();
    pod.metadata.uid = meta.uid.clone();
    let mut spec = k8s_openapi::api::core::v1::PodSpec::default();
    let from = known.pod.spec.as_ref()?;
    let containers = from.containers.iter().filter(|c| is_running(&c.name));
    spec.containers = containers
        .map(|c| k8s_openapi::api::core::v1::Container {
            name: c.name.clone(),
            image: c.image.clone(),
            ..Default::default()
        })
        .collect();
    let any = !spec.containers.is_empty();
    pod.spec = Some(spec);
    any.then_some(pod)
}

#[cfg(test)]
mod tests;
