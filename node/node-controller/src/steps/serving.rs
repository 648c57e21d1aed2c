//! The kubelet's serving certificate, where the cluster gives it none.

use std::time::{Duration, SystemTime};

use ::steps::engine::{Change, Failure, Scene};
use rcgen::{CertificateParams, DnType, KeyPair, PKCS_RSA_SHA256, PublicKeyData as _, RsaKeySize};

use super::{Changes, observe};
use crate::config::Configuration;
use crate::machine::Machine;
use crate::render::kubelet::{SERVING_CERTIFICATE, SERVING_KEY, Serving, serving};

const LIFETIME: Duration = Duration::from_secs(7300 * 24 * 60 * 60);

/// A self-signed pair for the machine's name; one that fits is kept.
pub(super) fn certificate(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let machine = observe::machine(config, scene);
    if serving(config, &machine) == Serving::Rotated || fits(scene, &machine) {
        return Ok(Vec::new());
    }
    let now = SystemTime::from(scene.host.now());
    let (certificate, key) = self_signed(&machine.hostname, now).map_err(|error| {
        Failure::new(
            format!(
                "a serving certificate for `{}` cannot be made: {error}",
                machine.hostname
            ),
            "check that the host name is a DNS name (`hostnamectl`)",
        )
    })?;
    Ok(vec![
        Change::secret_file(SERVING_KEY, key),
        Change::file(SERVING_CERTIFICATE, 0o644, certificate),
    ])
}

fn self_signed(name: &str, now: SystemTime) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?;
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = now.into();
    params.not_after = (now + LIFETIME).into();
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

/// Whether the pair on disk belongs together and to this machine, and is not about to end.
fn fits(scene: &Scene<'_>, machine: &Machine) -> bool {
    let files = scene.host.files();
    let (Ok(certificate), Ok(key)) = (files.read(SERVING_CERTIFICATE), files.read(SERVING_KEY))
    else {
        return false;
    };
    let key = String::from_utf8(key)
        .ok()
        .and_then(|key| KeyPair::from_pem(&key).ok());
    let pem = x509_parser::pem::parse_x509_pem(&certificate).ok();
    let parsed = pem.as_ref().and_then(|(_, pem)| pem.parse_x509().ok());
    let (Some(key), Some(certificate)) = (key, parsed) else {
        return false;
    };
    let own = certificate.public_key().raw == key.subject_public_key_info();
    let name = certificate.subject().iter_common_name().next();
    let named = name.and_then(|name| name.as_str().ok()) == Some(machine.hostname.as_str());
    own && named && certificate.validity().not_after.timestamp() > scene.host.now().as_second()
}
