//! Removes bootstrap tokens at the moment they end.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

use crate::Manager;
use crate::bootstrap_token::Ending;
use crate::watched::BootstrapToken;
use client_runtime::Actor;
use client_runtime::Synced;
use client_runtime::enqueue_changes;
use client_runtime::{Cache, ObjectKey};
use client_runtime::{End, Queue};

const ACCOUNT: &str = "token-cleaner";

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let tokens = manager.shared::<BootstrapToken>();
    let queue = Arc::new(Queue::new());
    enqueue_changes(&tokens, &queue);
    let actor = manager.act_as(ACCOUNT);
    manager.start_work(name, queue, 1, [tokens.completion()], move |key| {
        sync(tokens.clone(), actor.clone(), key)
    });
}

async fn sync(tokens: Cache<BootstrapToken>, actor: Actor, key: ObjectKey) -> Synced {
    let Some(token) = tokens.get(&key) else {
        return Ok(End::Done);
    };
    match left(Ending::of(&token.0), Timestamp::now()) {
        None => Ok(End::Done),
        Some(left) if !left.is_zero() => Ok(End::After(left)),
        Some(_) => {
            let uid = token.0.metadata.uid.as_deref();
            actor
                .delete::<Secret>(&key.namespace, &key.name, uid)
                .await?;
            tracing::info!(
                secret = key.name,
                "removed: the bootstrap token has expired"
            );
            Ok(End::Done)
        }
    }
}

/// How long a token has left; nothing for one without an end.
fn left(ending: Ending, now: Timestamp) -> Option<Duration> {
    match ending {
        Ending::Never => None,
        Ending::Unreadable => Some(Duration::ZERO),
        Ending::At(end) => Some(Duration::try_from(end.duration_since(now)).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_token_has_left_what_its_expiration_says() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |text: &str| Ending::At(text.parse().unwrap());
        for (ending, expected) in [
            (Ending::Never, None),
            (Ending::Unreadable, Some(0)),
            (at("2025-12-31T00:00:00Z"), Some(0)),
            (at("2026-01-01T00:00:00Z"), Some(0)),
            (at("2026-01-01T00:01:00Z"), Some(60)),
        ] {
            assert_eq!(
                left(ending, now),
                expected.map(Duration::from_secs),
                "{ending:?}"
            );
        }
    }
}
