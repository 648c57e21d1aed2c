#![allow(clippy::unwrap_used, reason = "tests")]

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use serde_json::{Value, json};

use super::*;
use crate::tokens::discovery::{self, NotDiscoverable};
use crate::tokens::jwk::{key_set, parse_key_set};
use crate::tokens::testing::{EC_SEC1, RSA_PKCS8, ec_key, fresh_ec_key, pem, rsa_key};

fn spki(pair: &impl AsDer<PublicKeyX509Der<'static>>) -> Vec<u8> {
    pair.as_der().unwrap().as_ref().to_vec()
}

#[test]
fn the_key_id_is_the_hash_of_the_public_key_info() {
    let rsa = RsaKeyPair::from_pkcs8(&RSA_PKCS8).unwrap();
    let ec = EcdsaKeyPair::from_private_key_der(Curve::P256.signing(), &EC_SEC1).unwrap();
    let cases = [
        (rsa_key(), spki(rsa.public_key())),
        (ec_key(), spki(ec.public_key())),
    ];
    for (key, info) in cases {
        assert_eq!(
            key.public().id().unwrap(),
            URL_SAFE_NO_PAD.encode(Sha256::digest(info))
        );
    }
}

#[test]
fn every_form_of_a_key_gives_the_same_public_key() {
    let rsa = RsaKeyPair::from_pkcs8(&RSA_PKCS8).unwrap();
    // PKCS #8 wraps PKCS #1: version, algorithm and an octet string's head stand before it.
    let pkcs1 = &RSA_PKCS8[26..];
    let forms = [
        pem("RSA PRIVATE KEY", pkcs1),
        pem("PUBLIC KEY", &spki(rsa.public_key())),
    ];
    for form in &forms {
        assert_eq!(
            public_keys(form.as_bytes()).unwrap(),
            [rsa_key().public().clone()]
        );
    }
    assert!(SigningKey::from_pem(forms[0].as_bytes()).is_ok());
    assert_eq!(
        SigningKey::from_pem(forms[1].as_bytes()).unwrap_err(),
        KeyError::NoPrivateKey
    );
}

#[test]
fn a_file_may_hold_several_keys_certificates_and_other_blocks() {
    let certified = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let certificate = rcgen::CertificateParams::new(vec![])
        .unwrap()
        .self_signed(&certified)
        .unwrap();
    let file = [
        pem("EC PARAMETERS", &[6, 5, 43, 129, 4, 0, 34]),
        pem("EC PRIVATE KEY", &EC_SEC1),
        certificate.pem(),
        pem("PRIVATE KEY", &RSA_PKCS8),
    ];
    let found = public_keys(file.concat().as_bytes()).unwrap();
    let algorithms: Vec<_> = found.iter().map(PublicKey::algorithm).collect();
    assert_eq!(
        algorithms,
        [Algorithm::Es256, Algorithm::Es384, Algorithm::Rs256]
    );
    assert_eq!(
        public_keys(b"nothing here").unwrap_err(),
        KeyError::NoPublicKey
    );
}

#[test]
fn a_key_checks_only_what_it_signed_with_its_own_algorithm() {
    let (rsa, ec) = (rsa_key(), ec_key());
    for key in [&rsa, &ec] {
        let signed = key.sign(b"message").unwrap();
        for algorithm in Algorithm::all() {
            let expected = algorithm == key.public().algorithm();
            assert_eq!(
                key.public().verifies(algorithm, b"message", &signed),
                expected,
                "{}",
                algorithm.name()
            );
        }
        assert!(
            !key.public()
                .verifies(key.public().algorithm(), b"massage", &signed)
        );
        assert!(
            !fresh_ec_key()
                .public()
                .verifies(key.public().algorithm(), b"message", &signed)
        );
    }
}

#[test]
fn every_rsa_algorithm_of_the_rfc_is_checked() {
    let pair = RsaKeyPair::from_pkcs8(&RSA_PKCS8).unwrap();
    let cases: [(Algorithm, &dyn signature::RsaEncoding); 5] = [
        (Algorithm::Rs384, &signature::RSA_PKCS1_SHA384),
        (Algorithm::Rs512, &signature::RSA_PKCS1_SHA512),
        (Algorithm::Ps256, &signature::RSA_PSS_SHA256),
        (Algorithm::Ps384, &signature::RSA_PSS_SHA384),
        (Algorithm::Ps512, &signature::RSA_PSS_SHA512),
    ];
    for (algorithm, encoding) in cases {
        let mut signed = vec![0; pair.public_modulus_len()];
        pair.sign(encoding, &SystemRandom::new(), b"message", &mut signed)
            .unwrap();
        let key = rsa_key();
        assert!(
            key.public().verifies(algorithm, b"message", &signed),
            "{}",
            algorithm.name()
        );
        assert!(!key.public().verifies(Algorithm::Rs256, b"message", &signed));
    }
}

#[test]
fn all_three_curves_sign_and_are_read_back_from_a_key_set() {
    for curve in Curve::ALL {
        let pair = EcdsaKeyPair::generate(curve.signing()).unwrap();
        let key = SigningKey::from_pem(
            pem("PRIVATE KEY", pair.to_pkcs8v1().unwrap().as_ref()).as_bytes(),
        )
        .unwrap();
        let signed = key.sign(b"message").unwrap();
        let set = key_set(&[key.public().clone()]);
        let read = parse_key_set(set.as_bytes()).unwrap();
        assert!(
            read[0].verifies(curve.algorithm(), b"message", &signed),
            "{}",
            curve.name()
        );
        assert_eq!(read[0].id(), key.public().id());
    }
}

#[test]
fn key_sets_have_the_members_of_upstream_in_their_order() {
    let (rsa, ec) = (rsa_key(), ec_key());
    let text = key_set(&[rsa.public().clone(), ec.public().clone()]);
    let set: Value = serde_json::from_str(&text).unwrap();
    let text_of = |n: usize, member: &str| set["keys"][n][member].as_str().unwrap().to_owned();
    let expected = format!(
        concat!(
            r#"{{"keys":[{{"use":"sig","kty":"RSA","kid":"{}","alg":"RS256","n":"{}","e":"AQAB"}},"#,
            r#"{{"use":"sig","kty":"EC","kid":"{}","crv":"P-256","alg":"ES256","x":"{}","y":"{}"}}]}}"#
        ),
        rsa.public().id().unwrap(),
        text_of(0, "n"),
        ec.public().id().unwrap(),
        text_of(1, "x"),
        text_of(1, "y"),
    );
    assert_eq!(text, expected);
}

#[test]
fn key_sets_of_providers_are_read_with_care() {
    let good: Value = serde_json::from_str(&key_set(&[ec_key().public().clone()])).unwrap();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut set = good.clone();
        change(&mut set["keys"][0]);
        parse_key_set(set.to_string().as_bytes())
    };
    assert!(with(&|_| ()).is_ok());
    assert!(with(&|key| key["unknown"] = json!({"a": 1})).is_ok());
    assert!(
        with(&|key| key["use"] = json!("enc")).is_err(),
        "keys for encryption do not sign"
    );
    assert!(with(&|key| key["alg"] = json!("HS256")).is_err());
    assert!(
        with(&|key| key["x"] = key["y"].clone()).is_err(),
        "a point off the curve"
    );
    assert!(with(&|key| key["x"] = json!("AA")).is_err());
    assert!(with(&|key| key["kty"] = json!("oct")).is_err());
    let only = with(&|key| key["alg"] = json!("ES384")).unwrap();
    assert!(!only[0].verifies(Algorithm::Es256, b"m", &ec_key().sign(b"m").unwrap()));
}

#[test]
fn metadata_is_upstreams_and_needs_https() {
    let keys = [rsa_key().public().clone(), ec_key().public().clone()];
    let text = discovery::metadata("https://i", "https://i/openid/v1/jwks", &keys).unwrap();
    let expected = concat!(
        r#"{"issuer":"https://i","jwks_uri":"https://i/openid/v1/jwks","response_types_supported":["id_token"],"#,
        r#""subject_types_supported":["public"],"id_token_signing_alg_values_supported":["ES256","RS256"]}"#
    );
    assert_eq!(text, expected);
    for issuer in [
        "http://i",
        "kubernetes/serviceaccount",
        "https://i?a=b",
        "https://i#f",
    ] {
        let refused = discovery::metadata(issuer, "https://i/jwks", &keys);
        assert_eq!(refused, Err(NotDiscoverable::Issuer(issuer.into())));
    }
}

#[test]
fn a_signing_key_prints_nothing_but_its_id() {
    let key = ec_key();
    assert_eq!(
        format!("{key:?}"),
        format!("SigningKey {{ id: {:?}, .. }}", key.public().id())
    );
}
