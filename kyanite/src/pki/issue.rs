//! What goes into a new certificate.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PublicKeyData as _, SanType,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{Leaf, Usage};
use crate::exit::{Code, Failure, Result};

/// Certificates live a year, the CAs ten; all start a little in the past, for clocks that disagree.
const LEAF_DAYS: u32 = 365;
const CA_DAYS: u32 = 3650;
const DAY: Duration = Duration::from_secs(86_400);
const SLACK: Duration = Duration::from_secs(3600);

/// The names every API server answers to.
const SERVICE_NAMES: [&str; 5] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// What the serving certificate must cover.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerNames {
    dns: Vec<String>,
    addresses: Vec<IpAddr>,
}

impl ServerNames {
    /// The usual names and loopback, and what is special about this machine and cluster.
    pub(crate) fn new(hostname: Option<&str>, addresses: &[IpAddr]) -> ServerNames {
        let loopback = [
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ];
        let mut names = ServerNames::default();
        for name in SERVICE_NAMES.into_iter().chain(hostname) {
            names.add(name);
        }
        for address in loopback.iter().chain(addresses) {
            names.add(&address.to_string());
        }
        names
    }

    /// Names as `certs list` shows them.
    pub(crate) fn of(names: &[String]) -> ServerNames {
        let mut all = ServerNames::default();
        names.iter().for_each(|name| all.add(name));
        all
    }

    fn add(&mut self, name: &str) {
        match name.parse::<IpAddr>() {
            Ok(ip) if !self.addresses.contains(&ip) => self.addresses.push(ip),
            Ok(_) => {}
            Err(_) if !self.dns.iter().any(|n| n == name) => self.dns.push(name.to_owned()),
            Err(_) => {}
        }
    }

    /// Every name and address as text.
    pub(crate) fn all(&self) -> impl Iterator<Item = String> {
        let addresses = self.addresses.iter().map(IpAddr::to_string);
        self.dns.iter().cloned().chain(addresses)
    }
}

/// The name of this machine, where it is one that a certificate can carry.
pub(crate) fn hostname() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = text.trim().to_ascii_lowercase();
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    (!name.is_empty() && name.len() <= 253 && name.chars().all(legal)).then_some(name)
}

/// A new private key.
pub(super) fn new_key() -> Result<KeyPair> {
    KeyPair::generate().map_err(cannot_make)
}

/// The private key of a file.
pub(super) fn key_of(path: &Path) -> Result<KeyPair> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::file("read", path, &e))?;
    KeyPair::from_pem(&text).map_err(|e| {
        Failure::new(
            Code::Failure,
            format!("`{}` holds no usable private key: {e}", path.display()),
        )
    })
}

/// Whether a certificate is for this key.
pub(super) fn fits(certificate: &[u8], key: &KeyPair) -> bool {
    X509Certificate::from_der(certificate)
        .is_ok_and(|(_, cert)| cert.public_key().raw == key.subject_public_key_info())
}

#[expect(clippy::needless_pass_by_value, reason = "the shape map_err wants")]
pub(super) fn cannot_make(error: rcgen::Error) -> Failure {
    Failure::new(
        Code::Failure,
        format!("a certificate cannot be made: {error}"),
    )
}

fn params(common_name: &str, days: u32, now: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params.not_before = (now - SLACK).into();
    params.not_after = (now + DAY * days).into();
    params
}

/// A CA. Its name carries the time, so that two CAs of one cluster are told apart.
pub(super) fn authority(common_name: &str, now: SystemTime) -> CertificateParams {
    let since_epoch = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let name = format!("{common_name}@{}", since_epoch.as_secs());
    let mut params = params(&name, CA_DAYS, now);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

/// A server's or client's certificate.
pub(super) fn leaf(leaf: &Leaf, names: &ServerNames, now: SystemTime) -> Result<CertificateParams> {
    let mut params = params(leaf.common_name, LEAF_DAYS, now);
    if let Some(organization) = leaf.organization {
        params
            .distinguished_name
            .push(DnType::OrganizationName, organization);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    match leaf.usage {
        Usage::Client => params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
        Usage::Server => {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            params.subject_alt_names = alternative_names(names)?;
        }
    }
    Ok(params)
}

fn alternative_names(names: &ServerNames) -> Result<Vec<SanType>> {
    let dns = names.dns.iter().map(|name| {
        let name = name.as_str().try_into().map_err(cannot_make)?;
        Ok(SanType::DnsName(name))
    });
    let addresses = names.addresses.iter().map(|ip| Ok(SanType::IpAddress(*ip)));
    dns.chain(addresses).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_once_and_told_apart_from_addresses() {
        let own = IpAddr::from([10, 0, 0, 1]);
        let names = ServerNames::new(Some("box"), &[own, IpAddr::from([127, 0, 0, 1])]);
        let all: Vec<String> = names.all().collect();
        assert_eq!(
            all,
            [
                "localhost",
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "kubernetes.default.svc.cluster.local",
                "box",
                "127.0.0.1",
                "::1",
                "10.0.0.1"
            ]
        );
        assert_eq!(ServerNames::of(&all).all().collect::<Vec<_>>(), all);
    }
}
