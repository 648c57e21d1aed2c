#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::testing::{World, at, ec_key};
use super::*;

#[test]
fn every_authenticated_user_is_in_the_group_once() {
    let user = |name: &str, groups: &[&str]| User {
        name: name.into(),
        groups: groups.iter().map(|g| g.to_string()).collect(),
        ..User::default()
    };
    let groups = |u: User| with_authenticated_group(u).groups;
    assert_eq!(groups(user("a", &["x"])), ["x", "system:authenticated"]);
    assert_eq!(
        groups(user("a", &["system:authenticated"])),
        ["system:authenticated"]
    );
    assert_eq!(groups(User::anonymous()), ["system:unauthenticated"]);
}

#[test]
fn credentials_without_audience_are_for_the_api_server_only() {
    let list = |l: &[&str]| l.iter().map(|s| s.to_string()).collect::<Vec<_>>();
    let api = list(&["api", "other"]);
    assert_eq!(implied_audiences(&api, &[]), Some(api.clone()));
    assert_eq!(
        implied_audiences(&api, &list(&["x", "other"])),
        Some(list(&["other"]))
    );
    assert_eq!(implied_audiences(&api, &list(&["vault"])), None);
}

fn authenticator() -> service_account::Authenticator {
    service_account::Authenticator {
        seen: Default::default(),
        issuers: vec!["https://kyanite".into()],
        keys: vec![ec_key().public().clone()],
        api_audiences: vec!["https://kyanite".into()],
    }
}

proptest! {
    #[test]
    fn random_text_is_refused_without_panic(text in "\\PC{0,200}") {
        let world = World::default();
        prop_assert!(!matches!(authenticator().authenticate(&text, at(0), &[], &world), Some(Ok(_))));
        prop_assert!(!matches!(bootstrap::authenticate(&text, at(0), &world), Some(Ok(_))));
    }

    #[test]
    fn random_parts_around_a_good_issuer_are_refused(header in any::<Vec<u8>>(), signature in any::<Vec<u8>>()) {
        use base64::Engine as _;
        let encode = |b: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(b);
        let token = format!("{}.{}.{}", encode(&header), encode(br#"{"iss":"https://kyanite"}"#), encode(&signature));
        let verdict = authenticator().authenticate(&token, at(0), &[], &World::default());
        prop_assert!(matches!(verdict, Some(Err(_))));
    }

    #[test]
    fn random_bytes_are_no_keys(bytes in any::<Vec<u8>>()) {
        prop_assert!(keys::public_keys(&bytes).is_err());
        prop_assert!(keys::SigningKey::from_pem(&bytes).is_err());
        prop_assert!(jwk::parse_key_set(&bytes).is_err());
    }
}
