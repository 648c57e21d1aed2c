//! `kyanite konnectivity-server` and `kyanite konnectivity-agent`.

use konnectivity::agent::{Agent, AgentError};
use konnectivity::flags::FlagError;
use konnectivity::server::{Server, ServerError};

use super::serve;
use crate::cli::konnectivity::{KonnectivityAgent, KonnectivityServer};
use crate::exit::{Code, Failure, Result};
use crate::logging;

/// Runs the server until told to stop.
pub(super) async fn server(command: KonnectivityServer) -> Result<()> {
    logging::start(&command.logging)?;
    serve::allow_many_files();
    let server = Server::bind(command.flags.config().await?).await?;
    server.run(serve::told_to_stop()).await;
    Ok(())
}

/// Runs the agent until told to stop.
pub(super) async fn agent(command: KonnectivityAgent) -> Result<()> {
    logging::start(&command.logging)?;
    serve::allow_many_files();
    let agent = Agent::bind(command.flags.config().await?).await?;
    agent.run(serve::told_to_stop()).await;
    Ok(())
}

impl From<FlagError> for Failure {
    fn from(error: FlagError) -> Failure {
        Failure::new(Code::Usage, error.to_string())
    }
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Failure {
        match &error {
            ServerError::Listen { source, .. } => listening(&error, source),
            ServerError::Tls(_) => Failure::new(Code::Usage, error.to_string()),
        }
    }
}

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Failure {
        match &error {
            AgentError::Listen { source, .. } => listening(&error, source),
            AgentError::Tls(_) => Failure::new(Code::Usage, error.to_string()),
        }
    }
}

fn listening(error: &impl std::fmt::Display, source: &std::io::Error) -> Failure {
    let code = match source.kind() {
        std::io::ErrorKind::AddrInUse => Code::Conflict,
        std::io::ErrorKind::PermissionDenied => Code::Permission,
        _ => Code::Failure,
    };
    Failure::new(code, error.to_string()).hint("choose another port or path")
}
