//! Throwaway keys that both sides' programs are started with.

use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use aws_lc_rs::encoding::{AsDer as _, EcPrivateKeyRfc5915Der};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};

/// Who gets a client certificate: file name, user name, group.
const CLIENTS: [(&str, &str, Option<&str>); 3] = [
    ("admin", "interop", Some("system:masters")),
    ("controller-manager", "system:kube-controller-manager", None),
    ("scheduler", "system:kube-scheduler", None),
];

/// A directory of keys and certificates.
pub(crate) struct Pki(PathBuf);

impl Pki {
    /// Makes everything a control plane is started with.
    pub(crate) fn make(dir: PathBuf) -> Result<Pki> {
        fs::create_dir_all(&dir)?;
        let pki = Pki(dir);
        let ca = authority("interop-ca", &pki, "ca")?;
        authority("interop-front-proxy-ca", &pki, "front-proxy-ca")?;
        pki.issue("server", server(), &ca)?;
        for (file, user, group) in CLIENTS {
            pki.issue(file, client(user, group), &ca)?;
        }
        let accounts = KeyPair::generate()?;
        pki.write("accounts.key", &accounts.serialize_pem())?;
        pki.write("accounts.pub", &accounts.public_key_pem())?;
        Ok(pki)
    }

    /// The path of one file.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a kubeconfig for one of the clients and gives its path.
    pub(crate) fn kubeconfig(&self, client: &str, port: u16) -> Result<PathBuf> {
        let certificate = self.encoded(&format!("{client}.crt"))?;
        let key = self.encoded(&format!("{client}.key"))?;
        let user = format!("client-certificate-data: {certificate}, client-key-data: {key}");
        self.write_kubeconfig(client, port, &user)
    }

    /// Writes a kubeconfig that presents a token.
    pub(crate) fn token_kubeconfig(&self, name: &str, port: u16, token: &str) -> Result<PathBuf> {
        self.write_kubeconfig(name, port, &format!("token: {token}"))
    }

    fn write_kubeconfig(&self, name: &str, port: u16, user: &str) -> Result<PathBuf> {
        let ca = self.encoded("ca.crt")?;
        let file = format!("{name}.kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:{port}', certificate-authority-data: {ca}}}}}]\n\
             users: [{{name: c, user: {{{user}}}}}]\n"
        );
        self.write(&file, &text)?;
        Ok(self.file(&file))
    }

    fn issue(
        &self,
        file: &str,
        params: CertificateParams,
        ca: &CertifiedIssuer<'_, KeyPair>,
    ) -> Result<()> {
        let key = KeyPair::generate()?;
        self.write(&format!("{file}.crt"), &params.signed_by(&key, ca)?.pem())?;
        self.write(&format!("{file}.key"), &older_form(&key)?)
    }

    fn encoded(&self, name: &str) -> Result<String> {
        Ok(STANDARD.encode(fs::read(self.file(name))?))
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        write_private(&self.file(name), text)
    }
}

// SEC1: Java's clients read no others of this curve.
fn older_form(key: &KeyPair) -> Result<String> {
    let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, key.serialized_der())?;
    let older: EcPrivateKeyRfc5915Der<'static> = pair.private_key().as_der()?;
    Ok(der::pem("EC PRIVATE KEY", older.as_ref()))
}

/// Writes a file that only this user can read.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    let mut file = fs::OpenOptions::new();
    let mut file = file
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}

fn authority(name: &str, pki: &Pki, file: &str) -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = named(name, None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    let key = KeyPair::generate()?;
    pki.write(&format!("{file}.key"), &key.serialize_pem())?;
    let ca = CertifiedIssuer::self_signed(params, key)?;
    pki.write(&format!("{file}.crt"), &ca.pem())?;
    Ok(ca)
}

fn server() -> CertificateParams {
    let mut params = named("kube-apiserver", None);
    params.subject_alt_names = vec![SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn client(user: &str, group: Option<&str>) -> CertificateParams {
    let mut params = named(user, group);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn named(name: &str, group: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(group) = group {
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
    }
    params
}
