//! Fills secrets of type `kubernetes.io/service-account-token`, and removes those of accounts that went.
//!
//! Acts as the manager itself, as upstream: the other controllers' accounts may not exist yet.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use access::tokens::keys::SigningKey;
use access::tokens::service_account::legacy_token;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;

use crate::Manager;
use crate::watched::AccountState;
use client_runtime::{Actor, is_outdated};
use client_runtime::{Cache, ObjectKey};
use client_runtime::{End, Queue};
use client_runtime::{SyncError, Synced};

const NAME_ANNOTATION: &str = "kubernetes.io/service-account.name";
const UID_ANNOTATION: &str = "kubernetes.io/service-account.uid";

/// What is kept of a token secret: whose it is. Never the token.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Holder {
    uid: String,
    account: String,
    /// Empty until the secret has been filled.
    account_uid: String,
}

impl Holder {
    fn of(secret: &Secret) -> Holder {
        let annotations = secret.metadata.annotations.as_ref();
        let annotation = |key| annotations.and_then(|all| all.get(key)).cloned();
        Holder {
            uid: secret.metadata.uid.clone().unwrap_or_default(),
            account: annotation(NAME_ANNOTATION).unwrap_or_default(),
            account_uid: annotation(UID_ANNOTATION).unwrap_or_default(),
        }
    }

    fn belongs_to(&self, uid: &str) -> bool {
        self.account_uid.is_empty() || self.account_uid == uid
    }
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Task {
    /// Bring a secret to the state it should have.
    Secret(ObjectKey),
    /// Take a secret that went out of its account's list.
    Unlist { secret: ObjectKey, holder: Holder },
}

/// Starts the controller; without a key no token can be made.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let config = Arc::clone(&manager.config);
    let Some(key) = config.service_account_key.clone() else {
        tracing::warn!(
            controller = name,
            "no service account key: no token is made"
        );
        return;
    };
    let accounts = manager.shared::<AccountState>();
    let fields = "type=kubernetes.io/service-account-token";
    let keep = |secret: Secret| Holder::of(&secret);
    let secrets = manager.watch(Api::all(manager.client()), fields, keep);
    let queue = Arc::new(Queue::new());
    notice(&queue, &accounts, &secrets);
    let tokens = Arc::new(Tokens {
        key,
        root_ca: config.root_ca.clone(),
        root: manager.root.clone(),
        accounts: accounts.clone(),
        secrets: secrets.clone(),
    });
    manager.start_work(
        name,
        queue,
        5,
        [accounts.completion(), secrets.completion()],
        move |task| sync(Arc::clone(&tokens), task),
    );
}

fn notice(queue: &Arc<Queue<Task>>, accounts: &Cache<AccountState>, secrets: &Cache<Holder>) {
    let noticed = Arc::clone(queue);
    secrets.on_change(move |change| {
        let task = match (change.before, change.after) {
            (Some(before), None) => Task::Unlist {
                secret: change.key.clone(),
                holder: before.clone(),
            },
            _ => Task::Secret(change.key.clone()),
        };
        noticed.add(task);
    });
    let (noticed, known) = (Arc::clone(queue), secrets.clone());
    accounts.on_change(move |change| {
        let (before, after) = (change.before, change.after);
        if before.map(|a| &a.uid) == after.map(|a| &a.uid) {
            return;
        }
        for (key, holder) in known.all() {
            if key.namespace == change.key.namespace && holder.account == change.key.name {
                noticed.add(Task::Secret(key));
            }
        }
    });
}

struct Tokens {
    key: PathBuf,
    root_ca: Option<PathBuf>,
    root: Actor,
    accounts: Cache<AccountState>,
    secrets: Cache<Holder>,
}

async fn sync(tokens: Arc<Tokens>, task: Task) -> Synced {
    match task {
        Task::Secret(key) => tokens.sync_secret(&key).await,
        Task::Unlist { secret, holder } => tokens.unlist(&secret, &holder).await,
    }
}

impl Tokens {
    async fn sync_secret(&self, key: &ObjectKey) -> Synced {
        let Some(holder) = self.secrets.get(key).filter(|h| !h.account.is_empty()) else {
            return Ok(End::Done);
        };
        let Some(account_uid) = self.account_uid(&key.namespace, &holder).await? else {
            let (namespace, name) = (&key.namespace, &key.name);
            let uid = Some(holder.uid.as_str());
            self.root.delete::<Secret>(namespace, name, uid).await?;
            return Ok(End::Done);
        };
        // Read anew, because nothing of what is secret is kept.
        let found = self.root.get::<Secret>(&key.namespace, &key.name).await?;
        let Some(secret) = found.filter(|s| Holder::of(s) == *holder) else {
            return Ok(End::Done);
        };
        let Some(filled) = self.filled(secret, &holder.account, &account_uid)? else {
            return Ok(End::Done);
        };
        match self.root.replace(&filled).await {
            Err(error) if is_outdated(&error) => Ok(End::Done),
            other => other.map(|_| End::Done),
        }
    }

    // What the watch has not shown yet may exist all the same.
    async fn account_uid(
        &self,
        namespace: &str,
        holder: &Holder,
    ) -> Result<Option<String>, SyncError> {
        let key = ObjectKey::new(namespace, &holder.account);
        if let Some(account) = self.accounts.get(&key)
            && holder.belongs_to(&account.uid)
        {
            return Ok(Some(account.uid.clone()));
        }
        let live: Option<ServiceAccount> = self.root.get(namespace, &holder.account).await?;
        let uid = live.and_then(|account| account.metadata.uid);
        Ok(uid.filter(|uid| holder.belongs_to(uid)))
    }

    fn filled(
        &self,
        secret: Secret,
        account: &str,
        uid: &str,
    ) -> Result<Option<Secret>, SyncError> {
        let namespace = secret.metadata.namespace.clone().unwrap_or_default();
        let name = secret.metadata.name.clone().unwrap_or_default();
        let root_ca = self.root_ca.as_ref().map(read).transpose()?;
        let data = secret.data.as_ref();
        let Some(missing) = missing(data, root_ca.as_deref(), &namespace) else {
            return Ok(None);
        };
        let mut secret = secret;
        let data = secret.data.get_or_insert_default();
        data.extend(missing.entries);
        if missing.token {
            let key = SigningKey::from_pem(&read(&self.key)?)
                .map_err(|e| SyncError::Other(e.to_string()))?;
            let token = legacy_token(&key, &namespace, account, uid, &name)
                .map_err(|e| SyncError::Other(e.to_string()))?;
            data.insert("token".into(), ByteString(token.into_bytes()));
        }
        let annotations = secret.metadata.annotations.get_or_insert_default();
        annotations.insert(NAME_ANNOTATION.into(), account.into());
        annotations.insert(UID_ANNOTATION.into(), uid.into());
        Ok(Some(secret))
    }

    async fn unlist(&self, secret: &ObjectKey, holder: &Holder) -> Synced {
        let name = &holder.account;
        if name.is_empty() || self.secrets.get(secret).is_some() {
            return Ok(End::Done);
        }
        let found = self.root.get(&secret.namespace, name).await?;
        let Some(account) = found.and_then(|a| without(a, &secret.name, holder)) else {
            return Ok(End::Done);
        };
        match self.root.replace(&account).await {
            // Somebody else wrote: this must be tried again, no watch brings it back.
            Err(error) if is_outdated(&error) => Err(SyncError::NotYet(error.to_string())),
            other => other.map(|_| End::Done),
        }
    }
}

fn read(path: &PathBuf) -> Result<Vec<u8>, SyncError> {
    std::fs::read(path)
        .map_err(|e| SyncError::Other(format!("cannot read `{}`: {e}", path.display())))
}

/// What a secret lacks.
#[derive(Debug, PartialEq)]
struct Missing {
    entries: BTreeMap<String, ByteString>,
    token: bool,
}

fn missing(
    data: Option<&BTreeMap<String, ByteString>>,
    root_ca: Option<&[u8]>,
    namespace: &str,
) -> Option<Missing> {
    let entry = |key: &str| data.and_then(|data| data.get(key)).map(|v| v.0.as_slice());
    let is_empty = |key: &str| entry(key).is_none_or(<[u8]>::is_empty);
    let mut entries = BTreeMap::new();
    if let Some(ca) = root_ca
        && !ca.is_empty()
        && entry("ca.crt") != Some(ca)
    {
        entries.insert("ca.crt".to_owned(), ByteString(ca.to_vec()));
    }
    if is_empty("namespace") {
        let value = ByteString(namespace.as_bytes().to_vec());
        entries.insert("namespace".to_owned(), value);
    }
    let token = is_empty("token");
    (token || !entries.is_empty()).then_some(Missing { entries, token })
}

/// The account without this secret in its list, if it was in it.
fn without(mut account: ServiceAccount, secret: &str, holder: &Holder) -> Option<ServiceAccount> {
    let uid = account.metadata.uid.as_deref().unwrap_or_default();
    if !holder.belongs_to(uid) {
        return None;
    }
    let list = account.secrets.as_mut()?;
    let before = list.len();
    list.retain(|reference| reference.name.as_deref() != Some(secret));
    (list.len() != before).then_some(account)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    fn data(entries: &[(&str, &str)]) -> BTreeMap<String, ByteString> {
        let entries = entries.iter();
        entries
            .map(|(k, v)| ((*k).to_owned(), ByteString(v.as_bytes().to_vec())))
            .collect()
    }

    #[test]
    fn a_secret_gets_what_it_lacks() {
        let whole = data(&[("token", "t"), ("ca.crt", "ca"), ("namespace", "n")]);
        assert_eq!(missing(Some(&whole), Some(b"ca"), "n"), None);
        let all = missing(None, Some(b"ca"), "n").unwrap();
        assert!(all.token);
        assert_eq!(all.entries, data(&[("ca.crt", "ca"), ("namespace", "n")]));
        let rotated = missing(Some(&whole), Some(b"new"), "n").unwrap();
        assert!(!rotated.token, "a token is made once");
        assert_eq!(rotated.entries, data(&[("ca.crt", "new")]));
        assert_eq!(missing(Some(&whole), None, "n"), None);
    }

    #[test]
    fn a_secret_that_went_leaves_its_accounts_list() {
        let account = |uid: &str| -> ServiceAccount {
            serde_json::from_value(json!({"metadata": {"name": "a", "uid": uid},
                "secrets": [{"name": "x"}, {"name": "y"}]}))
            .unwrap()
        };
        let holder = Holder {
            uid: "s".into(),
            account: "a".into(),
            account_uid: "u".into(),
        };
        let left = without(account("u"), "x", &holder)
            .unwrap()
            .secrets
            .unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(without(account("u"), "z", &holder), None);
        assert_eq!(without(account("other"), "x", &holder), None);
    }
}
