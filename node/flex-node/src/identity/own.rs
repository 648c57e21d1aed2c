//! A machine that connects itself, where Azure's agent is not installed: it leaves the public half of a key with its resource, and
//! signs with the other half when it asks Entra for tokens, which is what that agent does.

use std::io;
use std::path::{Path, PathBuf};

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{KeyPair as _, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};

use super::private;

/// What a machine knows of its own identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The machine's resource.
    pub machine: String,
    /// The tenant.
    pub tenant: String,
    /// The application id of its identity.
    pub client: String,
    /// The object id of its identity.
    pub principal: String,
}

/// Where it is kept: root's alone.
#[derive(Debug, Clone)]
pub struct Keys(pub PathBuf);

impl Keys {
    /// The key and the certificate that says whose it is, PEM.
    pub fn pem(&self) -> PathBuf {
        self.0.join("arc.pem")
    }

    fn known(&self) -> PathBuf {
        self.0.join("arc.json")
    }

    /// What was learnt when the machine was connected.
    pub fn read(&self) -> Option<Known> {
        let text = std::fs::read_to_string(self.known()).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Keeps it.
    pub(super) fn write(&self, known: &Known) -> io::Result<()> {
        let text = serde_json::to_string(known).expect("it has string keys only");
        private::write(&self.known(), text.as_bytes())
    }

    /// The public half, as the resource has it; nothing where there is no key.
    pub(super) fn public(&self) -> Option<String> {
        let pem = std::fs::read(self.pem()).ok()?;
        let PrivateKeyDer::Pkcs8(key) = PrivateKeyDer::from_pem_slice(&pem).ok()? else {
            return None;
        };
        let pair = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).ok()?;
        Some(STANDARD.encode(pair.public_key().as_ref()))
    }

    /// The public half of the key that is there, or of a new one.
    pub(super) fn ensure(&self, machine: &str) -> Result<String, String> {
        if let Some(public) = self.public() {
            return Ok(public);
        }
        let pem = new_key(machine)?;
        let file = self.pem();
        private::write(&file, pem.as_bytes())
            .map_err(|e| format!("`{}` cannot be written: {e}", file.display()))?;
        let unreadable = || format!("`{}` cannot be read again", file.display());
        self.public().ok_or_else(unreadable)
    }

    /// Forgets everything.
    pub(super) fn remove(&self) {
        for file in [self.known(), self.pem()] {
            // One that stays is found in the directory, which then is said to be left.
            let _ = std::fs::remove_file(file);
        }
    }
}

fn new_key(machine: &str) -> Result<String, String> {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).map_err(|e| e.to_string())?;
    let der: Pkcs8V1Der<'_> = pair.as_der().map_err(|e| e.to_string())?;
    let key = rcgen::KeyPair::try_from(&PrivatePkcs8KeyDer::from(der.as_ref()));
    let key = key.map_err(|e| e.to_string())?;
    let mut params = rcgen::CertificateParams::default();
    let name = Path::new(machine).file_name().unwrap_or_default();
    params.distinguished_name.push(
        rcgen::DnType::CommonName,
        name.to_string_lossy().into_owned(),
    );
    let certificate = params.self_signed(&key).map_err(|e| e.to_string())?;
    Ok(format!("{}{}", certificate.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_key_is_made_once_and_is_roots_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys(dir.path().join("state"));
        assert_eq!(keys.public(), None);
        let public = keys.ensure("/x/machines/edge").unwrap();
        assert_eq!(keys.ensure("/x/machines/edge").unwrap(), public);
        let mode = std::fs::metadata(keys.pem()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        keys.remove();
        assert_eq!(keys.public(), None);
    }
}
