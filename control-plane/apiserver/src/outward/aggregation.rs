//! Aggregation: other API servers behind this one, as APIService objects name them.
//!
//! ```text
//! APIService (by the cache, before its writer is answered) ─► Remote ─► proxy::aggregated ─► the server behind
//!                                      Watcher: is it there (availability), what does it serve (discovery)
//! ```
//!
//! A request for `/apis/<group>/<version>` of a remote has been authenticated, authorized and recorded here; the server
//! behind is told in headers who asks, over a connection that shows our front proxy certificate.

pub(crate) mod availability;
pub(crate) mod discovery;
pub(crate) mod openapi;
mod watcher;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use base64::Engine as _;
use kinds::resources::Resource;
use serde_json::Value;

pub(crate) use watcher::Watcher;

use crate::api::Api;
use crate::connection::reload::Reload;
use crate::connection::tls;
use crate::outward::outbound::{Place, Server, Trust};
use crate::outward::webhook::of_service;
use crate::reading::cache::{Follower, following};
use crate::settings::KeyPairFiles;
use crate::status::Result;

pub(crate) const GROUP: &str = "apiregistration.k8s.io";

type Remotes = BTreeMap<String, Arc<Remote>>;

/// The servers behind this one.
#[derive(Debug, Default)]
pub(crate) struct Aggregator {
    remotes: ArcSwap<Remotes>,
    /// Who we are to them.
    own: Option<KeyPairFiles>,
}

/// One version of a group that another server serves.
#[derive(Debug)]
pub(crate) struct Remote {
    /// The name of its APIService.
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    spec: Value,
    server: ArcSwapOption<Server>,
    state: ArcSwap<State>,
}

/// What is known of a remote.
#[derive(Debug, Default, Clone)]
pub(crate) struct State {
    /// Whether requests are sent to it.
    pub(crate) available: bool,
    /// Its APIResourceList, as it was last seen.
    pub(crate) resources: Option<Value>,
    /// Whether that is as it is now.
    pub(crate) fresh: bool,
    /// What its OpenAPI document says of this version, and when that was asked for.
    pub(crate) described: Option<Arc<openapi::Described>>,
    pub(crate) described_at: Option<std::time::Instant>,
}

impl Aggregator {
    /// Nobody yet; with a certificate for those who come.
    pub(crate) fn new(own: Option<KeyPairFiles>) -> Aggregator {
        Aggregator {
            remotes: ArcSwap::default(),
            own,
        }
    }

    /// Who keeps up with APIServices.
    pub(crate) fn follower(self: &Arc<Self>, resource: &Resource) -> Option<Arc<dyn Follower>> {
        let own = Arc::clone(self);
        let is_ours = resource.is(GROUP, "APIService");
        is_ours.then(|| following(move |_, name, object| own.apply(name, object)))
    }

    fn apply(&self, name: &str, object: Option<&Value>) {
        let spec = object.map(|object| &object["spec"]);
        let spec = spec.filter(|spec| spec["service"].is_object());
        let known = self.remotes.load();
        let unchanged = match (known.get(name), spec) {
            (Some(remote), Some(spec)) => remote.spec == *spec,
            (None, None) => true,
            _ => false,
        };
        if unchanged {
            return;
        }
        let mut remotes = Remotes::clone(&known);
        let before = remotes.remove(name);
        if let Some(spec) = spec {
            let mut remote = Remote::new(name, spec);
            // What is known of it stays so until it is looked at again.
            if let Some(before) = before {
                remote.state = ArcSwap::new(before.state.load_full());
            }
            remotes.insert(name.to_owned(), Arc::new(remote));
        }
        self.remotes.store(Arc::new(remotes));
    }

    /// The server that a path leads to.
    pub(crate) fn of_path(&self, path: &str) -> Option<Arc<Remote>> {
        let remotes = self.remotes.load();
        if remotes.is_empty() {
            return None;
        }
        // Documents of its schemas are its own business, too.
        let path = path.strip_prefix("/openapi/v3").unwrap_or(path);
        let mut parts = path.strip_prefix("/apis/")?.splitn(3, '/');
        let (group, version) = (parts.next()?, parts.next()?);
        remotes.get(&format!("{version}.{group}")).cloned()
    }

    /// Everybody, by name.
    pub(crate) fn remotes(&self) -> Vec<Arc<Remote>> {
        self.remotes.load().values().cloned().collect()
    }

    /// A new certificate of ours is shown from the next connection on.
    pub(crate) fn reload(self: &Arc<Self>, reload: &Reload) {
        let Some(pair) = &self.own else { return };
        let (own, files) = (
            Arc::clone(self),
            vec![pair.certificate.clone(), pair.key.clone()],
        );
        reload.add("the keys towards aggregated servers", files, move || {
            for remote in own.remotes() {
                remote.server.store(None);
            }
            Ok(())
        });
    }
}

impl Remote {
    fn new(name: &str, spec: &Value) -> Remote {
        let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
        Remote {
            name: name.to_owned(),
            group: text("group"),
            version: text("version"),
            spec: spec.clone(),
            server: ArcSwapOption::empty(),
            state: ArcSwap::default(),
        }
    }

    /// What is known of it.
    pub(crate) fn state(&self) -> Arc<State> {
        self.state.load_full()
    }

    /// Namespace, name and port of its Service.
    pub(crate) fn service(&self) -> (&str, &str, u16) {
        let service = &self.spec["service"];
        let text = |field: &str| service[field].as_str().unwrap_or_default();
        let port = service["port"].as_u64().unwrap_or(443);
        (
            text("namespace"),
            text("name"),
            u16::try_from(port).unwrap_or(443),
        )
    }

    /// Which of several groups and versions goes first.
    pub(crate) fn priority(&self) -> (i64, i64) {
        let number = |field: &str| self.spec[field].as_i64().unwrap_or_default();
        (number("groupPriorityMinimum"), number("versionPriority"))
    }

    fn server(&self, own: Option<&KeyPairFiles>) -> Result<Arc<Server>, String> {
        if let Some(known) = self.server.load_full() {
            return Ok(known);
        }
        let read = |path: &std::path::Path| std::fs::read(path).map_err(|error| error.to_string());
        let pair = own.map(|pair| Ok::<_, String>((read(&pair.certificate)?, read(&pair.key)?)));
        let pair = pair.transpose()?;
        let pair = pair.as_ref().map(|(c, k)| (c.as_slice(), k.as_slice()));
        let bundle = self.spec["caBundle"].as_str().unwrap_or_default();
        let bundle = base64::engine::general_purpose::STANDARD.decode(bundle);
        let bundle = bundle.map_err(|error| error.to_string())?;
        let trust = match (
            self.spec["insecureSkipTLSVerify"] == true,
            bundle.is_empty(),
        ) {
            (true, _) => None,
            (false, true) => Some(None),
            (false, false) => Some(Some(bundle.as_slice())),
        };
        let (namespace, name, _) = self.service();
        let made = Arc::new(Server {
            name: format!("{name}.{namespace}.svc"),
            config: Arc::new(tls::client_of_pem(trust, pair)?),
        });
        self.server.store(Some(Arc::clone(&made)));
        Ok(made)
    }
}

impl Api {
    /// Where a remote is now.
    pub(crate) async fn remote_place(&self, remote: &Remote) -> Result<Place, String> {
        let (namespace, name, port) = remote.service();
        let services = kinds::resources::find("", "v1", "services").expect("in the table");
        let collection = self.collection(services).map_err(|error| error.message)?;
        let service = collection.get(&format!("{namespace}/{name}"));
        let service = service.ok_or_else(|| format!("service {name:?} not found"))?;
        let host = of_service(&service.value(), name, port)?;
        let server = remote.server(self.aggregator.own.as_ref())?;
        Ok(Place {
            tls: Some(Trust::Server(server)),
            host,
            port,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_to_the_server_of_their_version() {
        let aggregator = Aggregator::default();
        let spec = json!({"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100,
            "versionPriority": 100, "service": {"namespace": "kube-system", "name": "metrics-server"}});
        let name = "v1beta1.metrics.k8s.io";
        aggregator.apply(name, Some(&json!({ "spec": spec })));
        aggregator.apply(
            "v1.apps",
            Some(&json!({"spec": {"group": "apps", "version": "v1"}})),
        );
        let cases = [
            ("/apis/metrics.k8s.io/v1beta1", true),
            ("/apis/metrics.k8s.io/v1beta1/nodes/a", true),
            ("/openapi/v3/apis/metrics.k8s.io/v1beta1", true),
            ("/apis/metrics.k8s.io", false),
            ("/apis/metrics.k8s.io/v1", false),
            ("/apis/apps/v1/deployments", false),
            ("/api/v1/pods", false),
        ];
        for (path, found) in cases {
            assert_eq!(aggregator.of_path(path).is_some(), found, "{path}");
        }
        let remote = aggregator
            .of_path("/apis/metrics.k8s.io/v1beta1")
            .expect("there");
        assert_eq!(remote.service(), ("kube-system", "metrics-server", 443));
        aggregator.apply(name, None);
        assert!(aggregator.remotes().is_empty());
    }
}
