//! Certificates of a cluster, made at its first start: a CA, the server's, the admin's.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::datadir::write_private;
use crate::exit::{Code, Failure, Result};

/// Certificates live a year, the CA ten; both start a little in the past, for clocks that disagree.
const LEAF_DAYS: i64 = 365;
const CA_DAYS: i64 = 3650;

/// A certificate and its key on disk.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Pair {
    fn at(dir: &Path, name: &str) -> Pair {
        Pair {
            cert: dir.join(format!("{name}.crt")),
            key: dir.join(format!("{name}.key")),
        }
    }

    fn exists(&self) -> bool {
        self.cert.exists() && self.key.exists()
    }

    fn write(&self, cert: &str, key: &str) -> Result<()> {
        write_private(&self.key, key.as_bytes())?;
        write_private(&self.cert, cert.as_bytes())
    }
}

/// The certificates of a data directory.
#[derive(Debug)]
pub(crate) struct Pki {
    pub(crate) ca: Pair,
    pub(crate) server: Pair,
    pub(crate) admin: Pair,
}

impl Pki {
    /// Uses the certificates of a directory, making those that are missing. The serving certificate
    /// is made anew when it does not cover `addresses`.
    pub(crate) fn ensure(dir: &Path, addresses: &[IpAddr]) -> Result<Pki> {
        let pki = Pki {
            ca: Pair::at(dir, "ca"),
            server: Pair::at(dir, "apiserver"),
            admin: Pair::at(dir, "admin"),
        };
        if !pki.ca.exists() {
            let key = new_key()?;
            let cert = ca_params().self_signed(&key).map_err(cannot_make)?;
            pki.ca.write(&cert.pem(), &key.serialize_pem())?;
        }
        let covered = pki.server.exists() && covers(&pki.server.cert, addresses)?;
        if !covered {
            pki.issue(&pki.server, server_params(addresses)?)?;
        }
        if !pki.admin.exists() {
            pki.issue(&pki.admin, admin_params())?;
        }
        Ok(pki)
    }

    fn issue(&self, pair: &Pair, params: CertificateParams) -> Result<()> {
        let ca_key = KeyPair::from_pem(&read(&self.ca.key)?).map_err(cannot_make)?;
        let issuer =
            Issuer::from_ca_cert_pem(&read(&self.ca.cert)?, ca_key).map_err(cannot_make)?;
        let key = new_key()?;
        let cert = params.signed_by(&key, &issuer).map_err(cannot_make)?;
        pair.write(&cert.pem(), &key.serialize_pem())
    }
}

/// A self-signed serving certificate in a directory, as upstream makes one when none is given.
pub(crate) fn self_signed(dir: &Path, addresses: &[IpAddr]) -> Result<Pair> {
    std::fs::create_dir_all(dir).map_err(|e| Failure::file("create", dir, &e))?;
    let pair = Pair::at(dir, "apiserver");
    if !pair.exists() || !covers(&pair.cert, addresses)? {
        let key = new_key()?;
        let cert = server_params(addresses)?
            .self_signed(&key)
            .map_err(cannot_make)?;
        pair.write(&cert.pem(), &key.serialize_pem())?;
    }
    Ok(pair)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(path)
        .and_then(|certificates| certificates.collect())
        .map_err(|e| {
            Failure::new(
                Code::Failure,
                format!("`{}` holds no certificate: {e}", path.display()),
            )
        })
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| Failure::file("read", path, &e))
}

fn new_key() -> Result<KeyPair> {
    KeyPair::generate().map_err(cannot_make)
}

#[expect(clippy::needless_pass_by_value, reason = "the shape map_err wants")]
fn cannot_make(error: rcgen::Error) -> Failure {
    Failure::new(
        Code::Failure,
        format!("a certificate cannot be made: {error}"),
    )
}

fn params(common_name: &str, days: i64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    let now = std::time::SystemTime::now();
    let day = std::time::Duration::from_secs(86_400);
    params.not_before = (now - day / 24).into();
    params.not_after = (now + day * u32::try_from(days).unwrap_or(u32::MAX)).into();
    params
}

fn ca_params() -> CertificateParams {
    let mut params = params("kyanite", CA_DAYS);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

fn server_params(addresses: &[IpAddr]) -> Result<CertificateParams> {
    const NAMES: [&str; 5] = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    let mut params = params("kube-apiserver", LEAF_DAYS);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    for name in NAMES {
        params
            .subject_alt_names
            .push(SanType::DnsName(name.try_into().map_err(cannot_make)?));
    }
    params
        .subject_alt_names
        .extend(addresses.iter().map(|ip| SanType::IpAddress(*ip)));
    Ok(params)
}

fn admin_params() -> CertificateParams {
    let mut params = params("kubernetes-admin", LEAF_DAYS);
    params
        .distinguished_name
        .push(DnType::OrganizationName, "system:masters");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params
}

fn covers(certificate: &Path, addresses: &[IpAddr]) -> Result<bool> {
    use x509_parser::extensions::GeneralName;
    use x509_parser::prelude::{FromDer as _, X509Certificate};
    let chain = certificates(certificate)?;
    let Some((_, parsed)) = chain
        .first()
        .and_then(|der| X509Certificate::from_der(der).ok())
    else {
        return Ok(false);
    };
    let Ok(Some(names)) = parsed.subject_alternative_name() else {
        return Ok(false);
    };
    let has = |ip: &IpAddr| {
        let octets = match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        names
            .value
            .general_names
            .iter()
            .any(|name| matches!(name, GeneralName::IPAddress(bytes) if *bytes == octets))
    };
    Ok(addresses.iter().all(has))
}

/// When a certificate ends, RFC 3339.
pub(crate) fn expiry(certificate: &Path) -> Option<String> {
    use x509_parser::prelude::{FromDer as _, X509Certificate};
    let chain = certificates(certificate).ok()?;
    let (_, parsed) = X509Certificate::from_der(chain.first()?).ok()?;
    jiff::Timestamp::from_second(parsed.validity().not_after.timestamp())
        .ok()
        .map(|t| t.to_string())
}
