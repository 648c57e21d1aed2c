//! The server's certificate, which changes while it runs, and clients' certificates, which are asked for and judged per
//! request: a bad one is answered with 401, not with a TLS alert.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use wire::AnyHolder;

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No PEM, or not what was expected in it.
    #[error("the serving certificate cannot be read: {0}")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// Certificate and key do not fit, or TLS cannot use them.
    #[error("the serving certificate and its key cannot be used: {0}")]
    Pair(#[from] rustls::Error),
    /// A certificate could not be made.
    #[error("a certificate of our own cannot be made: {0}")]
    Make(#[from] rcgen::Error),
}

/// The certificate that the server shows; without one handshakes fail, as upstream's do until theirs is signed.
#[derive(Debug, Default)]
pub struct Certificate(ArcSwapOption<CertifiedKey>);

impl Certificate {
    /// Shows this one from now on: PEM of the chain and of the key.
    pub fn set(&self, chain: &[u8], key: &[u8]) -> Result<(), Error> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(key)?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let pair = CertifiedKey::from_der(chain, key, &provider)?;
        self.0.store(Some(Arc::new(pair)));
        Ok(())
    }

    /// Whether there is one to show.
    pub fn is_set(&self) -> bool {
        self.0.load().is_some()
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.0.load_full();
        if current.is_none() {
            tracing::warn!("no serving certificate available for the kubelet");
        }
        current
    }
}

/// A certificate of the node's own making for a year, as upstream makes one without `serverTLSBootstrap`: PEM of the
/// certificate and of its key.
pub fn self_signed(names: &[String]) -> Result<(String, String), Error> {
    let key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::new(names)?;
    let first = names.first().map_or("kubelet", String::as_str);
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, format!("{first}@kubelet"));
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

pub(super) fn configuration(certificate: Arc<Certificate>) -> Result<ServerConfig, Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let holder = Arc::new(AnyHolder::new(Vec::new(), &provider));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_client_cert_verifier(holder)
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
