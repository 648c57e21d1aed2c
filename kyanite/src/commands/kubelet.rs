//! `kyanite kubelet`: this machine's pods.

use super::serve;
use crate::cli::kubelet::Kubelet;
use crate::cli::{LogFormat, Logging};
use crate::exit::{Code, Failure, Result};
use crate::logging;
use crate::printer::Printer;

/// Runs the kubelet until told to stop; its pods go on.
pub(super) async fn run(command: Kubelet, printer: &Printer) -> Result<()> {
    if command
        .flags
        .iter()
        .any(|flag| flag.starts_with("--version"))
    {
        let version = kubelet::node::VERSION;
        let value = serde_json::json!({"version": version});
        printer.result(&format!("Kubernetes {version}"), &value);
        return Ok(());
    }
    let level = std::env::var("KYANITE_LOG").unwrap_or_else(|_| "info".to_owned());
    logging::start(&Logging {
        log_level: level,
        logging_format: LogFormat::Text,
    })?;
    serve::allow_many_files();
    let hostname = rustix::system::uname();
    let hostname = hostname.nodename().to_string_lossy();
    let settings = kubelet::config::settings(&command.flags, &hostname)
        .map_err(|e| Failure::new(Code::Usage, e.to_string()))?;
    kubelet::run(settings, serve::told_to_stop())
        .await
        .map_err(|e| Failure::new(Code::Failure, e.to_string()))
}
