//! Certificates and keys from files, read anew when they change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::any_holder::AnyHolder;

/// What a server shows, and whom it lets in.
#[derive(Debug, Clone)]
pub struct ServerFiles {
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// What is asked of clients.
    pub clients: Clients,
    /// The oldest protocol and the suites for it.
    pub policy: Policy,
}

/// What a server asks of its clients.
#[derive(Debug, Clone)]
pub enum Clients {
    /// Nothing.
    Anybody,
    /// A certificate of this authority.
    Of(PathBuf),
    /// A certificate, if they have one, which is judged later.
    AnyHolder,
}

impl Clients {
    fn file(&self) -> Option<&PathBuf> {
        match self {
            Clients::Of(ca) => Some(ca),
            Clients::Anybody | Clients::AnyHolder => None,
        }
    }
}

/// Which versions and suites are allowed.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Only TLS 1.3.
    pub only_13: bool,
    /// Go's names of the suites for TLS 1.2; empty allows all that are safe.
    pub suites: Vec<String>,
}

/// What a client shows, and whom it trusts.
#[derive(Debug, Clone)]
pub struct ClientFiles {
    /// The authority of the server's certificate, PEM.
    pub ca: PathBuf,
    /// A certificate and its key, where the server asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Protocol names to offer before `h2`.
    pub alpn: Vec<String>,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It cannot be read, or holds no PEM of the wanted kind.
    #[error("{path} cannot be used: {text}; check that it is a readable PEM file")]
    File {
        /// The file.
        path: PathBuf,
        /// What was found.
        text: String,
    },
    /// Certificate, key and settings do not go together.
    #[error("TLS cannot be set up with {path}: {text}")]
    Unfit {
        /// The certificate or authority.
        path: PathBuf,
        /// What TLS said.
        text: String,
    },
}

fn unreadable(path: &Path, error: impl std::fmt::Display) -> TlsError {
    TlsError::File {
        path: path.to_owned(),
        text: error.to_string(),
    }
}

fn unfit(path: &Path, error: impl std::fmt::Display) -> TlsError {
    TlsError::Unfit {
        path: path.to_owned(),
        text: error.to_string(),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(|e| unreadable(path, e))?
        .collect();
    match found {
        Ok(list) if list.is_empty() => Err(unreadable(path, "no certificate in it")),
        Ok(list) => Ok(list),
        Err(error) => Err(unreadable(path, error)),
    }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|e| unreadable(path, e))
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|e| unfit(path, e))?;
    }
    Ok(roots)
}

// Go's name of a suite is rustls' with `_WITH_` for TLS 1.2.
fn provider(policy: &Policy) -> rustls::crypto::CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    if !policy.suites.is_empty() {
        provider.cipher_suites.retain(|suite| {
            suite.tls13().is_some() || {
                let name = format!("{:?}", suite.suite());
                policy.suites.iter().any(|wanted| go_name(wanted) == name)
            }
        });
    }
    provider
}

/// The suites as Go's programs prefer them: with the shorter key first, which takes a quarter less time for much
/// data and is as safe.
pub fn quickest_first() -> rustls::crypto::CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    let quickest = rustls::CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != quickest);
    provider
}

// Go leaves the hash out where ChaCha20 makes it obvious.
fn go_name(name: &str) -> String {
    match name.strip_suffix("_CHACHA20_POLY1305") {
        Some(start) => format!("{start}_CHACHA20_POLY1305_SHA256"),
        None => name.to_owned(),
    }
}

/// Whether Go's name of a suite is one we have.
pub fn knows_suite(name: &str) -> bool {
    aws_lc_rs::ALL_CIPHER_SUITES
        .iter()
        .any(|suite| format!("{:?}", suite.suite()) == go_name(name))
}

const ONLY_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

impl ServerFiles {
    fn load(&self, alpn: &[u8]) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(provider(&self.policy));
        let versions = if self.policy.only_13 {
            ONLY_13
        } else {
            rustls::ALL_VERSIONS
        };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|e| unfit(&self.cert, e))?;
        let builder = match &self.clients {
            Clients::Anybody => builder.with_no_client_auth(),
            Clients::AnyHolder => {
                let holder = AnyHolder::new(Vec::new(), &provider);
                builder.with_client_cert_verifier(Arc::new(holder))
            }
            Clients::Of(ca) => {
                let roots = Arc::new(roots(ca)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                    .build()
                    .map_err(|e| unfit(ca, e))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(certificates(&self.cert)?, key(&self.key)?)
            .map_err(|e| unfit(&self.cert, e))?;
        config.alpn_protocols = vec![alpn.to_vec()];
        // A tunnel's connection is long: what resuming would save is not worth keeping.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.cert, &self.key]
            .into_iter()
            .chain(self.clients.file())
    }
}

type Stamp = Vec<Option<(SystemTime, u64)>>;

/// A server's settings that follow their files.
pub struct Reloading {
    files: ServerFiles,
    alpn: &'static [u8],
    current: Mutex<(Stamp, Arc<ServerConfig>)>,
}

impl Reloading {
    /// Reads the files for the first time; `alpn` is the protocol to offer.
    pub fn new(files: ServerFiles, alpn: &'static [u8]) -> Result<Reloading, TlsError> {
        let stamp = stamp(&files);
        let config = Arc::new(files.load(alpn)?);
        Ok(Reloading {
            files,
            alpn,
            current: Mutex::new((stamp, config)),
        })
    }

    /// The settings for the next handshake. Files that cannot be used leave the last good ones.
    pub fn current(&self) -> Arc<ServerConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamp(&self.files);
        if now != current.0 {
            current.0 = now;
            match self.files.load(self.alpn) {
                Ok(config) => current.1 = Arc::new(config),
                Err(error) => tracing::warn!(%error, "certificates keep their old state"),
            }
        }
        Arc::clone(&current.1)
    }
}

fn stamp(files: &ServerFiles) -> Stamp {
    let look = |path: &PathBuf| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.modified().ok()?, found.len()))
    };
    files.paths().map(look).collect()
}

impl ClientFiles {
    /// Reads the files; called for every connection, so that they may change.
    pub fn load(&self) -> Result<ClientConfig, TlsError> {
        let builder = ClientConfig::builder_with_provider(Arc::new(quickest_first()))
            .with_safe_default_protocol_versions()
            .map_err(|e| unfit(&self.ca, e))?
            .with_root_certificates(roots(&self.ca)?);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((cert, private)) => builder
                .with_client_auth_cert(certificates(cert)?, key(private)?)
                .map_err(|e| unfit(cert, e))?,
        };
        let offered = self.alpn.iter().map(|name| name.as_bytes().to_vec());
        config.alpn_protocols = offered.chain([b"h2".to_vec()]).collect();
        config.resumption = rustls::client::Resumption::disabled();
        Ok(config)
    }
}

/// What a handshake that takes too long is.
pub fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake took too long")
}
