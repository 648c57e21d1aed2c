//! Throw-away certificates.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

/// Names that every certificate has: tests talk over loopback.
const LOOPBACK: [&str; 2] = ["localhost", "127.0.0.1"];

/// An authority of a test's own.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate.
    pub cert: String,
    /// Its key.
    pub key: String,
}

impl Authority {
    /// Makes one.
    pub fn new(common_name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let issuer = CertifiedIssuer::self_signed(params, new_key());
        Authority {
            issuer: issuer.expect("an authority signs itself"),
        }
    }

    /// Its certificate, as PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Its key, as PEM.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A certificate for a server and a client on loopback, with further names, of somebody in these groups.
    pub fn issue(&self, common_name: &str, groups: &[&str], names: &[&str]) -> Identity {
        let all = LOOPBACK.iter().chain(names).map(ToString::to_string);
        let mut params = CertificateParams::new(all.collect::<Vec<_>>()).expect("legal names");
        let subject = &mut params.distinguished_name;
        subject.push(DnType::CommonName, common_name);
        for group in groups {
            subject.push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = new_key();
        let signed = params.signed_by(&key, &self.issuer);
        Identity {
            cert: signed.expect("the authority signs").pem(),
            key: key.serialize_pem(),
        }
    }
}

impl Identity {
    /// Writes both: `NAME.crt` and `NAME.key`.
    pub fn write(&self, dir: &Path, name: &str) -> (PathBuf, PathBuf) {
        let (cert, key) = (
            dir.join(format!("{name}.crt")),
            dir.join(format!("{name}.key")),
        );
        std::fs::write(&cert, &self.cert).expect("the directory is the test's");
        std::fs::write(&key, &self.key).expect("the directory is the test's");
        (cert, key)
    }
}

/// An authority and one certificate of it, as files.
#[derive(Debug, Clone)]
pub struct Pki {
    /// The authority's certificate.
    pub ca: PathBuf,
    /// A certificate for loopback and further names.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Pki {
    /// Makes both and writes them to this directory; `name` begins the files' names.
    pub fn new(dir: &Path, name: &str, names: &[&str]) -> Pki {
        let authority = Authority::new(name);
        let ca = dir.join(format!("{name}-ca.crt"));
        std::fs::write(&ca, authority.pem()).expect("the directory is the test's");
        let (cert, key) = authority.issue(name, &[], names).write(dir, name);
        Pki { ca, cert, key }
    }
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("a key can be made")
}
