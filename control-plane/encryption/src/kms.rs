//! A key management service (KMS v2): a plugin at a Unix socket that encrypts and decrypts seeds.
//!
//! ```text
//! write: the present seed (keys) ─► a key for this value ─► EncryptedObject (envelope)
//! read:  the seed in the value ─► open already (keys), else the service is asked once for it (client)
//! ```
//!
//! A thread of its own speaks with the service: it looks after its health, takes a new seed when the service's key has
//! changed, and decrypts what others ask for. So a service that hangs holds up nobody who does not need it, and whoever
//! reads in a place that cannot wait (the thread that commits) can ask as well.

mod client;
mod envelope;
mod keys;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use jiff::Timestamp;
use prost::Message as _;
use tokio::sync::{mpsc, watch};

use crate::meters::{Direction, Meters};
use client::Client;
use envelope::{EncryptedObject, Opener};
use keys::Keys;
pub(crate) use keys::hash;

/// How often the service is asked how it is: when it was well, and when not (upstream's).
const CHECK_EVERY: Duration = Duration::from_secs(60);
const RETRY_EVERY: Duration = Duration::from_secs(10);
/// How long health pages believe the last look (upstream's).
const WELL_FOR: Duration = Duration::from_secs(20);
const ILL_FOR: Duration = Duration::from_secs(3);
/// How many questions may wait for a service.
const WAITING: usize = 64;
/// How long a reader that cannot wait does not ask again after it got no answer.
const PAUSE: Duration = Duration::from_secs(1);

/// What a configuration says of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) socket: PathBuf,
    pub(crate) timeout: Duration,
}

/// A key management service.
#[derive(Debug)]
pub(crate) struct Plugin {
    pub(crate) settings: Settings,
    prefix: String,
    shared: Arc<Shared>,
    asks: OnceLock<mpsc::Sender<Ask>>,
}

#[derive(Debug)]
struct Shared {
    keys: Mutex<Keys>,
    last: Mutex<Look>,
    /// Counts how often a service got well: what could not be read may be readable now.
    well: watch::Sender<u64>,
    meters: Meters,
}

/// What the last look at the service has shown.
#[derive(Debug, Default)]
struct Look {
    at: Option<Instant>,
    wrong: Option<String>,
    /// Until when readers that cannot wait do not ask.
    pause: Option<Instant>,
}

type Answer = Box<dyn FnOnce(Result<(), String>) + Send>;

enum Ask {
    Open(EncryptedObject, Answer),
    Check(Answer),
}

impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ask")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Plugin {
    /// A service that is not spoken with before [`Plugin::start`].
    pub(crate) fn new(settings: Settings, well: watch::Sender<u64>, meters: Meters) -> Plugin {
        Plugin {
            prefix: format!("k8s:enc:kms:v2:{}:", settings.name),
            settings,
            shared: Arc::new(Shared {
                keys: Mutex::default(),
                last: Mutex::default(),
                well,
                meters,
            }),
            asks: OnceLock::new(),
        }
    }

    /// What its values begin with.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Begins to speak with the service, and waits for a look at it. One that is ill is asked again and again.
    pub(crate) fn start(&self) -> Result<(), String> {
        let (asks, asked) = mpsc::channel(WAITING);
        if self.asks.set(asks).is_err() {
            return self.ask_and_wait(Ask::Check);
        }
        let (settings, shared) = (self.settings.clone(), Arc::clone(&self.shared));
        let name = format!("kms-{}", settings.name);
        let name: String = name.chars().take(15).collect();
        let started = std::thread::Builder::new().name(name).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            match runtime {
                Ok(runtime) => runtime.block_on(run(settings, shared, asked)),
                Err(error) => tracing::error!(%error, "no runtime for a key management service"),
            }
        });
        started.map_err(|error| self.named(error.to_string()))?;
        self.ask_and_wait(Ask::Check)
    }

    /// What is wrong with the service, as far as is known.
    pub(crate) fn health(&self) -> Result<(), String> {
        match &lock(&self.shared.last).wrong {
            Some(wrong) => Err(wrong.clone()),
            None => Ok(()),
        }
    }

    /// The same, after another look at it if the last one is long ago.
    pub(crate) async fn check(&self) -> Result<(), String> {
        let fresh = {
            let last = lock(&self.shared.last);
            let believed = if last.wrong.is_some() {
                ILL_FOR
            } else {
                WELL_FOR
            };
            last.at.is_some_and(|at| at.elapsed() < believed)
        };
        match fresh {
            true => self.health(),
            false => self.ask(Ask::Check).await,
        }
    }

    /// A value as it is stored.
    pub(crate) fn seal(&self, plain: &[u8], place: &str) -> Result<Bytes, String> {
        let current = lock(&self.shared.keys).writing(Timestamp::now());
        let current = current.map_err(|why| match self.health() {
            Err(wrong) => self.named(format!("{why}: {wrong}")),
            Ok(()) => self.named(why),
        })?;
        let data = current.opener.seal(plain, place)?;
        let key_id = &current.envelope.key_id;
        let meters = &self.shared.meters;
        meters.key_used(Direction::ToStorage, &self.settings.name, key_id);
        let object = EncryptedObject {
            data,
            ..current.envelope.clone()
        };
        let mut out = Vec::with_capacity(self.prefix.len() + object.encoded_len());
        out.extend_from_slice(self.prefix.as_bytes());
        object.encode(&mut out).map_err(|error| error.to_string())?;
        Ok(out.into())
    }

    /// A stored value, behind its prefix, as it was; and whether another key is used today.
    pub(crate) fn open(&self, stored: Bytes, place: &str) -> Result<(Bytes, bool), String> {
        let object = EncryptedObject::read(stored)?;
        let opener = match self.known(&object) {
            Some(opener) => opener,
            None => self.opened_now(&object)?,
        };
        let plain = opener.open(&object.data, place)?;
        let meters = &self.shared.meters;
        meters.key_used(Direction::FromStorage, &self.settings.name, &object.key_id);
        let stale = lock(&self.shared.keys).is_stale(&object);
        Ok((plain, stale))
    }

    /// Lets the service decrypt what a value needs to be read, for those who can wait. What goes wrong is said by
    /// whoever opens the value.
    pub(crate) async fn prepare(&self, stored: Bytes) {
        let Ok(mut object) = EncryptedObject::read(stored) else {
            return;
        };
        if self.known(&object).is_none() && !self.is_pausing() {
            object.data = Bytes::new();
            let outcome = self.ask(|answer| Ask::Open(object, answer)).await;
            self.pause_after(&outcome);
        }
    }

    fn known(&self, object: &EncryptedObject) -> Option<Arc<Opener>> {
        lock(&self.shared.keys).opener(object, Timestamp::now())
    }

    // For readers that cannot wait: values of another server's seed, the first time it is met.
    fn opened_now(&self, object: &EncryptedObject) -> Result<Arc<Opener>, String> {
        let failed = |why: String| self.named(format!("failed to decrypt DEK, error: {why}"));
        if self.is_pausing() {
            let why = self.health().err();
            let why = why.unwrap_or_else(|| "the service did not answer just now".to_owned());
            return Err(failed(why));
        }
        let mut bare = object.clone();
        bare.data = Bytes::new();
        let outcome = self.ask_and_wait(|answer| Ask::Open(bare, answer));
        self.pause_after(&outcome);
        outcome.map_err(failed)?;
        let opened = self.known(object);
        opened.ok_or_else(|| failed("the key is not kept".to_owned()))
    }

    fn is_pausing(&self) -> bool {
        let pause = lock(&self.shared.last).pause;
        pause.is_some_and(|until| Instant::now() < until)
    }

    fn pause_after(&self, outcome: &Result<(), String>) {
        if let Err(why) = outcome {
            let mut last = lock(&self.shared.last);
            last.pause = Some(Instant::now() + PAUSE);
            last.wrong.get_or_insert_with(|| why.clone());
        }
    }

    fn named(&self, why: String) -> String {
        format!("KMS provider {:?}: {why}", self.settings.name)
    }

    async fn ask(&self, ask: impl FnOnce(Answer) -> Ask) -> Result<(), String> {
        let (tell, told) = tokio::sync::oneshot::channel();
        // Whoever asked may have gone.
        self.send(ask(Box::new(|answer| drop(tell.send(answer)))))?;
        told.await.unwrap_or_else(|_| Err("nobody answers".into()))
    }

    fn ask_and_wait(&self, ask: impl FnOnce(Answer) -> Ask) -> Result<(), String> {
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        self.send(ask(Box::new(move |answer| drop(tell.send(answer)))))?;
        // A look may take two calls.
        let patience = self.settings.timeout * 2 + PAUSE;
        told.recv_timeout(patience)
            .unwrap_or_else(|_| Err(format!("no answer within {patience:?}")))
    }

    fn send(&self, ask: Ask) -> Result<(), String> {
        let Some(asks) = self.asks.get() else {
            return Err("the service is not spoken with yet".to_owned());
        };
        asks.try_send(ask)
            .map_err(|_| "too many wait for the service".to_owned())
    }
}

// Ends when nobody can ask any more: the plugin is gone.
async fn run(settings: Settings, shared: Arc<Shared>, mut asked: mpsc::Receiver<Ask>) {
    let client = Client::new(
        settings.name.clone(),
        settings.socket,
        settings.timeout,
        shared.meters.clone(),
    );
    let name: Arc<str> = settings.name.into();
    let mut next = tokio::time::Instant::now() + CHECK_EVERY;
    loop {
        let ask = tokio::select! {
            ask = asked.recv() => match ask {
                Some(ask) => Some(ask),
                None => return,
            },
            () = tokio::time::sleep_until(next) => None,
        };
        match ask {
            Some(Ask::Open(object, answer)) => {
                let (client, shared) = (client.clone(), Arc::clone(&shared));
                let name = Arc::clone(&name);
                tokio::spawn(async move { answer(open(&client, &shared, &name, object).await) });
            }
            other => {
                let outcome = look(&client, &shared, &name).await;
                let pause = if outcome.is_ok() {
                    CHECK_EVERY
                } else {
                    RETRY_EVERY
                };
                next = tokio::time::Instant::now() + pause;
                if let Some(Ask::Check(answer)) = other {
                    answer(outcome);
                }
            }
        }
    }
}

async fn open(
    client: &Client,
    shared: &Shared,
    name: &str,
    object: EncryptedObject,
) -> Result<(), String> {
    shared.meters.cache_missed();
    let (source, key_id) = (object.source.clone(), object.key_id.clone());
    let decrypted = client.decrypt(source, key_id, object.annotations.clone());
    let opener = Arc::new(object.opener(&decrypted.await?)?);
    let mut keys = lock(&shared.keys);
    keys.remember(&object, opener, Timestamp::now());
    shared.meters.seeds_open(name, keys.open_count());
    Ok(())
}

// Looks how the service is, and takes a new seed when its key has changed.
async fn look(client: &Client, shared: &Shared, name: &str) -> Result<(), String> {
    let outcome = look_at(client, shared, name).await;
    let mut last = lock(&shared.last);
    let (before, first) = (last.wrong.take(), last.at.is_none());
    last.at = Some(Instant::now());
    match &outcome {
        Ok(()) => {
            last.pause = None;
            drop(last);
            if before.is_some() || first {
                tracing::info!(provider = name, "the key management service is well");
                shared.well.send_modify(|times| *times += 1);
            }
        }
        Err(wrong) => {
            if before.as_ref() != Some(wrong) {
                tracing::error!(provider = name, %wrong, "the key management service is not well");
            }
            last.wrong = Some(wrong.clone());
        }
    }
    outcome
}

async fn look_at(client: &Client, shared: &Shared, name: &str) -> Result<(), String> {
    // The clock starts before the call: upstream's bound is from there.
    let now = Timestamp::now();
    let status = client.status().await.map_err(|error| {
        format!(
            "failed to perform status section of the healthz check for KMS Provider {name}, error: {error}"
        )
    })?;
    let ill = |why: String| format!("kmsv2 Provider {name} is not healthy, error: {why}");
    let judged = lock(&shared.keys).judge(&status);
    if let Err(why) = envelope::check_key_id(&status.key_id) {
        shared.meters.invalid_key_id(name, &why);
        return judged.map_err(ill);
    }
    shared.meters.key_of_status(name, &status.key_id);
    // A service that says it is not well may still do; what it has said is told in any case (upstream's order).
    let same = lock(&shared.keys).extend(&status.key_id, now);
    let turned = match same {
        true => Ok(()),
        false => turn(client, shared, &status.key_id, now).await,
    };
    match (judged, turned) {
        (Ok(()), Ok(())) => Ok(()),
        (Err(why), Ok(())) | (Ok(()), Err(why)) => Err(ill(why)),
        (Err(one), Err(two)) => Err(ill(format!("[{one}, {two}]"))),
    }
}

async fn turn(
    client: &Client,
    shared: &Shared,
    key_id: &str,
    now: Timestamp,
) -> Result<(), String> {
    let began = Instant::now();
    let seed = envelope::new_seed()?;
    let encrypted = client.encrypt(seed.to_vec()).await;
    shared.meters.key_made(began.elapsed(), encrypted.is_ok());
    let encrypted = encrypted.map_err(|why| format!("failed to encrypt DEK, error: {why}"))?;
    let envelope = EncryptedObject::of_seed(
        encrypted.ciphertext,
        encrypted.key_id,
        encrypted.annotations,
    );
    let opener = envelope.opener(&seed)?;
    lock(&shared.keys).turn(key_id, envelope, opener, now)
}
