#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::csr::testing::{Wish, tampered};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa};
use x509_parser::extensions::GeneralName;

const NOW: &str = "2026-01-01T00:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A CA of this key, PEM.
fn ca(name: &str, key: &KeyPair) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.self_signed(key).unwrap().pem()
}

fn authority() -> (Authority, Vec<u8>) {
    let key = KeyPair::generate().unwrap();
    let cert = ca("the authority", &key);
    let der = CertificateDer::from_pem_slice(cert.as_bytes())
        .unwrap()
        .to_vec();
    let authority = Authority::from_pem(cert.as_bytes(), &key.serialize_pem()).unwrap();
    (authority, der)
}

fn sign(authority: &Authority, wish: &Wish, usages: &[&str]) -> Result<Vec<u8>, String> {
    let request = Request::parse(wish.pem().as_bytes()).unwrap();
    let usages: Vec<String> = usages.iter().map(|u| (*u).to_owned()).collect();
    let life = authority.life(Some(3600), Duration::from_secs(86400), at(NOW))?;
    let pem = authority.sign(&request, &usages, life, [0xff; 16])?;
    Ok(CertificateDer::from_pem_slice(pem.as_bytes())
        .unwrap()
        .to_vec())
}

#[test]
fn a_certificate_is_what_was_asked_for_and_signed_by_the_authority() {
    let (authority, ca) = authority();
    let wish = Wish::of("jané")
        .organisations(&["ops", "dev"])
        .dns("a.example")
        .email("j@a.example")
        .ip("10.1.2.3")
        .uri("spiffe://x");
    let der = sign(
        &authority,
        &wish,
        &["client auth", "key encipherment", "signing"],
    )
    .unwrap();
    let (rest, certificate) = X509Certificate::from_der(&der).unwrap();
    assert!(rest.is_empty());
    let (_, issuer) = X509Certificate::from_der(&ca).unwrap();
    certificate
        .verify_signature(Some(issuer.public_key()))
        .unwrap();
    assert_eq!(certificate.issuer(), issuer.subject());
    let groups: Vec<&str> = certificate
        .subject()
        .iter_organization()
        .map(|o| o.as_str().unwrap())
        .collect();
    assert_eq!(groups, ["dev", "ops"]);
    let names: Vec<&str> = certificate
        .subject()
        .iter_common_name()
        .map(|o| o.as_str().unwrap())
        .collect();
    assert_eq!(names, ["jané"]);
    assert!(!certificate.is_ca());
    let usage = certificate.key_usage().unwrap().unwrap();
    assert!(usage.critical && usage.value.digital_signature() && usage.value.key_encipherment());
    assert!(!usage.value.key_cert_sign());
    let purposes = certificate.extended_key_usage().unwrap().unwrap().value;
    assert!(purposes.client_auth && !purposes.server_auth && !purposes.any);
    let sans = certificate.subject_alternative_name().unwrap().unwrap();
    assert_eq!(
        sans.value.general_names,
        [
            GeneralName::DNSName("a.example"),
            GeneralName::RFC822Name("j@a.example"),
            GeneralName::IPAddress(&[10, 1, 2, 3]),
            GeneralName::URI("spiffe://x"),
        ]
    );
    assert!(!sans.critical);
    let validity = certificate.validity();
    assert_eq!(
        validity.not_before.timestamp(),
        at("2025-12-31T23:55:00Z").as_second()
    );
    assert_eq!(
        validity.not_after.timestamp(),
        at("2026-01-01T01:00:00Z").as_second()
    );
}

#[test]
fn a_request_that_was_changed_is_not_signed() {
    let (authority, _) = authority();
    let request = Request::parse(tampered(&Wish::of("jane")).as_bytes()).unwrap();
    let life = authority
        .life(None, Duration::from_secs(3600), at(NOW))
        .unwrap();
    let refused = authority.sign(&request, &["client auth".into()], life, [1; 16]);
    assert_eq!(
        refused.unwrap_err(),
        "unable to verify certificate request signature"
    );
}

#[test]
fn every_usage_of_the_api_is_known_and_no_other() {
    let (authority, _) = authority();
    let extended = EXTENDED_KEY_USAGES
        .iter()
        .flat_map(|(names, _)| names.iter());
    let all: Vec<&str> = KEY_USAGES
        .iter()
        .map(|(name, _)| name)
        .chain(extended)
        .copied()
        .collect();
    let der = sign(&authority, &Wish::of("a"), &all).unwrap();
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    let purposes = certificate.extended_key_usage().unwrap().unwrap().value;
    assert!(purposes.any && purposes.ocsp_signing && purposes.time_stamping);
    assert_eq!(purposes.other.len(), 5);
    assert!(
        certificate
            .key_usage()
            .unwrap()
            .unwrap()
            .value
            .decipher_only()
    );
    assert_eq!(
        sign(&authority, &Wish::of("a"), &["signing", "x", "y"]).unwrap_err(),
        "unrecognized usage values: [\"x\" \"y\"]"
    );
}

#[test]
fn lives_are_bounded() {
    let year = Duration::from_secs(365 * 86400);
    for (asked, most, granted) in [
        (None, year, year),
        (Some(3600), year, Duration::from_secs(3600)),
        (Some(60), year, MINIMUM),
        (Some(i32::MAX), year, year),
        (Some(-5), year, MINIMUM),
    ] {
        assert_eq!(lifetime(asked, most), granted, "{asked:?}");
    }
    let hours = |n: u64| Duration::from_secs(n * 3600);
    let end = at("2026-01-02T00:00:00Z");
    for (granted, not_after) in [
        (hours(7), "2026-01-01T07:00:00Z"),
        (hours(8), "2026-01-01T07:55:00Z"),
        (hours(48), "2026-01-02T00:00:00Z"),
    ] {
        assert_eq!(
            life(granted, end, at(NOW)).unwrap().not_after,
            at(not_after)
        );
    }
    assert!(
        life(hours(1), at(NOW), at(NOW))
            .unwrap_err()
            .contains("has expired")
    );
}

#[test]
fn the_certificate_of_the_key_is_found_among_several() {
    let (old, new) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let bundle = format!("{}{}", ca("old", &old), ca("new", &new));
    let authority = Authority::from_pem(bundle.as_bytes(), &new.serialize_pem()).unwrap();
    let der = sign(&authority, &Wish::of("a"), &["client auth"]).unwrap();
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    assert_eq!(certificate.issuer().to_string(), "CN=new");
    let other = KeyPair::generate().unwrap();
    assert!(Authority::from_pem(bundle.as_bytes(), &other.serialize_pem()).is_err());
}
