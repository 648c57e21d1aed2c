//! What keeps a node's disk from filling: logs are rotated, images that nobody uses go.

mod images;
mod logs;

use std::sync::Arc;
use std::time::Duration;

use crate::context::Context;

/// Upstream's paces.
const LOGS: Duration = Duration::from_secs(10);
const IMAGES: Duration = Duration::from_secs(5 * 60);

/// Keeps at it for ever.
pub(crate) async fn keep(ctx: Arc<Context>) {
    let rotating = async {
        loop {
            tokio::time::sleep(LOGS).await;
            logs::rotate_all(&ctx).await;
        }
    };
    let collecting = async {
        let mut memory = images::Memory::default();
        loop {
            tokio::time::sleep(IMAGES).await;
            images::collect(&ctx, &mut memory).await;
        }
    };
    tokio::join!(rotating, collecting);
}
