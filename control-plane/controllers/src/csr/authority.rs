//! The authority that signs: a request becomes a certificate (upstream's `PermissiveSigningPolicy`).

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{KeyPair, PublicKeyData as _, SignatureAlgorithm, SigningKey as _};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::request::{AltNames, Request, Subject};

/// Certificates start in the past, for clocks that disagree.
const BACKDATE: Duration = Duration::from_secs(5 * 60);
/// Shorter lives are not shortened by the backdating.
const SHORT: Duration = Duration::from_secs(8 * 3600);
/// The shortest life that can be asked for.
const MINIMUM: Duration = Duration::from_secs(10 * 60);

/// Bits of the key usage extension, by the names of the certificates API.
const KEY_USAGES: [(&str, u16); 10] = [
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];

const PURPOSES: [u64; 8] = [1, 3, 6, 1, 5, 5, 7, 3];

/// Extended key usages in the order they are written: names, and how the identifier ends or all of it.
const EXTENDED_KEY_USAGES: [(&[&str], Purpose); 12] = [
    (&["any"], Purpose::Other(&[2, 5, 29, 37, 0])),
    (&["server auth"], Purpose::Common(1)),
    (&["client auth"], Purpose::Common(2)),
    (&["code signing"], Purpose::Common(3)),
    (&["email protection", "s/mime"], Purpose::Common(4)),
    (&["ipsec end system"], Purpose::Common(5)),
    (&["ipsec tunnel"], Purpose::Common(6)),
    (&["ipsec user"], Purpose::Common(7)),
    (&["timestamping"], Purpose::Common(8)),
    (&["ocsp signing"], Purpose::Common(9)),
    (
        &["microsoft sgc"],
        Purpose::Other(&[1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
    ),
    (
        &["netscape sgc"],
        Purpose::Other(&[2, 16, 840, 1, 113_730, 4, 1]),
    ),
];

#[derive(Clone, Copy)]
enum Purpose {
    Common(u64),
    Other(&'static [u64]),
}

impl Purpose {
    fn oid(self) -> Vec<u8> {
        match self {
            Purpose::Common(last) => der::oid(&[&PURPOSES[..], &[last]].concat()),
            Purpose::Other(arcs) => der::oid(arcs),
        }
    }
}

/// Signature algorithms by the key that makes them; the flag says whether a NULL parameter is written.
const ALGORITHMS: [(&SignatureAlgorithm, &[u64], bool); 5] = [
    (
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &[1, 2, 840, 10045, 4, 3, 2],
        false,
    ),
    (
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &[1, 2, 840, 10045, 4, 3, 3],
        false,
    ),
    (
        &rcgen::PKCS_ECDSA_P521_SHA512,
        &[1, 2, 840, 10045, 4, 3, 4],
        false,
    ),
    (
        &rcgen::PKCS_RSA_SHA256,
        &[1, 2, 840, 113_549, 1, 1, 11],
        true,
    ),
    (&rcgen::PKCS_ED25519, &[1, 3, 101, 112], false),
];

/// A CA and its key.
pub(crate) struct Authority {
    subject: Vec<u8>,
    key_id: Option<Vec<u8>>,
    not_after: Timestamp,
    key: KeyPair,
}

/// From when to when a certificate holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

impl Authority {
    /// Reads a CA. The file may hold several certificates, as it does while one CA follows another:
    /// the one of this key signs.
    pub(crate) fn from_pem(certificates: &[u8], key: &str) -> Result<Authority, String> {
        let key = KeyPair::from_pem(key).map_err(|e| format!("the key is unusable: {e}"))?;
        for der in CertificateDer::pem_slice_iter(certificates) {
            let der = der.map_err(|e| format!("the certificate is unusable: {e}"))?;
            let (_, certificate) = X509Certificate::from_der(&der)
                .map_err(|e| format!("the certificate is unusable: {e}"))?;
            if certificate.public_key().raw == key.subject_public_key_info() {
                return Ok(Authority {
                    subject: certificate.subject().as_raw().to_vec(),
                    key_id: key_id(&certificate),
                    not_after: timestamp(certificate.validity().not_after.timestamp()),
                    key,
                });
            }
        }
        Err("no certificate of this key".into())
    }

    /// How long a certificate may live that is asked for now.
    pub(crate) fn life(
        &self,
        asked: Option<i32>,
        most: Duration,
        now: Timestamp,
    ) -> Result<Life, String> {
        life(lifetime(asked, most), self.not_after, now)
    }

    /// Signs a request, for the usages it names; gives PEM.
    pub(crate) fn sign(
        &self,
        request: &Request,
        usages: &[String],
        life: Life,
        serial: [u8; 16],
    ) -> Result<String, String> {
        if !request.is_authentic {
            return Err("unable to verify certificate request signature".into());
        }
        let algorithm = self.algorithm()?;
        let to_sign = der::sequence(&[
            der::explicit(0, &der::unsigned(&[2])),
            der::unsigned(&serial),
            algorithm.clone(),
            self.subject.clone(),
            der::sequence(&[der::time(life.not_before), der::time(life.not_after)]),
            name(&request.subject),
            request.public_key.clone(),
            der::explicit(3, &der::sequence(&self.extensions(request, usages)?)),
        ]);
        let signature = self.key.sign(&to_sign).map_err(|e| e.to_string())?;
        let certificate = der::sequence(&[to_sign, algorithm, der::bit_string(&signature)]);
        Ok(der::pem("CERTIFICATE", &certificate))
    }

    fn algorithm(&self) -> Result<Vec<u8>, String> {
        let (_, arcs, null) = ALGORITHMS
            .iter()
            .find(|(algorithm, ..)| *algorithm == self.key.algorithm())
            .ok_or("the key is of a kind that cannot sign here")?;
        let mut parts = vec![der::oid(arcs)];
        if *null {
            parts.push(der::value(0x05, &[]));
        }
        Ok(der::sequence(&parts))
    }

    // In the order Go writes them.
    fn extensions(&self, request: &Request, usages: &[String]) -> Result<Vec<Vec<u8>>, String> {
        let (bits, purposes) = usage_bits(usages)?;
        let mut all = Vec::new();
        if bits != 0 {
            all.push(extension(&[2, 5, 29, 15], true, &der::named_bits(bits)));
        }
        if !purposes.is_empty() {
            all.push(extension(&[2, 5, 29, 37], false, &der::sequence(&purposes)));
        }
        all.push(extension(&[2, 5, 29, 19], true, &der::sequence(&[])));
        if let Some(id) = &self.key_id {
            let content = der::sequence(&[der::value(0x80, id)]);
            all.push(extension(&[2, 5, 29, 35], false, &content));
        }
        let names = alt_names(&request.alt_names);
        if !names.is_empty() {
            let nameless = request.subject == Subject::default();
            all.push(extension(&[2, 5, 29, 17], nameless, &der::sequence(&names)));
        }
        Ok(all)
    }
}

fn key_id(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    let mut extensions = certificate.extensions().iter();
    extensions.find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
        _ => None,
    })
}

fn timestamp(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

fn name(subject: &Subject) -> Vec<u8> {
    let attributes = subject.attributes().map(|(id, values)| {
        let pair = |text: &String| der::sequence(&[der::oid(&id), der::text(text)]);
        der::set(values.iter().map(pair).collect())
    });
    der::sequence(&attributes.collect::<Vec<_>>())
}

fn alt_names(names: &AltNames) -> Vec<Vec<u8>> {
    let octets = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => der::value(0x87, &ip.octets()),
        IpAddr::V6(ip) => der::value(0x87, &ip.octets()),
    };
    let texts = |tag: u8, all: &[String]| -> Vec<Vec<u8>> {
        all.iter().map(|t| der::value(tag, t.as_bytes())).collect()
    };
    let mut all = texts(0x82, &names.dns);
    all.extend(texts(0x81, &names.emails));
    all.extend(names.ips.iter().map(octets));
    all.extend(texts(0x86, &names.uris));
    all
}

fn extension(id: &[u64], critical: bool, content: &[u8]) -> Vec<u8> {
    let mut parts = vec![der::oid(id)];
    if critical {
        parts.push(der::boolean_true());
    }
    parts.push(der::octets(content));
    der::sequence(&parts)
}

fn usage_bits(usages: &[String]) -> Result<(u16, Vec<Vec<u8>>), String> {
    let mut bits = 0;
    let mut unknown = Vec::new();
    for usage in usages {
        let bit = KEY_USAGES.iter().find(|(name, _)| name == usage);
        let is_extended = |(names, _): &(&[&str], Purpose)| names.contains(&usage.as_str());
        match bit {
            Some((_, bit)) => bits |= 1 << bit,
            None if EXTENDED_KEY_USAGES.iter().any(is_extended) => {}
            None => unknown.push(usage.as_str()),
        }
    }
    if !unknown.is_empty() {
        let quoted: Vec<String> = unknown.iter().map(|u| format!("{u:?}")).collect();
        return Err(format!("unrecognized usage values: [{}]", quoted.join(" ")));
    }
    let asked = |names: &[&str]| usages.iter().any(|usage| names.contains(&usage.as_str()));
    let purposes = EXTENDED_KEY_USAGES.iter();
    let purposes = purposes.filter(|(names, _)| asked(names));
    Ok((bits, purposes.map(|(_, purpose)| purpose.oid()).collect()))
}

/// The life that is granted: what was asked, between ten minutes and the most.
fn lifetime(asked: Option<i32>, most: Duration) -> Duration {
    let Some(seconds) = asked else { return most };
    let asked = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    if asked > most {
        most
    } else {
        asked.max(MINIMUM)
    }
}

fn life(lifetime: Duration, authority_ends: Timestamp, now: Timestamp) -> Result<Life, String> {
    let counted = if lifetime < SHORT {
        lifetime
    } else {
        lifetime - BACKDATE
    };
    if now >= authority_ends {
        return Err(format!("the signer has expired: NotAfter={authority_ends}"));
    }
    let not_before = now.checked_sub(BACKDATE).map_err(|e| e.to_string())?;
    let not_after = now.checked_add(counted).map_err(|e| e.to_string())?;
    Ok(Life {
        not_before,
        not_after: not_after.min(authority_ends),
    })
}

#[cfg(test)]
#[path = "authority_tests.rs"]
mod tests;
