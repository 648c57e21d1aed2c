//! Who gets a request: Entra, Graph, ARM or a vault; and whether it comes with a good token.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use http::Method;
use serde_json::{Value, json};
use tokio::sync::{Mutex as Pen, Notify, watch};

use crate::arm::fault::Fault;
use crate::arm::operation;
use crate::books::Books;
use clock::Clock;

use crate::chance::Chance;
use crate::entra::token::{self, Caller, Keys};
use crate::exchange::{Asked, Body, Reply};
use crate::providers::{compute, vault};
use crate::server::Answers;
use crate::settings::Settings;
use crate::throttle::{self, Buckets};
use crate::turn::Turn;
use crate::{arm, entra};

/// How many tokens are remembered as good.
const REMEMBERED: usize = 4096;
/// Microsoft's names for what our tokens are for: clients that know no other cloud ask for these.
const ARM_AUDIENCES: [&str; 2] = [
    "https://management.azure.com",
    "https://management.core.windows.net",
];
const GRAPH_AUDIENCES: [&str; 1] = ["https://graph.microsoft.com"];
const VAULT_AUDIENCES: [&str; 1] = ["https://vault.azure.net"];

/// The cloud behind its door.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) books: Books,
    pub(crate) settings: Settings,
    pub(crate) keys: Keys,
    pub(crate) clock: Clock,
    /// Whoever changes the state holds this.
    pen: Pen<()>,
    /// When operations under way are due; as many as the state has.
    pub(crate) due: Mutex<BTreeSet<(i64, String)>>,
    /// Tells the runner of operations that have begun.
    pub(crate) begun: Notify,
    /// Counts changes of resources.
    pub(crate) changed: watch::Sender<u64>,
    /// Claims of tokens whose signature was checked.
    known: Mutex<HashMap<String, Arc<Value>>>,
    buckets: Mutex<Buckets>,
}

impl Door {
    pub(crate) fn new(books: Books, settings: Settings, keys: Keys, clock: Clock) -> Door {
        Door {
            books,
            settings,
            keys,
            clock,
            pen: Pen::default(),
            due: Mutex::default(),
            begun: Notify::new(),
            changed: watch::Sender::new(0),
            known: Mutex::default(),
            buckets: Mutex::default(),
        }
    }

    /// Lets a decision see the state, and keeps what it changes.
    pub(crate) async fn decide<T>(
        &self,
        decide: impl FnOnce(&mut Turn<'_>) -> T + Send,
    ) -> Result<T, Fault>
    where
        T: Send,
    {
        let _pen = self.pen.lock().await;
        let (outcome, changes) = {
            let mut turn = Turn::new(&self.books, self.clock.now(), Chance::new(), &self.settings);
            // A decision that goes wrong must not take the cloud with it; what it staged is forgotten.
            let outcome = catch_unwind(AssertUnwindSafe(|| decide(&mut turn)));
            (outcome.map_err(|_| broken())?, turn.changes())
        };
        if let Err(error) = self.books.commit(&changes).await {
            tracing::error!(%error, "a change was not kept");
            return Err(broken());
        }
        for (key, entry) in &changes {
            let due = entry.as_ref().and_then(|entry| operation::due(key, entry));
            if let (Some(due), Some(id)) = (due, key.strip_prefix("op/")) {
                let mut waiting = self.due.lock().unwrap_or_else(PoisonError::into_inner);
                waiting.insert((due, id.to_owned()));
                self.begun.notify_one();
            }
        }
        if changes.keys().any(|key| key.starts_with("arm/")) {
            self.changed.send_modify(|count| *count += 1);
        }
        Ok(outcome)
    }

    /// Lets a question see the state.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Turn<'_>) -> T) -> T {
        let mut turn = Turn::new(&self.books, self.clock.now(), Chance::new(), &self.settings);
        look(&mut turn)
    }

    async fn turn(
        &self,
        asked: &Asked,
        answer: impl FnOnce(&mut Turn<'_>) -> Reply + Send,
    ) -> Reply {
        match asked.method {
            Method::GET | Method::HEAD => self.look(answer),
            _ => self
                .decide(answer)
                .await
                .unwrap_or_else(|fault| fault.reply()),
        }
    }

    async fn dispatch(&self, asked: &Asked) -> Reply {
        let host = asked.header("host").unwrap_or_default();
        if let Some(name) = vault::data::of_host(host) {
            return self.vault(name, asked).await;
        }
        let segments = asked.segments();
        match &segments[..] {
            ["metadata", "endpoints"] => endpoints(&self.settings, asked),
            ["device"] => self.device(asked).await,
            // For hosts whose resolver does not know the names below `localhost`.
            ["keyvault", name, ..] => {
                let mut inner = asked.clone();
                inner.path = asked
                    .path
                    .splitn(4, '/')
                    .nth(3)
                    .map(|rest| format!("/{rest}"))
                    .unwrap_or_default();
                self.vault(name, &inner).await
            }
            ["bootdiagnostics", secret, _] => self.console(secret).await,
            ["healthz"] => Reply {
                body: Body::Text("text/plain", "ok".into()),
                ..Reply::empty(200)
            },
            ["v1.0" | "beta", ..] => match self.caller(asked, &GRAPH_AUDIENCES) {
                Ok(caller) => {
                    self.turn(asked, |turn| entra::graph(turn, &caller, asked))
                        .await
                }
                Err(refusal) => refusal.reply(),
            },
            segments if entra::is_its(segments) => {
                self.turn(asked, |turn| entra::answer(turn, &self.keys, asked))
                    .await
            }
            ["subscriptions" | "providers" | "tenants", ..] => {
                match self.caller(asked, &ARM_AUDIENCES) {
                    Ok(caller) => self.arm(&caller, asked).await,
                    Err(refusal) => refusal.reply(),
                }
            }
            _ => Fault::new(
                404,
                "NotFound",
                format!("The path '{}' leads nowhere.", asked.path),
            )
            .reply(),
        }
    }

    /// Who asks, if the token is good for one of these audiences or for this cloud.
    fn caller(&self, asked: &Asked, audiences: &[&str]) -> Result<Caller, Fault> {
        let given = asked
            .header("authorization")
            .and_then(|value| value.strip_prefix("Bearer "));
        let Some(given) = given else {
            let message = "Authentication failed. The 'Authorization' header is missing.";
            return Err(self.unauthorized("AuthenticationFailed", message.into()));
        };
        let claims = self.claims(given).map_err(|why| {
            self.unauthorized(
                "InvalidAuthenticationToken",
                format!("The access token is invalid: {why}."),
            )
        })?;
        let own = self.settings.audience();
        let mut all = vec![own.as_str()];
        all.extend(audiences);
        token::caller(&claims, &all, &self.settings.tenant, self.clock.now())
            .map_err(|not| self.unauthorized(not.code, not.message))
    }

    fn unauthorized(&self, code: &str, message: String) -> Fault {
        let challenge = format!(
            "Bearer authorization_uri=\"{}/{}\", error=\"invalid_token\", error_description=\"{}\"",
            self.settings.origin,
            self.settings.tenant,
            message.replace('"', "'")
        );
        Fault::new(401, code, message)
            .gateway()
            .header("www-authenticate", challenge)
    }

    /// The claims of a token; a signature is checked once.
    fn claims(&self, given: &str) -> Result<Arc<Value>, &'static str> {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(claims) = lock().get(given) {
            return Ok(Arc::clone(claims));
        }
        let claims = Arc::new(self.keys.verified(given)?);
        let mut known = lock();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(given.to_owned(), Arc::clone(&claims));
        Ok(claims)
    }

    /// Takes a request out of a caller's bucket: what is left, or how long to wait.
    fn take(&self, caller: &Caller, asked: &Asked) -> Result<u32, u32> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.take(&caller.object_id, &asked.method, self.clock.now())
    }

    /// ARM, as far as the caller's buckets reach.
    async fn arm(&self, caller: &Caller, asked: &Asked) -> Reply {
        if !self.settings.throttle {
            return self
                .turn(asked, |turn| arm::answer(turn, caller, asked))
                .await;
        }
        let taken = self.take(caller, asked);
        match taken {
            Ok(left) => {
                let reply = self
                    .turn(asked, |turn| arm::answer(turn, caller, asked))
                    .await;
                reply.with(throttle::header(&asked.method), &left.to_string())
            }
            Err(seconds) => {
                let message = format!(
                    "The request was throttled: the bucket of {} is empty.",
                    throttle::word(&asked.method)
                );
                let fault = Fault::new(429, "SubscriptionRequestsThrottled", message).gateway();
                fault.header("retry-after", seconds.to_string()).reply()
            }
        }
    }

    async fn vault(&self, name: &str, asked: &Asked) -> Reply {
        let own = format!("https://vault.{}", self.settings.host());
        let audiences = [VAULT_AUDIENCES[0], own.as_str()];
        match self.caller(asked, &audiences) {
            Ok(caller) => {
                self.turn(asked, |turn| {
                    vault::data::answer(turn, &caller, name, asked)
                })
                .await
            }
            Err(_) => self.look(|turn| vault::data::challenge(turn)),
        }
    }

    /// The console of the machine that an address of `retrieveBootDiagnosticsData` stands for.
    async fn console(&self, secret: &str) -> Reply {
        let Some(machine) = self.look(|turn| compute::console_of(turn, secret)) else {
            let message = "Server failed to authenticate the request: the signature is not known or has expired.";
            return Fault::new(403, "AuthenticationFailed", message).reply();
        };
        match self.settings.region.console(&machine).await {
            Some(text) => Reply {
                body: Body::Text("text/plain; charset=utf-8", text),
                ..Reply::empty(200)
            },
            None => Fault::new(
                404,
                "BlobNotFound",
                "Nothing was written to a console: no machine of this host stands behind this one.",
            )
            .reply(),
        }
    }

    async fn device(&self, asked: &Asked) -> Reply {
        const PAGE: &str = include_str!("../data/device.html");
        let page = |status: u16, said: &str| Reply {
            body: Body::Text("text/html; charset=utf-8", PAGE.replace("{said}", said)),
            ..Reply::empty(status)
        };
        if asked.method != Method::POST {
            return page(200, "");
        }
        let form = asked.form();
        match self
            .decide(|turn| entra::grant::confirm_device(turn, &form))
            .await
        {
            Ok(Ok(())) => page(200, "You are signed in. You may close this page."),
            Ok(Err(refused)) => page(400, &refused.text.replace('<', "&lt;")),
            Err(fault) => fault.reply(),
        }
    }
}

/// What nobody can explain.
pub(crate) fn broken() -> Fault {
    Fault::new(
        500,
        "InternalServerError",
        "Encountered internal server error.",
    )
}

/// `/metadata/endpoints`: what makes this cloud known to clients; before 2022 it was one of a list.
fn endpoints(settings: &Settings, asked: &Asked) -> Reply {
    let origin = &settings.origin;
    let host = settings.host();
    let one = json!({
        "name": "Kyanite", "portal": origin, "gallery": origin, "resourceManager": format!("{origin}/"),
        "graph": format!("{origin}/"), "graphAudience": format!("{origin}/"),
        "microsoftGraphResourceId": format!("{origin}/"), "batch": origin, "media": origin,
        "vmImageAliasDoc": format!("{origin}/aliases.json"), "sqlManagement": origin,
        "logAnalyticsResourceId": origin, "activeDirectoryDataLake": origin, "synapseAnalyticsResourceId": origin,
        "attestationResourceId": origin, "ossrDbmsResourceId": origin, "appInsightsResourceId": origin,
        "authentication": {"loginEndpoint": origin, "audiences": [settings.audience()], "tenant": settings.tenant,
            "identityProvider": "AAD"},
        "suffixes": {"keyVaultDns": format!("vault.{host}"), "storage": format!("core.{host}"),
            "acrLoginServer": format!("azurecr.{host}"), "sqlServerHostname": format!("database.{host}"),
            "mhsmDns": format!("managedhsm.{host}")},
    });
    match asked.param("api-version") {
        Some(version) if version >= "2022-01-01" => Reply::ok(one),
        Some("2015-01-01") => Reply::ok(json!({"galleryEndpoint": origin, "graphEndpoint": origin,
            "portalEndpoint": origin, "authentication": one["authentication"]})),
        _ => Reply::ok(json!([one])),
    }
}

impl Answers for Door {
    async fn answer(&self, asked: Asked, _: SocketAddr) -> Reply {
        let reply = self.dispatch(&asked).await;
        let mut chance = Chance::new();
        let request = chance.guid();
        let correlation = asked
            .header("x-ms-correlation-request-id")
            .unwrap_or(&request)
            .to_owned();
        let time = self.clock.now().strftime("%Y%m%dT%H%M%SZ").to_string();
        tracing::debug!(method = %asked.method, path = asked.path, status = reply.status.as_u16(),
            command = asked.header("commandname").unwrap_or_default(), "answered");
        // Those who are not counted have as much left as Azure says at first.
        let remaining = throttle::header(&asked.method);
        let reply = match reply.headers.contains_key(remaining) {
            true => reply,
            false => reply.with(remaining, throttle::full(&asked.method)),
        };
        reply
            .with("cache-control", "no-cache")
            .with("pragma", "no-cache")
            .with("expires", "-1")
            .with("x-content-type-options", "nosniff")
            .with(
                "strict-transport-security",
                "max-age=31536000; includeSubDomains",
            )
            .with("x-ms-request-id", &request)
            .with("x-ms-correlation-request-id", &correlation)
            .with(
                "x-ms-routing-request-id",
                &format!("KYANITE:{time}:{request}"),
            )
    }
}
