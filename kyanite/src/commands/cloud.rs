//! `kyanite cloud`: the cloud's front door; `kyanite az-env`: what makes az use it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::cloud::{Clock, Config, Credentials, Hollow, KeyPairFiles, Region};
use serde_json::json;
use tokio::net::TcpListener;

use super::serve;
use crate::cli::Place;
use crate::cli::cloud::Cloud;
use crate::datadir::{DataDir, make_private, write_private};
use crate::exit::{Code, Failure, Result};
use crate::pki::{Authority, Pki, ServerNames};
use crate::printer::Printer;
use crate::{logging, pki};

/// Where az's files and what `az-env` needs to know are kept, in the data directory.
fn az_directory(dir: &DataDir) -> PathBuf {
    dir.path().join("azure")
}

fn known_file(dir: &DataDir) -> PathBuf {
    az_directory(dir).join("kyanite.json")
}

/// Runs the cloud until told to stop.
pub(super) async fn run(flags: Cloud) -> Result<()> {
    logging::start(&flags.logging)?;
    serve::allow_many_files();
    let dir = DataDir::find(&flags.place)?;
    dir.prepare()?;
    let listener = serve::listen(SocketAddr::new(flags.bind_address, flags.port)).await?;
    let keys = Pki::at(dir.pki(), SystemTime::now());
    let reachable = serve::reachable(flags.bind_address);
    keys.ensure(&ServerNames::new(pki::hostname().as_deref(), &[reachable]))?;
    let region = Arc::new(Hollow);
    let manner = Manner {
        pace: flags.pace,
        throttle: flags.throttle,
        token_lifetime: None,
    };
    let (cloud, origin) = open(&dir, listener, manner, region).await?;
    tracing::info!(
        origin,
        "the cloud is open; `eval \"$(kyanite az-env)\"` makes az use it"
    );
    cloud.run(serve::told_to_stop()).await;
    Ok(())
}

/// How a cloud behaves.
pub(super) struct Manner {
    /// How long operations take.
    pub(super) pace: f64,
    /// Whether requests beyond the real buckets are refused.
    pub(super) throttle: bool,
    /// How long tokens of managed identities are good.
    pub(super) token_lifetime: Option<Duration>,
}

/// Opens the cloud of a data directory whose keys are there, and writes az's files; gives where it is reached.
pub(super) async fn open(
    dir: &DataDir,
    listener: TcpListener,
    manner: Manner,
    region: Arc<dyn Region>,
) -> Result<(::cloud::Cloud, String)> {
    let address = listener
        .local_addr()
        .map_err(|e| Failure::new(Code::Failure, format!("the port is unknown: {e}")))?;
    let keys = Pki::at(dir.pki(), SystemTime::now());
    let pair = keys.server();
    let reachable = serve::reachable(address.ip());
    let host = if reachable.is_loopback() {
        "localhost".to_owned()
    } else {
        reachable.to_string()
    };
    let origin = format!("https://{host}:{}", address.port());
    let config = Config {
        directory: dir.path().join("cloud"),
        certificate: KeyPairFiles {
            certificate: pair.cert,
            key: pair.key,
        },
        origin: origin.clone(),
        pace: manner.pace,
        issuers: Vec::new(),
        throttle: manner.throttle,
        token_lifetime: manner.token_lifetime,
        clock: Clock::system(),
        region,
    };
    let cloud = ::cloud::Cloud::build(config, listener).await?;
    write_setup(dir, &origin, &keys, cloud.credentials())?;
    Ok((cloud, origin))
}

/// Writes az's files, and what `az-env` needs.
fn write_setup(dir: &DataDir, origin: &str, keys: &Pki, credentials: &Credentials) -> Result<()> {
    let setup = ::cloud::az::Setup {
        origin: origin.to_owned(),
        authority: keys.authority(Authority::Cluster).cert,
        directory: az_directory(dir),
        credentials: credentials.clone(),
    };
    make_private(&setup.directory)?;
    for (name, content) in setup.files() {
        write_private(&setup.directory.join(name), content.as_bytes())?;
    }
    let known = json!({"exports": setup.exports(), "origin": origin, "credentials": credentials});
    write_private(&known_file(dir), known.to_string().as_bytes())
}

/// Prints the lines that make az use this cloud.
pub(super) fn az_env(place: &Place, printer: &Printer) -> Result<()> {
    let dir = DataDir::find(place)?;
    let path = known_file(&dir);
    let text = std::fs::read_to_string(&path).map_err(|_| {
        let hint = "start one with `kyanite up`, or name its data directory with --data-dir";
        Failure::new(Code::Unavailable, "no cloud has run in this data directory").hint(hint)
    })?;
    let known: serde_json::Value = serde_json::from_str(&text).map_err(|e| {
        Failure::new(
            Code::Failure,
            format!("`{}` cannot be read: {e}", path.display()),
        )
    })?;
    let exports = known["exports"].as_str().unwrap_or_default().trim_end();
    printer.result(exports, &known);
    Ok(())
}

impl From<::cloud::Error> for Failure {
    fn from(error: ::cloud::Error) -> Failure {
        match error {
            ::cloud::Error::Books(::cloud::BooksError::Store(error)) => error.into(),
            other => Failure::new(Code::Failure, other.to_string()),
        }
    }
}
