//! `kyanite dns`: the cluster's names.

use client_runtime::Connection;
use dns::{Error, Options};

use super::serve;
use crate::cli::dns::Dns;
use crate::exit::{Code, Failure, Result};
use crate::logging;

/// Serves names until told to stop.
pub(super) async fn run(flags: Dns) -> Result<()> {
    logging::start(&flags.logging)?;
    let addresses = flags.addresses();
    let options = Options {
        connection: flags
            .kubeconfig
            .map_or(Connection::InCluster, Connection::Kubeconfig),
        corefile: flags.conf,
        addresses,
        port: flags.port,
    };
    Ok(dns::run(options, serve::told_to_stop()).await?)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match &error {
            Error::Config(_) | Error::Client(client_runtime::Error::File { .. }) => Code::Usage,
            Error::Client(client_runtime::Error::Connection { .. }) => Code::Unavailable,
            Error::Listen { .. } => Code::Conflict,
            Error::Client(_) => Code::Failure,
        };
        Failure::new(code, error.to_string())
    }
}
