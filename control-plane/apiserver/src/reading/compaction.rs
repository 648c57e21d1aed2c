//! Forgetting: history older than an interval is given up, in the store and in memory.
//! The same rounds look after node ports that nobody has.

use std::sync::Arc;
use std::time::Duration;

use crate::api::Api;

/// Compacts for ever: each round forgets what was history at the round before, so that between one
/// and two intervals of history are kept, as upstream does with five minutes.
pub(crate) async fn run(api: Arc<Api>, every: Duration) {
    let mut mark = api.cache.revision();
    loop {
        tokio::time::sleep(every).await;
        let next = api.cache.revision();
        match api.store.compact(mark).await {
            Ok(()) => api.cache.forget_before(mark),
            // Another server on the same store was quicker.
            Err(store::Error::Compacted { .. }) => api.cache.forget_before(mark),
            Err(error) => tracing::warn!(%error, revision = mark, "history cannot be compacted"),
        }
        if let Err(error) = api.services.audit(&api).await {
            tracing::warn!(why = error.message, "node ports cannot be audited");
        }
        mark = next;
    }
}
