//! The other end of a connection, and whom its client certificate speaks for.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use access::User;
use access::certificates::Authorities;
use access::tokens::{Invalid, with_authenticated_group};
use arc_swap::{ArcSwap, ArcSwapOption};
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::connection::guests::Guest;
use crate::connection::tls;

/// The other end of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Where it connects from.
    pub(crate) address: SocketAddr,
    /// The certificates it showed, its own first; the handshake has proved that it holds the key of
    /// that one and nothing else.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    /// Its place among the connections.
    pub(crate) guest: Guest,
    /// What the chain was found to be worth; the same for every request until the CAs change or the
    /// certificate ends.
    found: ArcSwapOption<Found>,
}

impl Peer {
    pub(crate) fn new(
        address: SocketAddr,
        chain: Vec<CertificateDer<'static>>,
        guest: Guest,
    ) -> Peer {
        Peer {
            address,
            chain,
            guest,
            found: ArcSwapOption::empty(),
        }
    }
}

#[derive(Debug)]
struct Found {
    by: Arc<Bundle>,
    user: Arc<User>,
    /// Unix seconds.
    not_after: i64,
}

/// The CAs of one reading of the file.
#[derive(Debug)]
struct Bundle(Option<Authorities>);

/// The CAs whose client certificates are believed.
#[derive(Debug)]
pub(crate) struct ClientCertificates(ArcSwap<Bundle>);

impl ClientCertificates {
    pub(crate) fn open(file: Option<&Path>) -> Result<ClientCertificates, tls::Error> {
        Ok(ClientCertificates(ArcSwap::from_pointee(Bundle::read(
            file,
        )?)))
    }

    /// Reads the CAs again; on failure those from before stay.
    pub(crate) fn reload(&self, file: &Path) -> Result<(), tls::Error> {
        self.0.store(Arc::new(Bundle::read(Some(file))?));
        Ok(())
    }

    /// The user of a connection and how many seconds its certificate has left; nothing without one.
    pub(crate) fn user(
        &self,
        peer: &Peer,
        now: Timestamp,
    ) -> Option<Result<(Arc<User>, i64), Invalid>> {
        let own = peer.chain.first()?;
        let current = self.0.load_full();
        if let Some(found) = &*peer.found.load()
            && Arc::ptr_eq(&found.by, &current)
            && now.as_second() <= found.not_after
        {
            return Some(Ok((
                Arc::clone(&found.user),
                found.not_after - now.as_second(),
            )));
        }
        let authorities = current.0.as_ref()?;
        let user = match authorities.authenticate(&peer.chain, now)? {
            Ok(user) => Arc::new(with_authenticated_group(user)),
            Err(why) => return Some(Err(why)),
        };
        let not_after = not_after(own).unwrap_or_default();
        peer.found.store(Some(Arc::new(Found {
            by: Arc::clone(&current),
            user: Arc::clone(&user),
            not_after,
        })));
        Some(Ok((user, not_after - now.as_second())))
    }
}

impl Bundle {
    fn read(file: Option<&Path>) -> Result<Bundle, tls::Error> {
        let Some(path) = file else {
            return Ok(Bundle(None));
        };
        let unusable = |cause: String| tls::Error::File {
            path: path.to_owned(),
            what: "usable CA",
            cause,
        };
        let pem = std::fs::read(path).map_err(|e| unusable(e.to_string()))?;
        let authorities = Authorities::from_pem(&pem).map_err(|e| unusable(e.to_string()))?;
        Ok(Bundle(Some(authorities)))
    }
}

/// When the first certificate of a file ends, in Unix seconds.
pub(crate) fn expiry(file: &Path) -> Option<i64> {
    not_after(tls::certificates(file).ok()?.first()?)
}

fn not_after(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Some(parsed.validity().not_after.timestamp())
}
