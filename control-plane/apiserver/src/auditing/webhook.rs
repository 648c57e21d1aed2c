//! Records sent to another server, many at once.

use std::sync::Arc;
use std::time::Duration;

use audit::{Boxed, Deliver, Event};
use bytes::Bytes;
use serde_json::json;

use crate::outward::egress::Egress;
use crate::outward::remote::{Failure, Remote};
use crate::settings::AuditWebhook;

/// Upstream's: how often a batch is tried, how the pauses grow, how long one try may take.
const TRIES: u32 = 5;
const GROWTH: f64 = 1.5;
const PATIENCE: Duration = Duration::from_secs(30);

/// The server that takes records.
#[derive(Debug)]
pub(super) struct Webhook {
    remote: Remote,
    backoff: Duration,
}

impl Webhook {
    pub(super) fn open(settings: &AuditWebhook, egress: Arc<Egress>) -> Result<Webhook, String> {
        let remote = Remote::open(&settings.config_file, egress);
        Ok(Webhook {
            remote: remote.map_err(|why| format!("--audit-webhook-config-file: {why}"))?,
            backoff: settings.initial_backoff,
        })
    }

    async fn deliver(&self, body: Bytes) -> Result<(), String> {
        let mut pause = self.backoff;
        let mut tried = 1;
        loop {
            let outcome = tokio::time::timeout(PATIENCE, self.remote.post(&body)).await;
            let failure = match outcome {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(failure)) => failure,
                Err(_) => Failure {
                    why: format!("no answer in {PATIENCE:?}"),
                    passes: true,
                },
            };
            if !failure.passes || tried == TRIES {
                return Err(failure.why);
            }
            tracing::warn!(why = failure.why, tried, "audit records are sent again");
            tokio::time::sleep(pause).await;
            pause = pause.mul_f64(GROWTH);
            tried += 1;
        }
    }
}

impl Deliver for Webhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn deliver<'a>(&'a self, events: &'a [Arc<Event>]) -> Boxed<'a> {
        let events: Vec<&Event> = events.iter().map(|event| &**event).collect();
        let list = json!({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {}, "items": events});
        Box::pin(self.deliver(Bytes::from(list.to_string())))
    }
}
