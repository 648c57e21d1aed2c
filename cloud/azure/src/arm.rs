//! Azure Resource Manager: verbs, brought to their end.
//!
//! A request waits for its turn (`limits`), is sent with a token, is tried again where that can help (`answer`), and an
//! operation that it begins is followed to its end (`operation`). Whoever asks for what somebody else is asking for
//! already gets the same answer.

mod answer;
mod limits;
mod operation;
mod versions;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, IF_MATCH, USER_AGENT};
use http::{Method, Request, Response};
use http_body_util::Full;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;
use wire::client::Client;

use crate::token::{Source, Tokens};
use crate::{CloudConfig, Endpoints, Error, imds};
pub use answer::Backoff;
use answer::Next;
use limits::Limits;
use operation::Step;

/// How long one request may take.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long an operation may take.
const OPERATION_PATIENCE: Duration = Duration::from_secs(1800);
/// How long a request waits for its turn before it is said that it is throttled.
const QUEUE_PATIENCE: Duration = Duration::from_secs(10);

type Flight = Shared<BoxFuture<'static, Result<Response<Bytes>, Error>>>;

/// How many requests were sent; polls of operations count as reads.
#[derive(Debug, Default)]
pub struct Calls {
    /// GET.
    pub reads: AtomicU64,
    /// PUT, PATCH, POST and DELETE.
    pub writes: AtomicU64,
    /// Refusals because of too many.
    pub throttled: AtomicU64,
    /// Every other refusal.
    pub errors: AtomicU64,
}

/// A client of Resource Manager; cheap to clone.
#[derive(Clone)]
pub struct Arm {
    shared: Arc<Inner>,
}

struct Inner {
    client: Arc<Client>,
    tokens: Tokens,
    manager: String,
    agent: String,
    backoff: Backoff,
    limits: Mutex<Limits>,
    flights: Mutex<HashMap<String, Flight>>,
    calls: Calls,
}

impl std::fmt::Debug for Arm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arm")
            .field("manager", &self.shared.manager)
            .finish_non_exhaustive()
    }
}

impl Arm {
    /// The client that a configuration describes; asks a cloud of its own address what it is.
    pub async fn connect(
        config: &CloudConfig,
        client: Arc<Client>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Arm, Error> {
        let source = Source::of(config, &environment).ok_or_else(|| {
            let hint = "give aadClientId and aadClientSecret, or useManagedIdentityExtension";
            Error::Config(format!("azure.json has no credentials; {hint}"))
        })?;
        let endpoints = Endpoints::of(config, &client).await?;
        let metadata = imds::Place::of(environment);
        let tokens = Tokens::new(
            source,
            &config.tenant_id,
            &endpoints,
            metadata,
            Arc::clone(&client),
        );
        let agent = match config.user_agent.as_str() {
            "" => format!(
                "kubernetes-cloudprovider/kyanite-{}",
                env!("CARGO_PKG_VERSION")
            ),
            own => own.to_owned(),
        };
        Ok(Arm {
            shared: Arc::new(Inner {
                client,
                tokens,
                manager: endpoints.manager,
                agent,
                backoff: Backoff::of(config),
                limits: Mutex::new(Limits::new(config.clone())),
                flights: Mutex::default(),
                calls: Calls::default(),
            }),
        })
    }

    /// What was sent so far.
    pub fn calls(&self) -> &Calls {
        &self.shared.calls
    }

    /// Reads a resource as it is now; none if it is not there. `query` is more to ask for, such as `$expand=…`.
    pub async fn get<T: DeserializeOwned>(
        &self,
        id: &str,
        query: &str,
    ) -> Result<Option<T>, Error> {
        match self.read(&self.address(id, query)).await {
            Ok(answer) => parse(id, &answer).map(Some),
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Every resource of a collection, page after page; a collection in a group that is not there is empty.
    pub async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &str,
    ) -> Result<Vec<T>, Error> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Page<T> {
            value: Vec<T>,
            next_link: Option<String>,
        }
        let mut all = Vec::new();
        let mut address = self.address(path, query);
        loop {
            let answer = match self.read(&address).await {
                Ok(answer) => answer,
                Err(error) if error.status() == Some(404) => return Ok(all),
                Err(error) => return Err(error),
            };
            let page: Page<T> = parse(path, &answer)?;
            all.extend(page.value);
            match page.next_link.filter(|link| !link.is_empty()) {
                Some(next) => address = next,
                None => return Ok(all),
            }
        }
    }

    /// Writes a resource, on condition that it is still the one of this ETag; gives it as it is then.
    pub async fn put<T: Serialize, R: DeserializeOwned>(
        &self,
        id: &str,
        body: &T,
        etag: &str,
    ) -> Result<R, Error> {
        let body = serde_json::to_vec(body).map_err(|e| Error::unreadable(id, &e))?;
        let done = self.write(Method::PUT, id, body.into(), etag).await?;
        match done {
            Some(answer) => parse(id, &answer),
            None => {
                let address = self.address(id, "");
                parse(id, &self.fresh(&address).await?)
            }
        }
    }

    /// Removes a resource; one that has gone is fine.
    pub async fn delete(&self, id: &str) -> Result<(), Error> {
        match self.write(Method::DELETE, id, Bytes::new(), "").await {
            Err(error) if error.status() == Some(404) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Has something done with a resource.
    pub async fn post(&self, path: &str, body: &Value) -> Result<(), Error> {
        let body = Bytes::from(body.to_string());
        self.write(Method::POST, path, body, "").await.map(drop)
    }

    /// Asks a resource for something that only a POST gives, such as credentials.
    pub async fn ask<R: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<R, Error> {
        let body = Bytes::from(body.to_string());
        let done = self.write(Method::POST, path, body, "").await?;
        match done {
            Some(answer) => parse(path, &answer),
            None => Err(Error::unreadable(
                path,
                &"it is an operation and has no answer",
            )),
        }
    }

    fn address(&self, path: &str, query: &str) -> String {
        let (manager, version) = (&self.shared.manager, versions::of(path));
        let more = if query.is_empty() { "" } else { "&" };
        format!("{manager}{path}?api-version={version}{more}{query}")
    }

    /// A GET that is shared with everybody who asks the same meanwhile.
    async fn read(&self, address: &str) -> Result<Response<Bytes>, Error> {
        let flights = || {
            let lock = self.shared.flights.lock();
            lock.unwrap_or_else(PoisonError::into_inner)
        };
        let flight = {
            let mut flights = flights();
            match flights.get(address) {
                Some(flight) => flight.clone(),
                None => {
                    let (arm, asked) = (self.clone(), address.to_owned());
                    let fresh = async move { arm.fresh(&asked).await }.boxed().shared();
                    flights.insert(address.to_owned(), fresh.clone());
                    fresh
                }
            }
        };
        let outcome = flight.clone().await;
        let mut flights = flights();
        // Only the one that has landed: another one may have started since.
        if flights.get(address).is_some_and(|f| f.ptr_eq(&flight)) {
            flights.remove(address);
        }
        outcome
    }

    /// A GET that nobody shares, for reading what was just written.
    async fn fresh(&self, address: &str) -> Result<Response<Bytes>, Error> {
        self.send(Method::GET, address, Bytes::new(), "").await
    }

    /// A write, to the end of its operation: the answer if it is the resource, nothing where that has to be read.
    async fn write(
        &self,
        method: Method,
        id: &str,
        body: Bytes,
        etag: &str,
    ) -> Result<Option<Response<Bytes>>, Error> {
        let address = self.address(id, "");
        let first = self.send(method.clone(), &address, body, etag).await?;
        let deadline = Instant::now() + OPERATION_PATIENCE;
        let mut step = operation::begun(&method, &first);
        let mut waits = operation::Waits::default();
        let mut polled = false;
        loop {
            let (place, asked_for) = match step {
                Step::Done if polled => return Ok(None),
                Step::Done => return Ok(Some(first)),
                Step::Failed { code, message } => {
                    return Err(Error::Failed {
                        path: id.to_owned(),
                        code,
                        message,
                    });
                }
                Step::Poll { place, after } => (place, after),
            };
            if Instant::now() >= deadline {
                return Err(Error::Failed {
                    path: id.to_owned(),
                    code: "OperationTimedOut".into(),
                    message: format!("it did not end in {} seconds", OPERATION_PATIENCE.as_secs()),
                });
            }
            tokio::time::sleep(waits.next(asked_for)).await;
            let answer = match place.address() {
                Some(address) => self.fresh(address).await?,
                None => self.fresh(&address).await?,
            };
            polled = true;
            step = operation::polled(place, &answer);
        }
    }

    /// Sends a request, and again where that can help.
    async fn send(
        &self,
        method: Method,
        address: &str,
        body: Bytes,
        etag: &str,
    ) -> Result<Response<Bytes>, Error> {
        let path = path_of(address, &self.shared.manager);
        let family = versions::family(&path);
        let is_read = method == Method::GET;
        for attempt in 0.. {
            self.turn(&family, is_read).await?;
            let outcome = self.once(&method, address, body.clone(), etag).await;
            let chance = rand::random::<f64>();
            match answer::judge(
                &method,
                &path,
                outcome,
                attempt,
                self.shared.backoff,
                chance,
            ) {
                Next::Answer(answer) => return Ok(answer),
                Next::Again { after } => tokio::time::sleep(after).await,
                Next::NewToken => self.shared.tokens.forget().await,
                Next::Throttled { after } => {
                    self.shared.calls.throttled.fetch_add(1, Ordering::Relaxed);
                    self.limits()
                        .close(&family, is_read, Instant::now() + after);
                    tracing::warn!(what = family, ?after, "Azure wants to be left alone");
                }
                Next::Refused(error) => {
                    self.shared.calls.errors.fetch_add(1, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        unreachable!("the judge ends it at the last attempt")
    }

    async fn turn(&self, family: &str, is_read: bool) -> Result<(), Error> {
        loop {
            let now = Instant::now();
            let wait = self.limits().take(family, is_read, now);
            match wait {
                None => return Ok(()),
                Some(after) if after > QUEUE_PATIENCE => {
                    return Err(Error::Throttled {
                        what: family.to_owned(),
                        after,
                    });
                }
                Some(after) => tokio::time::sleep(after).await,
            }
        }
    }

    fn limits(&self) -> std::sync::MutexGuard<'_, Limits> {
        let lock = self.shared.limits.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    async fn once(
        &self,
        method: &Method,
        address: &str,
        body: Bytes,
        etag: &str,
    ) -> Result<Response<Bytes>, Error> {
        let inner = &self.shared;
        let token = inner.tokens.token().await?;
        let mut request = Request::builder()
            .method(method)
            .uri(address)
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, &inner.agent);
        if *method != Method::GET {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if !etag.is_empty() {
            request = request.header(IF_MATCH, etag);
        }
        let request = request.body(Full::new(body));
        let request = request.map_err(|e| Error::Config(format!("{address}: {e}")))?;
        let counter = match *method {
            Method::GET => &inner.calls.reads,
            _ => &inner.calls.writes,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let started = Instant::now();
        let answer = inner.client.send(request).await?;
        tracing::debug!(%method, address, status = answer.status().as_u16(), took = ?started.elapsed(), "asked Azure");
        Ok(answer)
    }
}

/// What a request is about, without the cloud's address and the query.
fn path_of(address: &str, manager: &str) -> String {
    let path = address.strip_prefix(manager).unwrap_or(address);
    path.split('?').next().unwrap_or_default().to_owned()
}

fn parse<T: DeserializeOwned>(id: &str, answer: &Response<Bytes>) -> Result<T, Error> {
    serde_json::from_slice(answer.body()).map_err(|e| Error::unreadable(id, &e))
}
