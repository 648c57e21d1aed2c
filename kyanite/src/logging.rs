//! Structured logs on standard error.

use tracing_subscriber::EnvFilter;

use crate::cli::{LogFormat, Logging};
use crate::exit::{Code, Failure, Result};

/// Starts logging as the flags say.
pub(crate) fn start(flags: &Logging) -> Result<()> {
    let filter = EnvFilter::try_new(&flags.log_level).map_err(|e| {
        Failure::new(
            Code::Usage,
            format!("`{}` is not a log filter: {e}", flags.log_level),
        )
        .hint("use a level such as `info`, or `info,apiserver=debug`")
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let started = match flags.logging_format {
        LogFormat::Text => builder
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|e| Failure::new(Code::Failure, format!("logging cannot start: {e}")))
}
