//! The task that looks after servers behind this one: are they there, and what do they serve.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::{BodyExt as _, Limited};
use kinds::resources::{self, Resource};
use serde_json::Value;

use super::availability::{self, Verdict};
use super::discovery::RemoteVersion;
use super::openapi::Described;
use super::{GROUP, Remote, State};
use crate::api::Api;
use crate::outward::proxy::aggregated;
use crate::reading::topics::Topic;
use crate::writing::own;

/// How often everybody is looked at, whatever happens; how soon again where somebody is not there.
const ROUND: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_secs(2);
/// How long a server may take, and how much it may say.
const PATIENCE: Duration = Duration::from_secs(5);
const LARGEST: usize = 4 << 20;
/// How much its OpenAPI document may have, and how often that is asked for (upstream: every minute).
const LARGEST_DOCUMENT: usize = 32 << 20;
const DOCUMENT_ROUND: Duration = Duration::from_secs(60);

/// Looks after them.
#[derive(Debug)]
pub(crate) struct Watcher {
    api: Arc<Api>,
    told: Vec<RemoteVersion>,
}

fn resource(group: &str, plural: &str) -> &'static Arc<Resource> {
    resources::find(group, "v1", plural).expect("in the table")
}

impl Watcher {
    pub(crate) fn new(api: Arc<Api>) -> Watcher {
        Watcher {
            api,
            told: Vec::new(),
        }
    }

    /// Looks until the task is ended.
    pub(crate) async fn run(mut self) {
        let watched = [
            resource(GROUP, "apiservices"),
            resource("", "services"),
            resource("discovery.k8s.io", "endpointslices"),
        ];
        let collections = watched.map(|resource| self.api.collection(resource));
        let [Ok(own), Ok(services), Ok(slices)] = collections else {
            return;
        };
        loop {
            let (_, mut own_news) = own.snapshot("", Topic::All);
            let remotes = self.api.aggregator.remotes();
            if remotes.is_empty() {
                self.publish(&remotes);
                own_news.changed().await;
                continue;
            }
            let (_, mut service_news) = services.snapshot("", Topic::All);
            let (_, mut slice_news) = slices.snapshot("", Topic::All);
            let looks = remotes.iter().map(|remote| look(&self.api, remote));
            let all_there = join_all(looks).await.into_iter().all(|there| there);
            self.publish(&remotes);
            let wait = if all_there { ROUND } else { AGAIN };
            tokio::select! {
                () = own_news.changed() => {}
                () = service_news.changed() => {}
                () = slice_news.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    fn publish(&mut self, remotes: &[Arc<Remote>]) {
        let version = |remote: &Arc<Remote>| {
            let state = remote.state();
            RemoteVersion {
                group: remote.group.clone(),
                version: remote.version.clone(),
                priority: remote.priority(),
                resources: state.resources.clone(),
                fresh: state.fresh,
                described: state.described.clone(),
            }
        };
        let told: Vec<RemoteVersion> = remotes.iter().map(version).collect();
        if told != self.told {
            self.api.registry.aggregate(told.clone());
            self.told = told;
        }
    }
}

// Whether it is there. Its state is in force before its condition is written.
async fn look(api: &Api, remote: &Arc<Remote>) -> bool {
    let before = remote.state();
    let (verdict, resources) = match judge(api, remote) {
        Some(verdict) => (verdict, None),
        None => match ask(api, remote).await {
            Ok(resources) => (Verdict::passed(), Some(resources)),
            Err(verdict) => (verdict, None),
        },
    };
    let available = verdict.status == "True";
    let (described, described_at) = match available {
        true => describe(api, remote, &before).await,
        false => (before.described.clone(), before.described_at),
    };
    remote.state.store(Arc::new(State {
        available,
        fresh: resources.is_some(),
        resources: resources.or_else(|| before.resources.clone()),
        described,
        described_at,
    }));
    if let Err(error) = tell(api, remote, &verdict).await {
        tracing::debug!(api_service = remote.name, error = error.message, "not told");
    }
    available
}

fn judge(api: &Api, remote: &Remote) -> Option<Verdict> {
    let (namespace, name, port) = remote.service();
    let services = api.collection(resource("", "services")).ok()?;
    let service = services.get(&format!("{namespace}/{name}"));
    let service = service.map(|service| service.value());
    let slices = api
        .collection(resource("discovery.k8s.io", "endpointslices"))
        .ok()?;
    let slices = slices.objects(&format!("{namespace}/"), None).objects;
    let slices = slices.iter().map(|(_, slice)| slice.value());
    let of_service =
        |slice: &Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == name;
    let slices: Vec<Value> = slices.filter(of_service).collect();
    availability::judge((namespace, name, port), service.as_ref(), &slices)
}

// What it says of its types. A server that says nothing about them is there all the same.
async fn describe(
    api: &Api,
    remote: &Remote,
    before: &State,
) -> (Option<Arc<Described>>, Option<Instant>) {
    let asked = before.described_at;
    if asked.is_some_and(|at| at.elapsed() < DOCUMENT_ROUND) {
        return (before.described.clone(), asked);
    }
    let answer = get(api, remote, "/openapi/v2", LARGEST_DOCUMENT).await;
    let described = match answer {
        Ok(document) => Described::new(&document, &remote.group, &remote.version),
        Err(verdict) => {
            tracing::debug!(
                api_service = remote.name,
                why = verdict.message,
                "no OpenAPI document"
            );
            None
        }
    };
    let known = before.described.clone();
    (described.map(Arc::new).or(known), Some(Instant::now()))
}

async fn ask(api: &Api, remote: &Remote) -> Result<Value, Verdict> {
    let path = format!("/apis/{}/{}", remote.group, remote.version);
    get(api, remote, &path, LARGEST).await
}

async fn get(api: &Api, remote: &Remote, path: &str, largest: usize) -> Result<Value, Verdict> {
    let place = api.remote_place(remote).await;
    let place = place.map_err(|why| Verdict::silent(path, &why))?;
    let url = format!("https://{}{path}", place.authority());
    let mut headers = HeaderMap::new();
    headers.insert(
        "x-remote-user",
        HeaderValue::from_static("system:kube-aggregator"),
    );
    headers.insert("x-remote-group", HeaderValue::from_static("system:masters"));
    headers.insert(
        http::header::ACCEPT,
        HeaderValue::from_static("application/json"),
    );
    let asked = aggregated::fetch(api, &place, (&Method::GET, path), headers);
    let silent = |why: String| Verdict::silent(&url, &format!("Get {url:?}: {why}"));
    let answer = async {
        let response = asked.await.map_err(&silent)?;
        let code = response.status();
        if !code.is_success() {
            let why = format!("bad status from {url}: {}", code.as_u16());
            return Err(Verdict::silent(&url, &why));
        }
        let body = Limited::new(response.into_body(), largest).collect().await;
        let body = body.map_err(|error| silent(error.to_string()))?.to_bytes();
        // A server that says something else is there all the same.
        Ok(serde_json::from_slice(&body).unwrap_or_default())
    };
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Verdict::silent(
            &url,
            &format!("timed out waiting for {url}"),
        )),
    }
}

async fn tell(api: &Api, remote: &Remote, verdict: &Verdict) -> crate::status::Result<()> {
    let services = resource(GROUP, "apiservices");
    let stored = api.must_fetch(services, "", &remote.name).await?;
    let now = api.clock.seconds();
    match availability::told(&stored.value(), verdict, &now) {
        Some(object) => own::write(api, services, Method::PUT, "status", &object).await,
        None => Ok(()),
    }
}
