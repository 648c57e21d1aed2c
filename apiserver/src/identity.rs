//! Who a client certificate speaks for: CN is the user, each O a group, as upstream reads them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::status::{ApiError, Result};
use crate::tls;
use access::User;

/// The other end of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Where it connects from.
    pub(crate) address: SocketAddr,
    /// The certificates it showed, its own first; the handshake has proved that it holds the key of
    /// that one and nothing else.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    /// What the chain was found to be worth; the same for every request until the CAs change or the
    /// certificate ends.
    found: ArcSwapOption<Found>,
}

impl Peer {
    pub(crate) fn new(address: SocketAddr, chain: Vec<CertificateDer<'static>>) -> Peer {
        Peer {
            address,
            chain,
            found: ArcSwapOption::empty(),
        }
    }
}

#[derive(Debug)]
struct Found {
    by: Arc<Authorities>,
    user: User,
    /// Unix seconds.
    not_after: i64,
}

/// The CAs of one reading of the file.
#[derive(Debug)]
struct Authorities(Option<Arc<dyn ClientCertVerifier>>);

/// The CAs whose client certificates are believed.
#[derive(Debug)]
pub(crate) struct ClientCertificates(ArcSwap<Authorities>);

impl ClientCertificates {
    pub(crate) fn open(file: Option<&Path>) -> Result<ClientCertificates, tls::Error> {
        let first = Authorities::read(file)?;
        Ok(ClientCertificates(ArcSwap::from_pointee(first)))
    }

    /// Reads the CAs again; on failure those from before stay.
    pub(crate) fn reload(&self, file: &Path) -> Result<(), tls::Error> {
        self.0.store(Arc::new(Authorities::read(Some(file))?));
        Ok(())
    }

    /// The user of a connection and how many seconds its certificate has left; `None` without one,
    /// 401 when it is not good.
    pub(crate) fn user(&self, peer: &Peer, now: UnixTime) -> Result<Option<(User, i64)>> {
        let Some((own, issuers)) = peer.chain.split_first() else {
            return Ok(None);
        };
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let current = self.0.load_full();
        if let Some(found) = &*peer.found.load()
            && Arc::ptr_eq(&found.by, &current)
            && seconds <= found.not_after
        {
            return Ok(Some((found.user.clone(), found.not_after - seconds)));
        }
        let Some(verifier) = &current.0 else {
            return Ok(None);
        };
        if let Err(error) = verifier.verify_client_cert(own, issuers, now) {
            tracing::info!(%error, from = %peer.address, "a client certificate is not believed");
            return Err(ApiError::unauthorized());
        }
        let Some((user, not_after)) = read(own) else {
            return Err(ApiError::unauthorized());
        };
        peer.found.store(Some(Arc::new(Found {
            by: current,
            user: user.clone(),
            not_after,
        })));
        Ok(Some((user, not_after - seconds)))
    }
}

impl Authorities {
    fn read(file: Option<&Path>) -> Result<Authorities, tls::Error> {
        let Some(path) = file else {
            return Ok(Authorities(None));
        };
        let unusable = |cause: String| tls::Error::File {
            path: path.to_owned(),
            what: "usable CA",
            cause,
        };
        let mut roots = RootCertStore::empty();
        for certificate in tls::certificates(path)? {
            roots
                .add(certificate)
                .map_err(|e| unusable(e.to_string()))?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|e| unusable(e.to_string()))?;
        Ok(Authorities(Some(verifier)))
    }
}

/// When the first certificate of a file ends, in Unix seconds.
pub(crate) fn expiry(file: &Path) -> Option<i64> {
    let certificates = tls::certificates(file).ok()?;
    let (_, parsed) = X509Certificate::from_der(certificates.first()?).ok()?;
    Some(parsed.validity().not_after.timestamp())
}

// The user of a certificate that has been verified, and when it ends.
fn read(certificate: &CertificateDer<'_>) -> Option<(User, i64)> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let subject = parsed.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let mut groups: Vec<String> = subject
        .iter_organization()
        .filter_map(|o| o.as_str().ok())
        .map(str::to_owned)
        .collect();
    groups.push("system:authenticated".into());
    let not_after = parsed.validity().not_after.timestamp();
    let user = User {
        name,
        groups,
        ..User::default()
    };
    Some((user, not_after))
}
