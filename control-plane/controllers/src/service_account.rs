//! Makes the service account `default` in every active namespace.

use std::sync::Arc;

use http::StatusCode;
use k8s_openapi::api::core::v1::ServiceAccount;

use crate::Manager;
use crate::watched::{AccountState, NamespaceState};
use client_runtime::{Actor, is, is_namespace_ending};
use client_runtime::{Cache, ObjectKey};
use client_runtime::{End, Queue};
use client_runtime::{SyncError, Synced};

const ACCOUNT: &str = "service-account-controller";
const DEFAULT: &str = "default";

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let (namespaces, accounts) = (
        manager.shared::<NamespaceState>(),
        manager.shared::<AccountState>(),
    );
    let queue = Arc::new(Queue::new());
    let noticed = Arc::clone(&queue);
    namespaces.on_change(move |change| noticed.add(change.key.name.clone()));
    let noticed = Arc::clone(&queue);
    accounts.on_change(move |change| {
        if change.after.is_none() && change.key.name == DEFAULT {
            noticed.add(change.key.namespace.clone());
        }
    });
    let actor = manager.act_as(ACCOUNT);
    manager.start_work(
        name,
        queue,
        4,
        [namespaces.completion(), accounts.completion()],
        move |key| sync(namespaces.clone(), accounts.clone(), actor.clone(), key),
    );
}

async fn sync(
    namespaces: Cache<NamespaceState>,
    accounts: Cache<AccountState>,
    actor: Actor,
    namespace: String,
) -> Synced {
    let state = namespaces.get(&ObjectKey::new("", &namespace));
    let account = accounts.get(&ObjectKey::new(&namespace, DEFAULT));
    if !is_wanted(state.as_deref(), account.as_deref()) {
        return Ok(End::Done);
    }
    let mut account = ServiceAccount::default();
    account.metadata.name = Some(DEFAULT.into());
    match actor.create(&namespace, &account).await {
        Err(SyncError::Api(error)) if is(&error, StatusCode::CONFLICT) => Ok(End::Done),
        Err(error) if is_namespace_ending(&error) => Ok(End::Done),
        other => other.map(|_| End::Done),
    }
}

fn is_wanted(namespace: Option<&NamespaceState>, account: Option<&AccountState>) -> bool {
    namespace.is_some_and(|namespace| namespace.active) && account.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_active_namespace_without_its_account_gets_one() {
        let namespace = |active| NamespaceState {
            active,
            deleting: !active,
        };
        let account = AccountState { uid: "u".into() };
        assert!(is_wanted(Some(&namespace(true)), None));
        assert!(!is_wanted(Some(&namespace(true)), Some(&account)));
        assert!(!is_wanted(Some(&namespace(false)), None), "it is ending");
        assert!(!is_wanted(None, None), "it is gone");
    }
}
