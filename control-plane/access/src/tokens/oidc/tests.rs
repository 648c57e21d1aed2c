#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::*;
use crate::tokens::jwk::key_set;
use crate::tokens::jws;
use crate::tokens::keys::SigningKey;
use crate::tokens::testing::{at, ec_key, forged, fresh_ec_key, opened, rsa_key};
use crate::tokens::{Authenticated, CREDENTIAL_ID};

const URL: &str = "https://login.example.com";

fn flags() -> Flags {
    Flags {
        issuer_url: URL.into(),
        client_id: "kyanite".into(),
        groups_claim: "groups".into(),
        groups_prefix: "oidc:".into(),
        signing_algs: vec!["RS256".into(), "ES256".into()],
        ..Flags::default()
    }
}

fn provider_of(trust: Trust) -> Provider {
    let mut provider = Provider::new(trust);
    provider
        .refreshed(key_set(&[ec_key().public().clone()]).as_bytes())
        .unwrap();
    provider
}

fn provider() -> Provider {
    provider_of(flags().trust().unwrap().unwrap())
}

fn claims() -> Value {
    json!({
        "iss": URL, "aud": "kyanite", "sub": "jane", "exp": at(100).as_second(), "nbf": at(0).as_second(),
        "groups": ["dev", "ops"], "jti": "t1",
    })
}

fn with(changes: Value) -> Value {
    let mut claims = claims();
    for (key, value) in changes.as_object().unwrap() {
        claims[key] = value.clone();
    }
    claims
}

fn signed(claims: &Value, key: &SigningKey) -> String {
    jws::sign(key, claims).unwrap()
}

fn ask(provider: &Provider, claims: &Value) -> Result<Authenticated, Refusal> {
    provider
        .authenticate(&signed(claims, &ec_key()), at(10))
        .unwrap()
}

#[test]
fn a_good_token_names_its_user() {
    let user = ask(&provider(), &claims()).unwrap().user;
    assert_eq!(user.name, format!("{URL}#jane"));
    assert_eq!(user.groups, ["oidc:dev", "oidc:ops"]);
    assert_eq!(user.extra[CREDENTIAL_ID], ["JTI=t1"]);
    let one = ask(&provider(), &with(json!({"groups": "dev"})))
        .unwrap()
        .user;
    assert_eq!(one.groups, ["oidc:dev"]);
}

#[test]
fn name_prefixes_follow_the_flags() {
    let name = |claim: &str, prefix: &str| {
        let flags = Flags {
            username_claim: claim.into(),
            username_prefix: prefix.into(),
            ..flags()
        };
        let claims = with(json!({"email": "j@x", "email_verified": true}));
        ask(&provider_of(flags.trust().unwrap().unwrap()), &claims)
            .unwrap()
            .user
            .name
    };
    assert_eq!(name("", ""), format!("{URL}#jane"));
    assert_eq!(name("sub", "-"), "jane");
    assert_eq!(name("sub", "p:"), "p:jane");
    assert_eq!(name("email", ""), "j@x");
}

#[test]
fn unverified_mail_is_no_name() {
    let flags = Flags {
        username_claim: "email".into(),
        ..flags()
    };
    let provider = provider_of(flags.trust().unwrap().unwrap());
    assert!(ask(&provider, &with(json!({"email": "j@x"}))).is_ok());
    assert!(
        ask(
            &provider,
            &with(json!({"email": "j@x", "email_verified": false}))
        )
        .is_err()
    );
    assert!(
        ask(
            &provider,
            &with(json!({"email": "j@x", "email_verified": "true"}))
        )
        .is_err()
    );
}

#[test]
fn bad_claims_are_refused() {
    let required = Flags {
        required_claims: vec!["hd=example.com".into()],
        ..flags()
    };
    let strict = provider_of(required.trust().unwrap().unwrap());
    let plain = provider();
    let cases = [
        (
            &plain,
            json!({"aud": "other"}),
            "expected audience in [\"kyanite\"] got [\"other\"]",
        ),
        (&plain, json!({"aud": []}), "expected audience"),
        (
            &plain,
            json!({"exp": at(9).as_second()}),
            "token is expired",
        ),
        (&plain, json!({"exp": null}), "token is expired"),
        (&plain, json!({"nbf": at(71).as_second()}), "before the nbf"),
        (&plain, json!({"sub": null}), "not a string"),
        (&plain, json!({"sub": ""}), "empty username"),
        (&plain, json!({"groups": 7}), "parse groups claim"),
        (&strict, json!({}), "required claim hd not present"),
        (&strict, json!({"hd": "x"}), "Got = x, want = example.com"),
    ];
    for (provider, changes, expected) in cases {
        let refused = ask(provider, &with(changes.clone())).unwrap_err();
        assert!(matches!(refused, Refusal::Invalid(_)), "{changes}");
        assert!(
            refused.to_string().contains(expected),
            "{changes}: {refused}"
        );
    }
    let mut distributed = with(json!({"_claim_names": {"groups": "src1"}}));
    distributed.as_object_mut().unwrap().remove("groups");
    assert!(
        ask(&plain, &distributed)
            .unwrap_err()
            .to_string()
            .contains("distributed claims")
    );
    assert!(ask(&strict, &with(json!({"hd": "example.com"}))).is_ok());
}

#[test]
fn forgeries_and_tokens_of_others_are_not_accepted() {
    let provider = provider();
    let other = signed(&with(json!({"iss": "https://elsewhere"})), &ec_key());
    assert!(provider.authenticate(&other, at(10)).is_none());
    let (header, claims) = opened(&signed(&claims(), &ec_key()));
    let header_of = |alg: &str| {
        let mut header = header.clone();
        header["alg"] = json!(alg);
        header
    };
    let swapped = |m: &[u8]| fresh_ec_key().sign(m).unwrap();
    let cases = [
        forged(&header_of("none"), &claims, |_| vec![]),
        forged(&header_of("HS256"), &claims, |_| vec![1; 32]),
        forged(&header_of("ES384"), &claims, |m| ec_key().sign(m).unwrap()),
        forged(&header, &claims, swapped),
    ];
    for token in cases {
        let refused = provider.authenticate(&token, at(10)).unwrap().unwrap_err();
        assert!(matches!(refused, Refusal::Invalid(_)), "{refused}");
    }
}

#[test]
fn an_unknown_key_is_fetched_once_in_a_while_and_old_keys_stay_when_that_fails() {
    let mut provider = Provider::new(flags().trust().unwrap().unwrap());
    let token = signed(&claims(), &ec_key());
    assert!(matches!(
        provider.authenticate(&token, at(0)),
        Some(Err(Refusal::UnknownKey(_)))
    ));
    assert!(provider.needs_refresh(at(0)) && provider.health().is_err());
    provider.begin_refresh(at(0));
    provider.refresh_failed("connection refused".into());
    assert!(!provider.needs_refresh(at(9)));
    assert!(provider.needs_refresh(at(10)), "without keys it tries on");
    provider.begin_refresh(at(10));
    provider
        .refreshed(key_set(&[ec_key().public().clone()]).as_bytes())
        .unwrap();
    assert!(provider.health().is_ok() && !provider.needs_refresh(at(1000)));
    assert!(provider.authenticate(&token, at(10)).unwrap().is_ok());

    let rotated = signed(&claims(), &rsa_key());
    assert!(matches!(
        provider.authenticate(&rotated, at(20)),
        Some(Err(Refusal::UnknownKey(_)))
    ));
    provider.want_keys();
    assert!(!provider.needs_refresh(at(19)) && provider.needs_refresh(at(20)));
    assert!(
        provider.needs_refresh(at(-100)),
        "a clock set back stops nothing"
    );
    provider.begin_refresh(at(20));
    assert!(provider.refreshed(b"<html>").is_err());
    assert!(
        provider.authenticate(&token, at(20)).unwrap().is_ok(),
        "the last good keys stay"
    );
    provider
        .refreshed(key_set(&[rsa_key().public().clone()]).as_bytes())
        .unwrap();
    assert!(provider.authenticate(&rotated, at(20)).unwrap().is_ok());
    assert!(
        provider.authenticate(&token, at(20)).unwrap().is_err(),
        "keys that were withdrawn are gone"
    );
}

#[test]
fn an_expired_token_makes_nobody_fetch() {
    let expired = signed(&with(json!({"exp": at(0).as_second()})), &rsa_key());
    assert!(matches!(
        provider().authenticate(&expired, at(10)),
        Some(Err(Refusal::Invalid(_)))
    ));
}

#[test]
fn metadata_must_be_the_issuers_own() {
    let provider = provider();
    assert_eq!(
        provider.trust().metadata_address(),
        format!("{URL}/.well-known/openid-configuration")
    );
    let of = |issuer: &str, keys: &str| {
        provider.keys_address(
            json!({"issuer": issuer, "jwks_uri": keys})
                .to_string()
                .as_bytes(),
        )
    };
    assert_eq!(of(URL, "https://k/keys").unwrap(), "https://k/keys");
    assert!(of("https://elsewhere", "https://k/keys").is_err());
    assert!(of(URL, "http://k/keys").is_err());
    assert!(provider.keys_address(b"{}").is_err());
}

#[test]
fn flags_belong_together() {
    assert_eq!(Flags::default().trust().unwrap(), None);
    assert!(
        Flags {
            client_id: String::new(),
            ..flags()
        }
        .trust()
        .is_err()
    );
    assert!(
        Flags {
            issuer_url: "http://x".into(),
            ..flags()
        }
        .trust()
        .is_err()
    );
    assert!(
        Flags {
            signing_algs: vec!["HS256".into()],
            ..flags()
        }
        .trust()
        .is_err()
    );
    assert!(
        Flags {
            required_claims: vec!["x".into()],
            ..flags()
        }
        .trust()
        .is_err()
    );
}

const FILE: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: https://login.example.com
    audiences: [kyanite, other]
    audienceMatchPolicy: MatchAny
  claimMappings:
    username: {expression: \"'corp:' + claims.sub\"}
    groups: {claim: groups, prefix: ''}
    uid: {claim: oid}
    extra:
    - {key: example.com/tenant, valueExpression: claims.tid}
  claimValidationRules:
  - {claim: tid, requiredValue: t-1}
  - {expression: \"claims.sub != 'root'\", message: not root}
  userValidationRules:
  - {expression: \"user.groups.all(g, !g.startsWith('system:'))\", message: no system groups}
- issuer: {url: 'https://second.example.com', discoveryURL: 'https://d.example.com/x', audiences: [a]}
  claimMappings:
    username: {claim: sub, prefix: 's:'}
anonymous:
  enabled: true
  conditions: [{path: /livez}, {path: /readyz}]
";

fn parse(text: &str) -> Result<Configuration, ConfigurationError> {
    Configuration::parse(text, &["https://kyanite".to_owned()])
}

#[test]
fn a_file_describes_several_issuers() {
    let configuration = parse(FILE).unwrap();
    let [first, second] = &configuration.issuers[..] else {
        panic!("two issuers")
    };
    assert_eq!(second.metadata_address(), "https://d.example.com/x");
    let provider = provider_of(first.clone());
    let good = with(json!({"tid": "t-1", "oid": "o-1", "aud": ["other"]}));
    let user = ask(&provider, &good).unwrap().user;
    assert_eq!(
        (user.name.as_str(), user.uid.as_str()),
        ("corp:jane", "o-1")
    );
    assert_eq!(user.groups, ["dev", "ops"]);
    assert_eq!(user.extra["example.com/tenant"], ["t-1"]);
    let refused = |changes: Value| {
        let mut claims = good.clone();
        changes
            .as_object()
            .unwrap()
            .iter()
            .for_each(|(k, v)| claims[k] = v.clone());
        ask(&provider, &claims).unwrap_err().to_string()
    };
    assert!(refused(json!({"tid": "t-2"})).contains("required claim tid value does not match"));
    assert!(refused(json!({"sub": "root"})).contains("failed: not root"));
    assert!(refused(json!({"groups": ["system:masters"]})).contains("no system groups"));
    let anonymous = configuration.anonymous.unwrap();
    assert!(
        anonymous.allows("/livez") && !anonymous.allows("/livez/x") && !anonymous.allows("/api")
    );
}

#[test]
fn each_fault_of_a_file_is_told_with_its_field() {
    let cases = [
        (
            "kind: AuthenticationConfiguration",
            "kind: Other",
            "is not known",
        ),
        (
            "url: https://login.example.com",
            "url: http://x",
            "jwt[0].issuer.url: Invalid value: \"http://x\": URL scheme must be https",
        ),
        (
            "url: https://login.example.com",
            "url: https://kyanite",
            "must not overlap with disallowed issuers",
        ),
        (
            "url: https://login.example.com",
            "url: https://second.example.com",
            "jwt[1].issuer.url: Duplicate value",
        ),
        (
            "audienceMatchPolicy: MatchAny",
            "",
            "audienceMatchPolicy must be MatchAny for multiple audiences",
        ),
        (
            "{claim: groups, prefix: ''}",
            "{claim: groups}",
            "jwt[0].claimMappings.groups.prefix: Required value",
        ),
        (
            "\"'corp:' + claims.sub\"",
            "claims.sub.lowerascii()",
            "jwt[0].claimMappings.username.expression: Invalid value: \"claims.sub.lowerascii()\": compilation failed: ERROR: <input>:1:22: undeclared reference to 'lowerascii'",
        ),
        (
            "\"'corp:' + claims.sub\"",
            "claims.email",
            "claims.email_verified must be used",
        ),
        (
            "key: example.com/tenant",
            "key: tenant",
            "domain-prefixed path",
        ),
        (
            "key: example.com/tenant",
            "key: x.kubernetes.io/t",
            "reserved for Kubernetes use",
        ),
        (
            "enabled: true",
            "enabled: false",
            "enabled should be set to true",
        ),
        (
            "uid: {claim: oid}",
            "nonsense: {}",
            "not an AuthenticationConfiguration",
        ),
        (
            "{claim: sub, prefix: 's:'}",
            "{}",
            "jwt[1].claimMappings.username: Required value",
        ),
        (
            "audiences: [a]",
            "audiences: []",
            "jwt[1].issuer.audiences: Required value",
        ),
        (
            "requiredValue: t-1",
            "requiredValue: t-1, message: m",
            "may not be specified when claim is set",
        ),
    ];
    for (from, to, expected) in cases {
        assert!(FILE.contains(from), "{from}");
        let problem = parse(&FILE.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(problem.contains(expected), "{to}: {problem}");
    }
}
