#![allow(clippy::unwrap_used, reason = "tests")]

use http::HeaderMap;
use proptest::prelude::*;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose as Usage,
    IsCa, Issuer, KeyPair,
};

use super::*;
use crate::tokens::testing::at;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
}

fn date(seconds: i64) -> std::time::SystemTime {
    at(seconds).into()
}

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (params.not_before, params.not_after) = (date(-1000).into(), date(1000).into());
    let key = KeyPair::generate().unwrap();
    let der = params.self_signed(&key).unwrap().der().clone();
    Authority {
        issuer: Issuer::new(params, key),
        der,
    }
}

fn client(names: &[(DnType, &str)], usages: &[Usage]) -> CertificateParams {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    for (kind, value) in names {
        params.distinguished_name.push(kind.clone(), *value);
    }
    params.extended_key_usages = usages.to_vec();
    (params.not_before, params.not_after) = (date(-100).into(), date(100).into());
    params
}

fn jane() -> CertificateParams {
    let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
    client(
        &[
            (DnType::CommonName, "jane"),
            (DnType::OrganizationName, "dev"),
            (uid, "u-1"),
        ],
        &[Usage::ClientAuth],
    )
}

impl Authority {
    fn sign(&self, params: &CertificateParams) -> CertificateDer<'static> {
        params
            .signed_by(&KeyPair::generate().unwrap(), &self.issuer)
            .unwrap()
            .der()
            .clone()
    }

    fn trusted(&self) -> Authorities {
        Authorities::from_der(std::slice::from_ref(&self.der)).unwrap()
    }
}

#[test]
fn a_certificate_names_its_user_groups_and_uid() {
    let ca = authority("ca");
    let der = ca.sign(&jane());
    let user = ca
        .trusted()
        .authenticate(std::slice::from_ref(&der), at(0))
        .unwrap()
        .unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "u-1"));
    assert_eq!(user.groups, ["dev"]);
    let credential = &user.extra[CREDENTIAL_ID][0];
    assert_eq!(
        *credential,
        format!("X509SHA256={}", hex(&Sha256::digest(&der)))
    );
    assert_eq!(credential.len(), "X509SHA256=".len() + 64);
}

#[test]
fn a_certificate_without_usages_is_for_anything_and_one_without_name_for_nobody() {
    let ca = authority("ca");
    let plain = ca.sign(&client(&[(DnType::CommonName, "jane")], &[]));
    assert!(ca.trusted().authenticate(&[plain], at(0)).unwrap().is_ok());
    let nameless = ca.sign(&client(
        &[(DnType::OrganizationName, "system:masters")],
        &[Usage::ClientAuth],
    ));
    assert!(ca.trusted().authenticate(&[nameless], at(0)).is_none());
}

#[test]
fn what_no_authority_vouches_for_is_refused() {
    let (ca, other) = (authority("ca"), authority("ca"));
    let serving = client(&[(DnType::CommonName, "jane")], &[Usage::ServerAuth]);
    let mut critical = jane();
    let mut unknown = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
    unknown.set_criticality(true);
    critical.custom_extensions.push(unknown);
    let self_signed = jane()
        .self_signed(&KeyPair::generate().unwrap())
        .unwrap()
        .der()
        .clone();
    let cases = [
        ("another authority", other.sign(&jane()), 0, ""),
        ("self-signed", self_signed, 0, "unknown authority"),
        ("expired", ca.sign(&jane()), 101, "has expired"),
        ("not yet valid", ca.sign(&jane()), -101, "not yet valid"),
        (
            "for servers",
            ca.sign(&serving),
            0,
            "incompatible key usage",
        ),
        ("critical extension", ca.sign(&critical), 0, ""),
        ("an authority itself", ca.der.clone(), 0, ""),
        (
            "nonsense",
            CertificateDer::from(vec![0x30, 3, 1, 2, 3]),
            0,
            "",
        ),
    ];
    for (name, der, seconds, expected) in cases {
        let refused = ca
            .trusted()
            .authenticate(&[der], at(seconds))
            .unwrap()
            .unwrap_err();
        assert!(refused.0.contains(expected), "{name}: {refused}");
    }
    assert!(ca.trusted().authenticate(&[], at(0)).unwrap().is_err());
}

#[test]
fn intermediates_lead_to_an_authority_and_a_bundle_has_several() {
    let (root, other) = (authority("root"), authority("other"));
    let mut params = client(&[(DnType::CommonName, "between")], &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let between = params.signed_by(&key, &root.issuer).unwrap().der().clone();
    let own = Authority {
        issuer: Issuer::new(params, key),
        der: between.clone(),
    }
    .sign(&jane());
    let pem = |der: &CertificateDer<'_>| crate::tokens::testing::pem("CERTIFICATE", der);
    let bundle = Authorities::from_pem((pem(&other.der) + &pem(&root.der)).as_bytes()).unwrap();
    assert!(
        bundle
            .authenticate(&[own.clone(), between.clone()], at(0))
            .unwrap()
            .is_ok()
    );
    assert!(
        bundle
            .authenticate(std::slice::from_ref(&own), at(0))
            .unwrap()
            .is_err()
    );
    assert!(
        other
            .trusted()
            .authenticate(&[own, between], at(0))
            .unwrap()
            .is_err()
    );
    assert_eq!(Authorities::from_pem(b"").unwrap_err(), BundleError::Empty);
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, http::HeaderValue::from_static(value));
    }
    headers
}

fn proxy_headers() -> HeaderMap {
    headers(&[
        ("x-remote-user", "jane"),
        ("x-remote-uid", "u-1"),
        ("x-remote-group", "dev"),
        ("x-remote-group", ""),
        ("x-remote-group", "ops"),
        ("x-remote-extra-acme.com%2fproject", "p1"),
        ("x-remote-extra-scopes%zz", "s"),
        ("accept", "*/*"),
    ])
}

#[test]
fn a_proxy_vouches_for_users_by_headers() {
    let ca = authority("front-proxy-ca");
    let own = ca.sign(&client(
        &[(DnType::CommonName, "front-proxy-client")],
        &[Usage::ClientAuth],
    ));
    let proxies = RequestHeader::standard(ca.trusted(), vec!["front-proxy-client".into()]);
    let mut headers = proxy_headers();
    let user = proxies
        .authenticate(std::slice::from_ref(&own), &headers, at(0))
        .unwrap()
        .unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "u-1"));
    assert_eq!(user.groups, ["dev", "ops"]);
    assert_eq!(user.extra["acme.com/project"], ["p1"]);
    assert_eq!(user.extra["scopes%zz"], ["s"]);
    proxies.clear(&mut headers);
    let left: Vec<_> = headers.keys().map(|name| name.as_str()).collect();
    assert_eq!(left, ["accept"]);
    assert!(proxies.authenticate(&[own], &headers, at(0)).is_none());
}

#[test]
fn nobody_else_may_write_those_headers() {
    let (ca, clients) = (authority("front-proxy-ca"), authority("ca"));
    let proxy = |authority: &Authority, name| {
        authority.sign(&client(&[(DnType::CommonName, name)], &[Usage::ClientAuth]))
    };
    let proxies = RequestHeader::standard(ca.trusted(), vec!["front-proxy-client".into()]);
    let refused = |der: CertificateDer<'static>| {
        proxies
            .authenticate(&[der], &proxy_headers(), at(0))
            .unwrap()
            .unwrap_err()
            .0
    };
    assert!(refused(proxy(&clients, "front-proxy-client")).contains("verifying certificate"));
    assert_eq!(
        refused(proxy(&ca, "someone")),
        "x509: subject with cn=someone is not in the allowed list"
    );
    assert!(proxies.authenticate(&[], &proxy_headers(), at(0)).is_none());
    let anyone = RequestHeader::standard(ca.trusted(), vec![]);
    assert!(
        anyone
            .authenticate(&[proxy(&ca, "someone")], &proxy_headers(), at(0))
            .unwrap()
            .is_ok()
    );
}

proptest! {
    #[test]
    fn random_certificates_are_refused_without_panic(bytes in any::<Vec<u8>>()) {
        let trusted = authority("ca").trusted();
        prop_assert!(trusted.authenticate(&[CertificateDer::from(bytes)], at(0)).unwrap().is_err());
    }
}
