//! Requests that travel: to kubelets, pods and services.
//!
//! ```text
//!  place, streams   which host, port and path a request means          pure
//!  rewrite          headers, redirects and links on the way            pure
//!  forward          one connection, one request, its answer or the     I/O
//!                   bytes that follow when both sides change protocols
//!  log              a kubelet's log, as it comes or in messages        I/O
//!  aggregated       other API servers, which are told who asks         I/O
//! ```

pub(crate) mod aggregated;
mod forward;
mod log;
mod place;
mod rewrite;
mod streams;

use std::net::IpAddr;

use access::{Attributes, Decision, ResourceTarget, Target};
use http::{Method, Response, Uri};
use hyper::upgrade::OnUpgrade;
use kinds::resources::{self, Resource};
use serde_json::Value;

use crate::api::Api;
use crate::call::Call;
use crate::connection::request_body::RequestBody;
use crate::connection::response_body::Body;
use crate::connection::websocket::is_upgrade;
use crate::outward::outbound::{Place, Trust};
use crate::status::{ApiError, Result};
use forward::Errand;
use place::Named;
use rewrite::Links;

/// Subresources whose requests travel, with the methods they take (upstream's `ConnectMethods`).
const TRAVELLERS: [(&str, &[Method]); 5] = [
    (
        "proxy",
        &[
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
            Method::HEAD,
            Method::OPTIONS,
        ],
    ),
    ("log", &[Method::GET]),
    ("exec", &[Method::GET, Method::POST]),
    ("attach", &[Method::GET, Method::POST]),
    ("portforward", &[Method::GET, Method::POST]),
];

/// What a request carries besides what every request has.
#[derive(Debug)]
pub(crate) struct Luggage {
    /// What was asked for.
    pub(crate) uri: Uri,
    /// Where the client is.
    pub(crate) client: IpAddr,
    /// The body.
    pub(crate) body: RequestBody,
    /// Resolves to the client's bytes once both sides have changed protocols.
    pub(crate) upgrade: OnUpgrade,
}

/// Whether requests to a subresource travel.
pub(crate) fn travels(resource: &Resource, subresource: Option<&str>) -> bool {
    let known = |name: &str| TRAVELLERS.iter().any(|(traveller, _)| *traveller == name);
    subresource.is_some_and(|name| known(name) && resource.subresource(name).is_some())
}

impl Api {
    /// Answers a request for which [`travels`] holds.
    pub(crate) async fn travel(&self, call: &Call, luggage: Luggage) -> Result<Response<Body>> {
        let name = call.path.subresource.as_deref().unwrap_or_default();
        check_shape(call, name)?;
        if name == "log" {
            return self.log(call, luggage).await;
        }
        if call.query.has("dryRun") {
            return Err(ApiError::bad_request("dryRun is not supported"));
        }
        crate::writing::admission::connect(self, call, name).await?;
        if name == "proxy" {
            return self.proxy(call, luggage).await;
        }
        self.check_create(call, name)?;
        let (place, path) = self.stream_place(call, name).await?;
        forward::run(self, Errand::to(place, path), call, luggage).await
    }

    async fn proxy(&self, call: &Call, luggage: Luggage) -> Result<Response<Body>> {
        let place = self.proxied_place(call).await?;
        let (path, query) = (luggage.uri.path(), luggage.uri.query());
        let rest = call.path.rest.as_deref().unwrap_or_default();
        let behind = rewrite::path_behind(rest, path);
        let redirect = rewrite::redirect_to_root(&call.method, &behind, path, query);
        if let Some(to) = redirect.filter(|_| !is_upgrade(&call.headers)) {
            return forward::moved(&to);
        }
        let asked = forward::host(&call.headers, &luggage.uri);
        let links = Links::new(path, &behind, place.authority(), asked);
        let errand = Errand::to(place, target(&behind, query)).rewriting(links);
        forward::run(self, errand, call, luggage).await
    }

    // Whoever may only read must not get in by way of WebSockets, whose requests are GETs
    // (upstream's AuthorizePodWebsocketUpgradeCreatePermission).
    fn check_create(&self, call: &Call, subresource: &str) -> Result<()> {
        if call.verb() == "create" {
            return Ok(());
        }
        let asked = Attributes {
            user: &call.user,
            verb: "create",
            target: Target::Resource(ResourceTarget {
                namespace: call.path.namespace(),
                group: &call.path.group,
                version: &call.path.version,
                resource: &call.path.resource,
                subresource,
                name: call.path.name(),
                field_selector: "",
                label_selector: "",
            }),
        };
        match self.authorizer.decide(&asked) {
            Decision::Allow(_) => Ok(()),
            Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(ApiError::forbidden(
                &call.resource,
                call.path.name(),
                &reason,
            )),
        }
    }

    /// Where a pod's kubelet is and what to ask it for.
    async fn stream_place(&self, call: &Call, subresource: &str) -> Result<(Place, String)> {
        let name = call.path.name();
        let pod = self.object("pods", call.path.namespace(), name).await?;
        let path = streams::path(subresource, &pod, &call.query)?;
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if node.is_empty() {
            let why = format!("pod {name} does not have a host assigned");
            return Err(ApiError::bad_request(why));
        }
        Ok((self.kubelet(node).await?, path))
    }

    async fn kubelet(&self, node: &str) -> Result<Place> {
        let node = self.object("nodes", "", node).await?;
        place::kubelet(
            &node,
            &self.outbound.settings.kubelet_preferred_address_types,
        )
    }

    async fn proxied_place(&self, call: &Call) -> Result<Place> {
        let kind = call.resource.kind.to_lowercase();
        let named = Named::parse(call.path.name(), &kind)?;
        match &*kind {
            "node" => {
                let kubelet = self.kubelet(named.name).await?;
                check_host(&kubelet.host).await?;
                place::of_node(&named, kubelet)
            }
            "pod" => {
                let pod = self
                    .object("pods", call.path.namespace(), named.name)
                    .await?;
                place::of_pod(&named, &pod)
            }
            _ => self.service_place(call, &named).await,
        }
    }

    async fn service_place(&self, call: &Call, named: &Named<'_>) -> Result<Place> {
        let namespace = call.path.namespace();
        let port = match named.port.parse::<i64>() {
            Ok(_) => {
                let service = self.object("services", namespace, named.name).await?;
                place::service_port(named, &service)?.to_owned()
            }
            Err(_) => named.port.to_owned(),
        };
        let endpoints = self.object("endpoints", namespace, named.name).await?;
        for candidate in place::candidates(&endpoints, &port, rand::random_range(0..usize::MAX)) {
            if candidate.namespace != namespace {
                continue;
            }
            let pod = self.object("pods", namespace, candidate.pod).await;
            if pod.is_ok_and(|pod| candidate.is_of(&pod)) {
                return candidate.place(named);
            }
        }
        let service = match endpoints["subsets"][0].is_null() {
            true => named.name,
            false => call.path.name(),
        };
        Err(ApiError::unavailable(format!(
            "no endpoints available for service {service:?}"
        )))
    }

    async fn object(&self, plural: &str, namespace: &str, name: &str) -> Result<Value> {
        let resource = resources::find("", "v1", plural).expect("in the table");
        Ok(self.must_fetch(resource, namespace, name).await?.value())
    }
}

fn check_shape(call: &Call, name: &str) -> Result<()> {
    let scoped = call.resource.namespaced == call.path.namespace.is_some();
    if !scoped || (name != "proxy" && call.path.rest.is_some()) {
        return Err(ApiError::no_such_path());
    }
    let row = TRAVELLERS.iter().find(|(traveller, _)| *traveller == name);
    match row.is_some_and(|(_, methods)| methods.contains(&call.method)) {
        true => Ok(()),
        false => Err(ApiError::method_not_allowed()),
    }
}

// What a node says of itself must not lead back into the control plane's machine.
async fn check_host(host: &str) -> Result<()> {
    let found = tokio::net::lookup_host((host, 0)).await;
    let found = found.map_err(|_| ApiError::bad_request(format!("lookup {host}: no such host")))?;
    let mut found = found.peekable();
    if found.peek().is_none() {
        return Err(ApiError::bad_request("no addresses for hostname"));
    }
    match found.all(|address| place::is_global_unicast(address.ip())) {
        true => Ok(()),
        false => Err(ApiError::bad_request("address not allowed")),
    }
}

fn target(path: &str, query: Option<&str>) -> String {
    let path = match path {
        "" => "/".to_owned(),
        path => rewrite::escape_path(path),
    };
    match query {
        Some(query) => format!("{path}?{query}"),
        None => path,
    }
}

// Logs may be asked for without a look at the kubelet's certificate.
fn unchecked(place: Place) -> Place {
    Place {
        tls: Some(Trust::UncheckedKubelet),
        ..place
    }
}
