//! `kyanite registry`: a registry of images on this machine.

use std::fs;
use std::net::SocketAddr;

use registry::{Registry, Settings};
use serde_json::json;
use tokio::net::TcpListener;

use super::serve;
use crate::cli::image::RegistryCommand;
use crate::datadir::DataDir;
use crate::exit::{Code, Failure, Result};
use crate::logging;
use crate::printer::Printer;

/// Serves until told to stop.
pub(super) async fn run(command: RegistryCommand, printer: Printer) -> Result<()> {
    logging::start(&command.logging)?;
    let data = DataDir::find(&command.place)?;
    data.prepare()?;
    let token = match &command.token_file {
        Some(file) => {
            let text = fs::read_to_string(file).map_err(|e| Failure::file("read", file, &e))?;
            Some(text.trim().to_owned())
        }
        None => None,
    };
    let registry = Registry::open(Settings {
        directory: data.path().join("registry"),
        token,
    })
    .map_err(|error| Failure::new(Code::Failure, format!("{error}: {}", error.source)))?;
    let wanted = SocketAddr::new(command.bind_address, command.port);
    let listener = TcpListener::bind(wanted).await.map_err(|error| {
        Failure::new(
            Code::Conflict,
            format!("cannot listen on {wanted}: {error}"),
        )
        .hint("name another --port")
    })?;
    let address = listener.local_addr().unwrap_or(wanted);
    let text =
        format!("images are at {address}, as in `ctr images push --plain-http {address}/web:1`");
    printer.result(&text, &json!({"address": address.to_string()}));
    registry.serve(listener, serve::told_to_stop()).await;
    Ok(())
}
