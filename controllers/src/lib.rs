//! The controller manager: one module per controller, each a pure decision in a thin shell.

mod config;
mod selection;

pub use config::{Config, Connection, KeyPairFiles, LeaderElection};
pub use selection::Selection;

/// One controller: its names and how it starts.
pub(crate) struct Controller {
    name: &'static str,
    alias: &'static str,
    on_by_default: bool,
}

impl Controller {
    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.alias == name
    }
}

const CONTROLLERS: [Controller; 0] = [];

/// Why the manager could not run, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else holds the Lease.
    #[error("the lease was lost to another controller manager")]
    LeaseLost,
}

/// Runs the controllers until `shutdown` completes.
pub async fn run(
    config: Config,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let started = CONTROLLERS.iter().filter(|c| config.selection.includes(c));
    tracing::info!(controllers = started.count(), "controllers run");
    shutdown.await;
    Ok(())
}
