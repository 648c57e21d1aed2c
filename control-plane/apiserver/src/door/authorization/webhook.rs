//! A server that is asked whether somebody may do something.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use access::chain::{self, Memory, Verdict};
use access::{Attributes, Decision};
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;

use super::meters::Meters;
use crate::outward::egress::Egress;
use crate::outward::remote::{Failure, Remote};

/// Upstream's: how often it is tried, the first pause, how pauses grow.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);
const GROWTH: f64 = 1.5;

/// The server, and what it has said lately.
#[derive(Debug)]
pub(super) struct Webhook {
    pub(super) settings: chain::Webhook,
    remote: Remote,
    memory: Mutex<Memory>,
    meters: Meters,
}

impl Webhook {
    pub(super) fn open(
        settings: chain::Webhook,
        egress: Arc<Egress>,
        meters: Meters,
    ) -> Result<Webhook, String> {
        let Some(file) = &settings.kubeconfig else {
            return Err(
                "unable to load in-cluster configuration: this server does not run in a pod; use connectionInfo of type KubeConfigFile"
                    .into(),
            );
        };
        let remote = Remote::open(file, egress)?;
        Ok(Webhook {
            settings,
            remote,
            memory: Mutex::default(),
            meters,
        })
    }

    /// What it decides, and what went wrong.
    pub(super) async fn ask(&self, asked: &Attributes<'_>) -> (Decision, Option<String>) {
        let spec = chain::question(asked);
        let began = Instant::now();
        let verdict = self.settings.conditions.verdict(&spec);
        let name = self.settings.name.as_str();
        self.meters.conditions(name, &verdict, began.elapsed());
        match verdict {
            Verdict::NotMet => return (Decision::NoOpinion(String::new()), None),
            Verdict::Failed(why) => return (self.settings.on_failure.decision(), Some(why)),
            Verdict::Met => {}
        }
        let key = spec.to_string();
        let known = self.lock().recall(&key, Timestamp::now());
        let status = match known {
            Some(status) => status,
            None => match self.review(&spec).await {
                Ok(status) => {
                    self.keep(key, &spec, &status);
                    status
                }
                Err(why) => {
                    tracing::error!(authorizer = name, %why, "a webhook that decides who may do what has failed");
                    let decision = self.settings.on_failure.decision();
                    if matches!(decision, Decision::NoOpinion(_)) {
                        self.meters.failed_open(name);
                    }
                    return (decision, Some(why));
                }
            },
        };
        let both = status["allowed"] == true && status["denied"] == true;
        let wrong =
            both.then_some("webhook subject access review returned both allow and deny response");
        (chain::decision(&status), wrong.map(str::to_owned))
    }

    fn keep(&self, key: String, spec: &Value, status: &Value) {
        let ttl = match chain::decision(status).is_allowed() {
            true => self.settings.authorized_ttl,
            false => self.settings.unauthorized_ttl,
        };
        let Some(ttl) = ttl.filter(|_| chain::may_be_kept(spec)) else {
            return;
        };
        let until = Timestamp::now().checked_add(ttl);
        let until = until.unwrap_or(Timestamp::MAX);
        self.lock().keep(key, status.clone(), until);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn review(&self, spec: &Value) -> Result<Value, String> {
        let body = chain::body(spec, &self.settings.version);
        let body = Bytes::from(body.to_string());
        let (mut pause, mut tried) = (PAUSE, 1);
        loop {
            let began = Instant::now();
            let limit = self.settings.timeout;
            let answer = tokio::time::timeout(limit, self.remote.post(&body)).await;
            let result = match &answer {
                Ok(Ok(_)) => "success",
                Ok(Err(_)) => "error",
                Err(_) => "timeout",
            };
            let name = self.settings.name.as_str();
            self.meters.asked(name, result, began.elapsed());
            let failure = match answer {
                Ok(Ok(answer)) => return read(&answer),
                Ok(Err(failure)) => failure,
                // Upstream does not try again either.
                Err(_) => Failure {
                    why: format!("no answer within {limit:?}"),
                    passes: false,
                },
            };
            if !failure.passes || tried == TRIES {
                return Err(failure.why);
            }
            tokio::time::sleep(pause).await;
            pause = pause.mul_f64(GROWTH);
            tried += 1;
        }
    }
}

fn read(answer: &Bytes) -> Result<Value, String> {
    let mut review: Value = serde_json::from_slice(answer)
        .map_err(|error| format!("the answer is no SubjectAccessReview: {error}"))?;
    match review["kind"].as_str() {
        Some("SubjectAccessReview") => Ok(review["status"].take()),
        other => Err(format!(
            "the answer is no SubjectAccessReview but {other:?}"
        )),
    }
}
