//! Audit of requests: what is recorded of each, at the stages that a policy wants.
//!
//! ```text
//! who asks is known ─► Auditor::begin ─► Trail ─► annotations, objects, status ─► audit::Backends
//! ```
//!
//! Without a policy there is no auditor, and a request costs nothing more. A request that the policy does not want has
//! no trail.

mod trail;
mod webhook;

use std::net::IpAddr;
use std::sync::Arc;

use access::{Attributes, Target, User};
use audit::policy::{self, Question};
use audit::{Backends, Decision, Event, Level, Log, Policy, Stage};
use http::header::USER_AGENT;
use http::{HeaderMap, Request};
use jiff::Timestamp;
use prometheus_client::registry::Registry;

pub(crate) use trail::Trail;

use crate::door::identity::Peer;
use crate::outward::egress::Egress;
use crate::settings::Audit as Settings;
use crate::status::{ApiError, Result};

/// What records requests.
#[derive(Debug)]
pub(crate) struct Auditor {
    policy: Policy,
    backends: Backends,
}

/// Where the trail of a request is found by whoever answers it.
#[derive(Debug)]
pub(crate) struct Record {
    /// The same for everything that is recorded of a request.
    pub(crate) id: String,
    trail: std::sync::OnceLock<Arc<Trail>>,
}

impl Record {
    /// The record of a request that may have brought its id.
    pub(crate) fn of(headers: &HeaderMap) -> Record {
        let brought = headers.get("audit-id").and_then(|id| id.to_str().ok());
        let id = brought.filter(|id| !id.is_empty()).map(str::to_owned);
        Record {
            id: id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
            trail: std::sync::OnceLock::new(),
        }
    }

    /// The trail, if the request leaves one.
    pub(crate) fn trail(&self) -> Option<&Arc<Trail>> {
        self.trail.get()
    }
}

impl Auditor {
    /// Reads the policy and opens what it is recorded in.
    pub(crate) fn open(settings: &Settings, egress: &Arc<Egress>) -> Result<Auditor, String> {
        let policy = read_policy(settings)?;
        let of_webhook = settings.webhook.as_ref().and_then(|hook| hook.truncation);
        for (plugin, sizes) in [("log", settings.log_truncation), ("webhook", of_webhook)] {
            sizes.map_or(Ok(()), |sizes| sizes.check(plugin))?;
        }
        let log = match &settings.log {
            None => None,
            Some((file, mode, limits)) => {
                let shown = file.path.as_deref().map(|p| p.display().to_string());
                let log = Log::open(file.clone()).map_err(|error| {
                    let shown = shown.unwrap_or_default();
                    format!("the audit log {shown} cannot be opened: {error}")
                })?;
                Some((log, *mode, *limits, settings.log_truncation))
            }
        };
        let mut others: Vec<(Box<dyn audit::Deliver>, _, _)> = Vec::new();
        if let Some(hook) = &settings.webhook {
            let webhook = webhook::Webhook::open(hook, Arc::clone(egress))?;
            others.push((Box::new(webhook), hook.limits, hook.truncation));
        }
        Ok(Auditor {
            policy,
            backends: Backends::new(log, others),
        })
    }

    /// Publishes what is counted.
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.backends.register(registry);
    }

    /// Delivers what is still under way.
    pub(crate) async fn close(&self) {
        self.backends.close().await;
    }

    /// Begins the trail of a request by somebody known.
    pub(crate) fn begin<B>(
        self: &Arc<Self>,
        record: &Record,
        request: &Request<B>,
        asked: &Attributes<'_>,
        peer: &Peer,
    ) -> Result<()> {
        let Some((decision, event)) = self.event(record, request, asked, peer) else {
            return Ok(());
        };
        let lasts = is_long_running(asked);
        let trail = Arc::new(Trail::new(Arc::clone(self), decision, event, lasts));
        let begun = trail.reach(Stage::RequestReceived);
        let _ = record.trail.set(trail);
        begun.map_err(|error| ApiError::plain(error.to_string()))
    }

    /// Records a request by nobody: one record, when it is answered.
    pub(crate) fn unknown<B>(
        self: &Arc<Self>,
        record: &Record,
        request: &Request<B>,
        asked: &Attributes<'_>,
        peer: &Peer,
    ) {
        let Some((decision, mut event)) = self.event(record, request, asked, peer) else {
            return;
        };
        let bearer = request.headers().contains_key(http::header::AUTHORIZATION);
        let shown = match (bearer, peer.chain.is_empty()) {
            (true, true) => ", attempted: bearer",
            (true, false) => ", attempted: bearer, x509",
            (false, false) => ", attempted: x509",
            (false, true) => ", no credentials provided",
        };
        let mut status = Event::status_of(401, None);
        status["message"] = format!("Authentication failed{shown}").into();
        event.response_status = Some(status);
        event.stage = Stage::ResponseStarted;
        if decision.wants(Stage::ResponseStarted) {
            // The answer is a refusal already.
            let _ = self.backends.keep(event);
        }
    }

    fn event<B>(
        &self,
        record: &Record,
        request: &Request<B>,
        asked: &Attributes<'_>,
        peer: &Peer,
    ) -> Option<(Decision, Event)> {
        let question = Question {
            user: &asked.user.name,
            groups: &asked.user.groups,
            verb: asked.verb,
            target: target(&asked.target),
        };
        let decision = self.policy.decide(&question);
        self.backends.count(decision.level);
        if decision.level == Level::None {
            return None;
        }
        let mut event = Event::received(decision.level, record.id.clone(), Timestamp::now());
        event.request_uri = match request.uri().path_and_query() {
            Some(whole) => whole.to_string(),
            None => request.uri().path().to_owned(),
        };
        event.verb = asked.verb.to_owned();
        event.user = recorded(asked.user);
        let headers = request.headers();
        event.source_ips = sources(headers, peer.address.ip());
        let agent = headers
            .get(USER_AGENT)
            .and_then(|agent| agent.to_str().ok());
        event.user_agent = Event::agent(agent.unwrap_or_default());
        event.object_ref = reference(&asked.target);
        Some((decision, event))
    }
}

fn read_policy(settings: &Settings) -> Result<Policy, String> {
    let file = &settings.policy_file;
    let ready = policy::READY_MADE;
    let ready = ready.iter().find(|(name, _)| file.as_os_str() == *name);
    let text = match ready {
        Some((_, text)) => text.as_bytes().to_vec(),
        None => std::fs::read(file).map_err(|error| {
            let shown = file.display();
            format!("failed to read file path {shown:?}: {error}; name a file, kube-audit or kube-audit-admin")
        })?,
    };
    Policy::parse(&text)
        .map_err(|why| format!("loading audit policy file {}: {why}", file.display()))
}

/// A user as records have them.
fn recorded(user: &User) -> audit::event::User {
    audit::event::User {
        username: user.name.clone(),
        uid: user.uid.clone(),
        groups: user.groups.clone(),
        extra: user.extra.clone(),
    }
}

fn target<'a>(target: &Target<'a>) -> policy::Target<'a> {
    match target {
        Target::Path(path) => policy::Target::Path(path),
        Target::Resource(resource) => policy::Target::Resource {
            group: resource.group,
            resource: resource.resource,
            subresource: resource.subresource,
            name: resource.name,
            namespace: resource.namespace,
        },
    }
}

fn reference(target: &Target<'_>) -> Option<audit::event::ObjectReference> {
    let Target::Resource(resource) = target else {
        return None;
    };
    Some(audit::event::ObjectReference {
        resource: resource.resource.to_owned(),
        namespace: resource.namespace.to_owned(),
        name: resource.name.to_owned(),
        api_group: resource.group.to_owned(),
        api_version: resource.version.to_owned(),
        subresource: resource.subresource.to_owned(),
        ..audit::event::ObjectReference::default()
    })
}

// Upstream's long-running requests: their answers begin long before they end.
fn is_long_running(asked: &Attributes<'_>) -> bool {
    let Target::Resource(resource) = &asked.target else {
        return false;
    };
    let below = ["attach", "exec", "proxy", "log", "portforward"];
    asked.verb == "watch" || below.contains(&resource.subresource)
}

// Who a request says it comes from, and where it comes from (utilnet.SourceIPs).
fn sources(headers: &HeaderMap, peer: IpAddr) -> Vec<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let forwarded = text("x-forwarded-for").unwrap_or_default().split(',');
    let mut found: Vec<IpAddr> = forwarded.filter_map(|ip| ip.trim().parse().ok()).collect();
    let real = text("x-real-ip").and_then(|ip| ip.trim().parse().ok());
    if let Some(real) = real.filter(|real| !found.contains(real)) {
        found.push(real);
    }
    if found.last() != Some(&peer) {
        found.push(peer);
    }
    found.iter().map(IpAddr::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_those_that_proxies_name_and_the_peer() {
        let peer: IpAddr = "10.0.0.9".parse().expect("an address");
        let cases = [
            ("", "", "10.0.0.9"),
            ("1.1.1.1, 2.2.2.2", "", "1.1.1.1 2.2.2.2 10.0.0.9"),
            ("nonsense", "3.3.3.3", "3.3.3.3 10.0.0.9"),
            ("10.0.0.9", "10.0.0.9", "10.0.0.9"),
        ];
        for (forwarded, real, wanted) in cases {
            let mut headers = HeaderMap::new();
            headers.insert("x-forwarded-for", forwarded.parse().expect("a value"));
            headers.insert("x-real-ip", real.parse().expect("a value"));
            assert_eq!(sources(&headers, peer).join(" "), wanted);
        }
    }
}
