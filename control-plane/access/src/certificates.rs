//! Client certificates: who a chain proves its holder to be.
//!
//! The TLS handshake has proved that the client holds the key; here is decided whether anybody we trust signed the
//! certificate, and for whom.

mod request_header;

use jiff::Timestamp;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use sha2::{Digest, Sha256};
use webpki::{EndEntityCert, KeyUsage};
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::{Oid, asn1_rs::oid};
use x509_parser::prelude::FromDer;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use crate::User;
use crate::tokens::{CREDENTIAL_ID, Invalid};

pub use request_header::RequestHeader;

/// Where a certificate's subject tells the uid of its user; Kubernetes' own arc.
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// Authorities that sign client certificates.
#[derive(Debug, Clone)]
pub struct Authorities {
    anchors: Vec<TrustAnchor<'static>>,
}

/// Why a bundle of authorities could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// The PEM framing is broken.
    #[error(
        "the bundle is not PEM: {0}\nhint: it must hold blocks that start with -----BEGIN CERTIFICATE-----"
    )]
    NotPem(String),
    /// A certificate that cannot be an authority.
    #[error("certificate {0} of the bundle cannot be used as an authority: {1}")]
    Unusable(usize, String),
    /// No certificate at all.
    #[error(
        "the bundle has no certificate\nhint: it must hold blocks that start with -----BEGIN CERTIFICATE-----"
    )]
    Empty,
}

impl Authorities {
    /// Reads a bundle of certificates.
    pub fn from_pem(pem: &[u8]) -> Result<Authorities, BundleError> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        Authorities::from_der(&certificates.map_err(|e| BundleError::NotPem(e.to_string()))?)
    }

    /// Takes certificates as authorities.
    pub fn from_der(certificates: &[CertificateDer<'_>]) -> Result<Authorities, BundleError> {
        let anchor = |(n, der)| match webpki::anchor_from_trusted_cert(der) {
            Ok(anchor) => Ok(anchor.to_owned()),
            Err(why) => Err(BundleError::Unusable(n + 1, why.to_string())),
        };
        let anchors: Vec<_> = certificates
            .iter()
            .enumerate()
            .map(anchor)
            .collect::<Result<_, _>>()?;
        if anchors.is_empty() {
            Err(BundleError::Empty)
        } else {
            Ok(Authorities { anchors })
        }
    }

    /// Checks that a chain, the client's own certificate first, leads to one of the authorities, is for clients and
    /// is good now.
    pub fn verify(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Result<(), Invalid> {
        let [own, intermediates @ ..] = chain else {
            return Err(Invalid::new("no client certificate was shown"));
        };
        let certificate = EndEntityCert::try_from(own).map_err(|why| refused(own, why))?;
        let since = u64::try_from(now.as_second()).unwrap_or_default();
        let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(since));
        certificate
            .verify_for_usage(
                webpki::ALL_VERIFICATION_ALGS,
                &self.anchors,
                intermediates,
                time,
                KeyUsage::client_auth(),
                None,
                None,
            )
            .map(|_| ())
            .map_err(|why| refused(own, why))
    }

    /// The user of a chain. Nothing for a good certificate without a common name: it names nobody, and other
    /// credentials of the request may.
    pub fn authenticate(
        &self,
        chain: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Option<Result<User, Invalid>> {
        match self.verify(chain, now) {
            Ok(()) => user(&chain[0]).transpose(),
            Err(why) => Some(Err(why)),
        }
    }
}

/// Says which certificate was refused, by its serial number as upstream does, and why.
fn refused(der: &CertificateDer<'_>, why: webpki::Error) -> Invalid {
    let why = match why {
        webpki::Error::UnknownIssuer => "x509: certificate signed by unknown authority".to_owned(),
        webpki::Error::CertExpired { .. } => "x509: certificate has expired".to_owned(),
        webpki::Error::CertNotValidYet { .. } => "x509: certificate is not yet valid".to_owned(),
        webpki::Error::RequiredEkuNotFoundContext(_) => {
            "x509: certificate specifies an incompatible key usage".to_owned()
        }
        other => format!("x509: {other}"),
    };
    let serial = match X509Certificate::from_der(der) {
        Ok((_, certificate)) => certificate.tbs_certificate.raw_serial_as_string(),
        Err(_) => "unreadable".to_owned(),
    };
    Invalid(format!("verifying certificate SN={serial} failed: {why}"))
}

/// The user a certificate names: common name, organizations, uid.
fn user(der: &CertificateDer<'_>) -> Result<Option<User>, Invalid> {
    let (_, certificate) =
        X509Certificate::from_der(der).map_err(|_| Invalid::new("x509: malformed certificate"))?;
    let subject = certificate.subject();
    let Some(name) = common_name(subject)?.filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let groups = subject
        .iter_organization()
        .map(text)
        .collect::<Result<_, _>>()?;
    let credential = format!("X509SHA256={}", hex(&Sha256::digest(der)));
    let extra = [(CREDENTIAL_ID.to_owned(), vec![credential])].into();
    Ok(Some(User {
        name,
        uid: uid(subject)?,
        groups,
        extra,
    }))
}

/// The common name; the last where there are several, as Go has it.
fn common_name(subject: &X509Name<'_>) -> Result<Option<String>, Invalid> {
    subject.iter_common_name().last().map(text).transpose()
}

fn uid(subject: &X509Name<'_>) -> Result<String, Invalid> {
    let uids: Vec<String> = subject
        .iter_by_oid(&UID)
        .map(text)
        .collect::<Result<_, _>>()?;
    match uids.as_slice() {
        [] => Ok(String::new()),
        [empty] if empty.is_empty() => Err(Invalid::new("UID cannot be an empty string")),
        [only] => Ok(only.clone()),
        several => Err(Invalid(format!(
            "expected 1 UID, but found multiple: {several:?}"
        ))),
    }
}

fn text(attribute: &AttributeTypeAndValue<'_>) -> Result<String, Invalid> {
    let text = attribute
        .as_str()
        .map_err(|_| Invalid::new("x509: a subject attribute is not text"))?;
    Ok(text.to_owned())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
