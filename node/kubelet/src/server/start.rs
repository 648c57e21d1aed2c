//! All that a kubelet serves, from its settings: 10250, 10248 for health, and 10255 where somebody still wants it.

use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{Certificate, Error, Rules, Server, Settings, Sources, self_signed};
use crate::changes::Changes;
use crate::config;

/// Certificates are read again this often, if the kernel has not said before that they changed.
const RELOAD: Duration = Duration::from_secs(60);

/// Why a kubelet cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address that cannot be listened at.
    #[error(
        "cannot listen at {address}: {cause}\nhint: another kubelet may run here; `port`, `healthzPort` and `readOnlyPort` choose others"
    )]
    Listen {
        /// The address.
        address: String,
        /// Why not.
        cause: std::io::Error,
    },
    /// TLS.
    #[error(transparent)]
    Tls(#[from] Error),
}

impl Settings {
    /// What a kubelet's configuration says about its server.
    pub fn of(settings: &config::Settings) -> Settings {
        let config = &settings.config;
        let client_ca = &config.authentication.x509.client_ca_file;
        Settings {
            node: settings.node_name.clone(),
            root: settings.root_dir.clone(),
            system_logs: PathBuf::from("/var/log"),
            client_ca: (!client_ca.is_empty()).then(|| client_ca.into()),
            rules: Rules {
                anonymous: config.authentication.anonymous.enabled,
                tokens: config.authentication.webhook.enabled,
                always_allow: config.authorization.mode == "AlwaysAllow",
            },
            debugging: config.enable_debugging_handlers,
        }
    }
}

/// Serves until told to stop. `names` are what a certificate of our own making is for.
pub async fn run(
    settings: &config::Settings,
    sources: Sources,
    names: &[String],
    stop: watch::Receiver<bool>,
) -> Result<(), StartError> {
    let config = &settings.config;
    let certificate = Arc::clone(&sources.certificate);
    let server = Server::new(Settings::of(settings), sources);
    let main = listen(&config.address, config.port).await?;
    let health = listen(&config.healthz_bind_address, config.healthz_port).await?;
    let read_only = listen(&config.address, config.read_only_port).await?;
    let files = Files::of(settings);
    files.make(names)?;
    let serve = async {
        match main {
            Some(main) => Arc::clone(&server).serve(main, stop.clone()).await,
            None => Ok(()),
        }
    };
    let serve_health = async {
        if let Some(health) = health {
            Arc::clone(&server).serve_health(health, stop.clone()).await;
        }
    };
    let serve_read_only = async {
        if let Some(read_only) = read_only {
            Arc::clone(&server)
                .serve_read_only(read_only, stop.clone())
                .await;
        }
    };
    let all = async { tokio::join!(serve, serve_health, serve_read_only).0 };
    tokio::select! {
        served = all => Ok(served?),
        () = files.keep(&certificate) => Ok(()),
    }
}

// Port 0 closes a door.
async fn listen(address: &str, port: u16) -> Result<Option<TcpListener>, StartError> {
    if port == 0 {
        return Ok(None);
    }
    let failed = |cause| StartError::Listen {
        address: format!("{address}:{port}"),
        cause,
    };
    let ip: IpAddr = address
        .parse()
        .map_err(std::io::Error::other)
        .map_err(failed)?;
    let listener = TcpListener::bind(SocketAddr::new(ip, port)).await;
    listener.map(Some).map_err(failed)
}

/// Where the certificate that is shown comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    /// Whether it is made here if there is none.
    own: bool,
}

impl Files {
    fn of(settings: &config::Settings) -> Files {
        let config = &settings.config;
        let (certificate, key) = (&config.tls_cert_file, &config.tls_private_key_file);
        if !certificate.is_empty() && !key.is_empty() {
            return Files {
                certificate: certificate.into(),
                key: key.into(),
                own: false,
            };
        }
        if config.server_tls_bootstrap {
            let both = settings.cert_dir.join("kubelet-server-current.pem");
            return Files {
                certificate: both.clone(),
                key: both,
                own: false,
            };
        }
        Files {
            certificate: settings.cert_dir.join("kubelet.crt"),
            key: settings.cert_dir.join("kubelet.key"),
            own: true,
        }
    }

    fn make(&self, names: &[String]) -> Result<(), Error> {
        if !self.own || (self.certificate.exists() && self.key.exists()) {
            return Ok(());
        }
        let (certificate, key) = self_signed(names)?;
        let written = write(&self.certificate, 0o644, &certificate)
            .and_then(|()| write(&self.key, 0o600, &key));
        if let Err(error) = written {
            tracing::error!(path = %self.certificate.display(), %error, "the serving certificate cannot be kept");
        }
        Ok(())
    }

    /// Shows what the files hold, and what they hold later. Never ends.
    async fn keep(&self, certificate: &Certificate) {
        let mut shown = None;
        loop {
            // Before the look, so that no change falls between.
            let changes = self.certificate.parent().and_then(Changes::of);
            match (fs::read(&self.certificate), fs::read(&self.key)) {
                (Ok(chain), Ok(key)) => {
                    let found = Some((chain, key));
                    if shown != found
                        && let Some((chain, key)) = &found
                    {
                        match certificate.set(chain, key) {
                            Ok(()) => shown = found,
                            Err(error) => {
                                tracing::error!(%error, "the serving certificate stays as it was")
                            }
                        }
                    }
                }
                (Err(error), _) | (_, Err(error)) => {
                    tracing::debug!(path = %self.certificate.display(), %error, "no serving certificate yet");
                }
            }
            match changes {
                Some(changes) => {
                    let _ = tokio::time::timeout(RELOAD, changes.next()).await;
                }
                None => tokio::time::sleep(RELOAD).await,
            }
        }
    }
}

fn write(path: &Path, mode: u32, text: &str) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut options = fs::OpenOptions::new();
    options.create(true).write(true).truncate(true).mode(mode);
    options.open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn a_certificate_of_our_own_is_made_once_and_shown() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files {
            certificate: dir.path().join("pki/kubelet.crt"),
            key: dir.path().join("pki/kubelet.key"),
            own: true,
        };
        files.make(&["node".to_owned()]).unwrap();
        let first = fs::read(&files.certificate).unwrap();
        let mode = fs::metadata(&files.key).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        files.make(&["node".to_owned()]).unwrap();
        assert_eq!(fs::read(&files.certificate).unwrap(), first);
        let certificate = Certificate::default();
        let shown = async {
            let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
            while !certificate.is_set() {
                assert!(tokio::time::Instant::now() < deadline, "never shown");
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = shown => {}
            () = files.keep(&certificate) => {}
        }
    }
}
