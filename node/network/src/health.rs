//! What the proxy tells about itself, and what load balancers ask a node about a Service.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use probes::{Answer, json_response, serve};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::services::model::ServiceName;

/// Whether the rules are as they should be.
#[derive(Debug)]
pub(crate) struct Health {
    state: Mutex<State>,
    /// How long a change may wait for the kernel.
    patience: Duration,
}

#[derive(Debug)]
struct State {
    updated: Option<(Instant, jiff::Timestamp)>,
    waiting_since: Option<Instant>,
    eligible: bool,
}

impl Health {
    /// Not yet healthy: nothing has been written.
    pub(crate) fn new(patience: Duration) -> Health {
        let state = State {
            updated: None,
            waiting_since: None,
            eligible: true,
        };
        Health {
            state: Mutex::new(state),
            patience,
        }
    }

    /// A change waits to be written.
    pub(crate) fn queued(&self) {
        self.state().waiting_since.get_or_insert(Instant::now());
    }

    /// Everything has been written.
    pub(crate) fn updated(&self) {
        let mut state = self.state();
        state.updated = Some((Instant::now(), jiff::Timestamp::now()));
        state.waiting_since = None;
    }

    /// Whether load balancers should still send to this node: not while it is being removed.
    pub(crate) fn eligible(&self, eligible: bool) {
        self.state().eligible = eligible;
    }

    /// Whether the rules are written, or will soon be.
    pub(crate) fn is_healthy(&self) -> bool {
        let state = self.state();
        let in_time = state
            .waiting_since
            .is_none_or(|since| since.elapsed() <= self.patience);
        state.updated.is_some() && in_time
    }

    /// The answer on `/healthz`, or on `/livez`, which does not ask whether the node is to go.
    pub(crate) fn answer(&self, is_liveness: bool) -> Answer {
        let healthy = self.is_healthy();
        let state = self.state();
        let at = state.updated.map(|(_, at)| at.to_string());
        let good = healthy && (is_liveness || state.eligible);
        let code = if good {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        let family = json!({ "lastUpdated": at, "healthy": healthy });
        let body = json!({
            "lastUpdated": at,
            "currentTime": jiff::Timestamp::now().to_string(),
            "nodeEligible": state.eligible,
            "healthy": good,
            "status": { "IPv4": family, "IPv6": family },
        });
        (code, body)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("nothing panics while it holds the state")
    }
}

/// The ports on which load balancers ask whether a Service has endpoints on this node.
#[derive(Debug, Default)]
pub(crate) struct BalancerChecks {
    running: BTreeMap<u16, Check>,
}

#[derive(Debug)]
struct Check {
    service: ServiceName,
    endpoints: Arc<std::sync::atomic::AtomicUsize>,
    server: JoinHandle<()>,
}

impl Drop for Check {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl BalancerChecks {
    /// Serves these and no others; a port that cannot be opened is tried again with the next change.
    pub(crate) async fn update(
        &mut self,
        wanted: Vec<(ServiceName, u16, usize)>,
        health: &Arc<Health>,
    ) {
        let is_wanted = |port: &u16, check: &Check| {
            wanted
                .iter()
                .any(|(s, p, _)| p == port && *s == check.service)
        };
        self.running.retain(|port, check| is_wanted(port, check));
        for (service, port, endpoints) in wanted {
            if let Some(check) = self.running.get(&port) {
                check
                    .endpoints
                    .store(endpoints, std::sync::atomic::Ordering::Relaxed);
                continue;
            }
            match check(service.clone(), port, endpoints, health).await {
                Ok(check) => {
                    self.running.insert(port, check);
                }
                Err(error) => tracing::warn!(%service, port, %error, "cannot serve health checks"),
            }
        }
    }
}

async fn check(
    service: ServiceName,
    port: u16,
    endpoints: usize,
    health: &Arc<Health>,
) -> std::io::Result<Check> {
    let any = SocketAddr::from(([0u16; 8], port));
    let listener = match TcpListener::bind(any).await {
        Ok(listener) => listener,
        Err(_) => TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], port))).await?,
    };
    let endpoints = Arc::new(std::sync::atomic::AtomicUsize::new(endpoints));
    let (count, health, name) = (Arc::clone(&endpoints), Arc::clone(health), service.clone());
    let server = serve(
        listener,
        Arc::new(move |_| {
            let count = count.load(std::sync::atomic::Ordering::Relaxed);
            let mut response = json_response(balancer_answer(&name, count, health.is_healthy()));
            response
                .headers_mut()
                .insert("x-load-balancing-endpoint-weight", count.into());
            response
        }),
    );
    Ok(Check {
        service,
        endpoints,
        server,
    })
}

fn balancer_answer(service: &ServiceName, endpoints: usize, healthy: bool) -> Answer {
    let good = endpoints > 0 && healthy;
    let code = if good {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let body = json!({
        "service": { "namespace": &*service.namespace, "name": &*service.name },
        "localEndpoints": endpoints,
        "serviceProxyHealthy": healthy,
    });
    (code, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_that_waits_too_long_makes_the_proxy_unhealthy() {
        let health = Health::new(Duration::from_secs(60));
        assert!(!health.is_healthy(), "nothing has been written yet");
        health.updated();
        assert!(health.is_healthy());
        health.queued();
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(health.is_healthy());
        health.queued();
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(!health.is_healthy());
        health.updated();
        assert!(health.is_healthy());
    }

    #[tokio::test]
    async fn a_node_that_goes_is_alive_and_not_healthy() {
        let health = Health::new(Duration::from_secs(60));
        health.updated();
        health.eligible(false);
        assert_eq!(health.answer(false).0, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(health.answer(true).0, StatusCode::OK);
    }

    #[test]
    fn a_load_balancer_is_told_how_many_endpoints_are_here() {
        let service = ServiceName::new("a", "b");
        assert_eq!(balancer_answer(&service, 2, true).0, StatusCode::OK);
        assert_eq!(
            balancer_answer(&service, 0, true).0,
            StatusCode::SERVICE_UNAVAILABLE
        );
        assert_eq!(
            balancer_answer(&service, 2, false).0,
            StatusCode::SERVICE_UNAVAILABLE
        );
    }
}
