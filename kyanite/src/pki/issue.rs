//! What goes into a new certificate.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, SystemTime};

use aws_lc_rs::encoding::{AsDer as _, EcPrivateKeyRfc5915Der};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PublicKeyData as _, SanType,
};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{Leaf, Usage, inspect};
use crate::exit::{Code, Failure, Result};

/// Certificates live a year, the CAs ten; all start a little in the past, for clocks that disagree.
const LEAF_DAYS: u32 = 365;
const CA_DAYS: u32 = 3650;
const DAY: Duration = Duration::from_secs(86_400);
const SLACK: Duration = Duration::from_secs(3600);

/// The names every API server answers to.
const SERVICE_NAMES: [&str; 6] = [
    "localhost",
    // The cloud's vaults are known by their hosts.
    "*.vault.localhost",
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

/// A secret of 32 bytes, in base64.
pub(super) fn new_secret() -> Result<String> {
    let mut secret = [0; 32];
    aws_lc_rs::rand::fill(&mut secret)
        .map_err(|_| Failure::new(Code::Failure, "this machine gives no random numbers"))?;
    Ok(base64::engine::general_purpose::STANDARD.encode(secret))
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

/// A client's private key as every client reads it. Java's fabric8 takes elliptic keys in their older form only, SEC1
/// ("EC PRIVATE KEY"), which all others read as well; other keys are passed on as they are.
pub(crate) fn key_for_clients(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::file("read", path, &e))?;
    Ok(sec1(&text).unwrap_or(text))
}

fn sec1(pem: &str) -> Option<String> {
    let PrivateKeyDer::Pkcs8(key) = PrivateKeyDer::from_pem_slice(pem.as_bytes()).ok()? else {
        return None;
    };
    let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, key.secret_pkcs8_der()).ok()?;
    let older: EcPrivateKeyRfc5915Der<'static> = pair.private_key().as_der().ok()?;
    Some(inspect::pem_block("EC PRIVATE KEY", older.as_ref()))
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

/// The certificate of a node's kubelet. It lives as long as a CA: the node is made with it, once.
pub(super) fn kubelet(node: &str, address: IpAddr, now: SystemTime) -> Result<CertificateParams> {
    let names = ServerNames {
        dns: vec![node.to_owned()],
        addresses: vec![address],
    };
    let mut params = params(node, CA_DAYS, now);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.subject_alt_names = alternative_names(&names)?;
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
    fn elliptic_keys_are_given_to_clients_in_the_older_form_and_others_as_they_are() {
        let key = new_key().expect("a key");
        let older = sec1(&key.serialize_pem()).expect("an elliptic key");
        assert!(older.starts_with("-----BEGIN EC PRIVATE KEY-----\n"));
        let Ok(PrivateKeyDer::Sec1(der)) = PrivateKeyDer::from_pem_slice(older.as_bytes()) else {
            panic!("no SEC1 key: {older}");
        };
        // It names its curve (prime256v1), without which most programs cannot read it, and holds the same secret.
        let curve = [0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
        let der = der.secret_sec1_der();
        assert!(der.windows(curve.len()).any(|bytes| bytes == curve));
        let newer = key.serialize_der();
        assert!(newer.windows(32).any(|bytes| bytes == &der[7..39]));
        assert_eq!(sec1(&older), None);
        let edwards = KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        assert_eq!(sec1(&edwards.serialize_pem()), None);
    }

    #[test]
    fn names_are_kept_once_and_told_apart_from_addresses() {
        let own = IpAddr::from([10, 0, 0, 1]);
        let names = ServerNames::new(Some("box"), &[own, IpAddr::from([127, 0, 0, 1])]);
        let all: Vec<String> = names.all().collect();
        assert_eq!(
            all,
            [
                "localhost",
                "*.vault.localhost",
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
