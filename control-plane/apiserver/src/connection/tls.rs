//! The TLS side of the front door.
//!
//! As upstream's: a client certificate is asked for, and the handshake proves only that the client
//! holds its key. Whether the certificate is good for anything is decided per request, because a bad
//! one must be answered with 401 and a sentence, not with a TLS alert.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, DistinguishedName, RootCertStore,
    ServerConfig, SignatureScheme, WantsVerifier,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::TlsAcceptor;
use wire::AnyHolder;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::settings::{Authentication, KeyPairFiles};

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file without what it should hold.
    #[error("`{}` holds no {what}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// What is wrong with it.
        cause: String,
    },
    /// A certificate and a key that do not fit each other, or that TLS cannot use.
    #[error("`{}` and its key cannot be used: {cause}", path.display())]
    Pair {
        /// The certificate's file.
        path: PathBuf,
        /// What TLS says.
        cause: rustls::Error,
    },
}

/// The current TLS configuration; connections that exist keep the one they began with.
#[derive(Debug)]
pub(crate) struct FrontDoor {
    certificate: KeyPairFiles,
    client_authorities: Vec<PathBuf>,
    current: ArcSwap<ServerConfig>,
}

impl FrontDoor {
    pub(crate) fn open(
        certificate: KeyPairFiles,
        authentication: &Authentication,
    ) -> Result<FrontDoor, Error> {
        let proxies = authentication.request_header.as_ref();
        let client_authorities: Vec<PathBuf> = authentication
            .client_ca_file
            .iter()
            .chain(proxies.map(|proxies| &proxies.client_ca_file))
            .cloned()
            .collect();
        let first = configuration(&certificate, &client_authorities)?;
        Ok(FrontDoor {
            certificate,
            client_authorities,
            current: ArcSwap::new(first),
        })
    }

    /// What new connections are accepted with.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.current.load_full())
    }

    /// Reads the files again; on failure everything stays as it is.
    pub(crate) fn reload(&self) -> Result<(), Error> {
        let next = configuration(&self.certificate, &self.client_authorities)?;
        self.current.store(next);
        Ok(())
    }

    /// The files a configuration is made of.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let KeyPairFiles { certificate, key } = &self.certificate;
        let mut files = vec![certificate.clone(), key.clone()];
        files.extend(self.client_authorities.iter().cloned());
        files
    }
}

fn configuration(
    pair: &KeyPairFiles,
    client_authorities: &[PathBuf],
) -> Result<Arc<ServerConfig>, Error> {
    let unusable = |cause| Error::Pair {
        path: pair.certificate.clone(),
        cause,
    };
    let provider = Arc::new(wire::tls::quickest_first());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(unusable)?;
    // Upstream asks for a certificate only where one could be believed.
    let builder = if client_authorities.is_empty() {
        builder.with_no_client_auth()
    } else {
        let verifier = any_holder(client_authorities, &provider)?;
        builder.with_client_cert_verifier(Arc::new(verifier))
    };
    let mut config = builder
        .with_single_cert(certificates(&pair.certificate)?, private_key(&pair.key)?)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // As Go's servers do: not every client offers the quickest suite first.
    config.ignore_client_order = true;
    Ok(Arc::new(config))
}

/// The certificates of a PEM file; at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let empty = |cause: String| Error::File {
        path: path.to_owned(),
        what: "certificate",
        cause,
    };
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(|certificates| certificates.collect())
        .map_err(|e| empty(e.to_string()))?;
    if found.is_empty() {
        return Err(empty("there is no CERTIFICATE block in it".into()));
    }
    Ok(found)
}

/// TLS towards servers of these CAs, the host's own without any, with a certificate of ours or none.
pub(crate) fn client(
    authority: Option<&Path>,
    own: Option<(&Path, &Path)>,
) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    match authority {
        Some(file) => {
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|e| Error::File {
                    path: file.to_owned(),
                    what: "usable CA",
                    cause: e.to_string(),
                })?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    with_own(client_builder().with_root_certificates(roots), own)
}

/// TLS towards servers that need not prove who they are, as upstream does to pods and services.
pub(crate) fn unverified_client(own: Option<(&Path, &Path)>) -> Result<ClientConfig, Error> {
    let verifier = Arc::new(AnyServer(
        client_builder()
            .crypto_provider()
            .signature_verification_algorithms,
    ));
    let builder = client_builder()
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    with_own(builder, own)
}

/// The same, for whoever has a certificate of one of these CAs (PEM), or of the host's own.
pub(crate) fn client_trusting(pem: Option<&[u8]>) -> Result<ClientConfig, String> {
    client_of_pem(Some(pem), None)
}

/// TLS from what is in memory: towards servers of these CAs (PEM, the host's own without any, or anybody where nothing is
/// said of CAs), with a certificate and key of ours (PEM) or none.
pub(crate) fn client_of_pem(
    trust: Option<Option<&[u8]>>,
    own: Option<(&[u8], &[u8])>,
) -> Result<ClientConfig, String> {
    let builder = match trust {
        None => client_builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer(
                client_builder()
                    .crypto_provider()
                    .signature_verification_algorithms,
            ))),
        Some(pem) => client_builder().with_root_certificates(roots(pem)?),
    };
    let Some((certificate, key)) = own else {
        return Ok(builder.with_no_client_auth());
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|error| error.to_string())?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| error.to_string())?;
    let config = builder.with_client_auth_cert(chain, key);
    config.map_err(|error| error.to_string())
}

fn roots(pem: Option<&[u8]>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match pem {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|e| e.to_string())?;
                roots.add(certificate).map_err(|e| e.to_string())?;
            }
        }
        None => {
            // What of the host's own CAs cannot be read is not believed.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(roots)
}

fn client_builder() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has suites of every version")
}

fn with_own(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    own: Option<(&Path, &Path)>,
) -> Result<ClientConfig, Error> {
    let Some((certificate, key)) = own else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates(certificate)?;
    builder
        .with_client_auth_cert(chain, private_key(key)?)
        .map_err(|cause| Error::Pair {
            path: certificate.to_owned(),
            cause,
        })
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_file(path).map_err(|e| Error::File {
        path: path.to_owned(),
        what: "private key",
        cause: e.to_string(),
    })
}

/// Believes whichever server answers, if it holds the key of its certificate.
#[derive(Debug)]
struct AnyServer(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// Clients that show a certificate, with the names of these authorities for a hint.
fn any_holder(authorities: &[PathBuf], provider: &CryptoProvider) -> Result<AnyHolder, Error> {
    let mut subjects = std::collections::BTreeSet::new();
    for path in authorities {
        for certificate in certificates(path)? {
            let (_, parsed) = X509Certificate::from_der(&certificate).map_err(|e| Error::File {
                path: path.clone(),
                what: "usable CA",
                cause: e.to_string(),
            })?;
            subjects.insert(parsed.subject().as_raw().to_vec());
        }
    }
    let hints = subjects.into_iter().map(DistinguishedName::from).collect();
    Ok(AnyHolder::new(hints, provider))
}
