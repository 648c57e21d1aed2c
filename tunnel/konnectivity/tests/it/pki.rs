//! Throw-away certificates.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// An authority and a certificate for loopback, as files.
#[derive(Clone)]
pub(crate) struct Pki {
    pub(crate) ca: PathBuf,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Pki {
    pub(crate) fn new(dir: &Path, name: &str) -> Pki {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let names = ["127.0.0.1", "localhost", "konnectivity.test"];
        let names: Vec<String> = names.map(str::to_owned).to_vec();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(names)
            .unwrap()
            .signed_by(&key, &authority)
            .unwrap();
        let write = |kind: &str, text: String| {
            let path = dir.join(format!("{name}-{kind}.pem"));
            std::fs::write(&path, text).unwrap();
            path
        };
        Pki {
            ca: write("ca", authority.pem()),
            cert: write("cert", leaf.pem()),
            key: write("key", key.serialize_pem()),
        }
    }
}
