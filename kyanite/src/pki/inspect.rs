//! What is in a certificate.

use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::exit::{Code, Failure, Result};

/// A certificate as people want to know it.
#[derive(Debug, Clone)]
pub(crate) struct Certificate {
    pub(crate) subject: String,
    pub(crate) issuer: String,
    /// DNS names and addresses.
    pub(crate) names: Vec<String>,
    pub(crate) expires: jiff::Timestamp,
}

impl Certificate {
    fn parse(der: &[u8]) -> Option<Certificate> {
        let (_, parsed) = X509Certificate::from_der(der).ok()?;
        let names = parsed.subject_alternative_name().ok().flatten();
        let names = names.map(|names| names.value.general_names.iter().filter_map(name_of));
        Some(Certificate {
            subject: parsed.subject().to_string(),
            issuer: parsed.issuer().to_string(),
            names: names.into_iter().flatten().collect(),
            expires: jiff::Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()?,
        })
    }

    /// Whole days until it ends; negative when it has.
    pub(crate) fn days_left(&self, now: jiff::Timestamp) -> i64 {
        (self.expires.as_second() - now.as_second()).div_euclid(86_400)
    }
}

fn name_of(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let v6 = <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
            v4.or(v6).ok().map(|ip| ip.to_string())
        }
        _ => None,
    }
}

/// Every certificate of a file, as bytes.
pub(super) fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(path)
        .and_then(|certificates| certificates.collect())
        .map_err(|e| holds_none(path, &e.to_string()))
}

/// Every certificate of a file.
pub(crate) fn all(path: &Path) -> Result<Vec<Certificate>> {
    let parse = |der: &CertificateDer<'_>| {
        Certificate::parse(der).ok_or_else(|| holds_none(path, "one of them cannot be read"))
    };
    chain(path)?.iter().map(parse).collect()
}

/// The first certificate of a file.
pub(crate) fn first(path: &Path) -> Result<Certificate> {
    let first = all(path)?.into_iter().next();
    first.ok_or_else(|| holds_none(path, "there is no CERTIFICATE block in it"))
}

fn holds_none(path: &Path, cause: &str) -> Failure {
    Failure::new(
        Code::Failure,
        format!("`{}` holds no certificate: {cause}", path.display()),
    )
    .hint("make it anew with `kyanite certs rotate`")
}

/// Whether one certificate names the other as its issuer.
pub(super) fn is_issued_by(certificate: &[u8], authority: &[u8]) -> bool {
    let parsed = (
        X509Certificate::from_der(certificate),
        X509Certificate::from_der(authority),
    );
    match parsed {
        (Ok((_, own)), Ok((_, ca))) => own.issuer().as_raw() == ca.subject().as_raw(),
        _ => false,
    }
}

/// Whether a certificate has not ended at a time.
pub(super) fn is_valid_at(certificate: &[u8], time: SystemTime) -> bool {
    let since_epoch = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
    X509Certificate::from_der(certificate)
        .is_ok_and(|(_, cert)| cert.validity().not_after.timestamp() > seconds)
}

/// Certificates as PEM text.
pub(super) fn to_pem<'a>(
    certificates: impl IntoIterator<Item = &'a CertificateDer<'static>>,
) -> String {
    let blocks = certificates.into_iter();
    blocks.map(|der| pem_block("CERTIFICATE", der)).collect()
}

/// One block of PEM text.
pub(super) fn pem_block(label: &str, der: &[u8]) -> String {
    let mut text = format!("-----BEGIN {label}-----\n");
    let encoded = STANDARD.encode(der);
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = more;
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}
