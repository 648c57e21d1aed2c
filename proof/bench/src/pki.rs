//! Throwaway certificates for a server that does not make its own.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, SigningKey,
};

/// What a client needs, as PEM; the server's share is in files.
pub(crate) struct Pki {
    pub(crate) ca: Vec<u8>,
    pub(crate) client_cert: Vec<u8>,
    pub(crate) client_key: Vec<u8>,
    /// A certificate and key of [`READER`].
    pub(crate) reader: (Vec<u8>, Vec<u8>),
}

/// A user without groups, who may do what roles say.
pub(crate) const READER: &str = "bench-reader";

impl Pki {
    /// Writes ca.crt, server.crt, server.key, client.crt, client.key, accounts.key and accounts.pub into the directory.
    pub(crate) fn make(dir: &Path) -> Result<Pki> {
        let ca = CertifiedIssuer::self_signed(authority(), KeyPair::generate()?)?;
        let (server_key, client_key) = (KeyPair::generate()?, KeyPair::generate()?);
        let server = server().signed_by(&server_key, &ca)?;
        let client = client().signed_by(&client_key, &ca)?;
        let accounts = KeyPair::generate()?;
        let files = [
            ("ca.crt", ca.pem()),
            ("server.crt", server.pem()),
            ("server.key", server_key.serialize_pem()),
            ("client.crt", client.pem()),
            ("client.key", client_key.serialize_pem()),
            ("accounts.key", accounts.serialize_pem()),
            ("accounts.pub", accounts.public_key_pem()),
        ];
        for (name, pem) in files {
            fs::write(dir.join(name), pem)?;
        }
        Ok(Pki {
            ca: ca.pem().into_bytes(),
            client_cert: client.pem().into_bytes(),
            client_key: client_key.serialize_pem().into_bytes(),
            reader: reader_of(&ca)?,
        })
    }
}

/// A certificate and key of [`READER`], signed by the CA of these PEM files.
pub(crate) fn reader(ca_cert: &Path, ca_key: &Path) -> Result<(Vec<u8>, Vec<u8>)> {
    let key = KeyPair::from_pem(&fs::read_to_string(ca_key)?)?;
    reader_of(&Issuer::from_ca_cert_pem(
        &fs::read_to_string(ca_cert)?,
        key,
    )?)
}

fn reader_of(ca: &Issuer<'_, impl SigningKey>) -> Result<(Vec<u8>, Vec<u8>)> {
    let mut params = named(READER);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    let cert = params.signed_by(&key, ca)?;
    Ok((cert.pem().into_bytes(), key.serialize_pem().into_bytes()))
}

fn authority() -> CertificateParams {
    let mut params = named("bench-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn server() -> CertificateParams {
    let mut params = named("kube-apiserver");
    params.subject_alt_names = vec![SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

// The administrators' group: exempt from priority and fairness, as our own admin is.
fn client() -> CertificateParams {
    let mut params = named("bench");
    params
        .distinguished_name
        .push(DnType::OrganizationName, "system:masters");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
