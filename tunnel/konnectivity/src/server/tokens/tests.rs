#![allow(clippy::unwrap_used, reason = "tests")]

use k8s_openapi::api::authentication::v1::UserInfo;

use super::*;

fn status(authenticated: bool, user: &str, error: &str) -> TokenReviewStatus {
    TokenReviewStatus {
        authenticated: Some(authenticated),
        error: Some(error.to_owned()),
        user: Some(UserInfo {
            username: Some(user.to_owned()),
            ..UserInfo::default()
        }),
        ..TokenReviewStatus::default()
    }
}

#[test]
fn a_review_is_judged_in_upstreams_order() {
    let good = "system:serviceaccount:kube-system:agent";
    let cases = [
        (status(true, good, ""), Ok(())),
        (status(true, good, "broken"), Err("lookup failed: broken")),
        (
            status(false, good, ""),
            Err("lookup failed: service account jwt not valid"),
        ),
        (
            status(true, "admin", ""),
            Err("lookup failed: unexpected username format"),
        ),
        (
            status(true, "system:node:a:b", ""),
            Err("lookup failed: username returned is not a service account"),
        ),
        (
            status(true, "system:serviceaccount:default:agent", ""),
            Err(
                r#"lookup failed: incoming request from "default" namespace. Expected "kube-system""#,
            ),
        ),
        (
            status(true, "system:serviceaccount:kube-system:other", ""),
            Err(
                r#"lookup failed: incoming request from "other" service account. Expected "agent""#,
            ),
        ),
    ];
    for (status, expected) in cases {
        let judged = user(&status).and_then(|user| is_account(&user, "kube-system", "agent"));
        assert_eq!(judged, expected.map_err(str::to_owned));
    }
}

#[test]
fn a_token_comes_exactly_once_and_with_its_scheme() {
    let field = |value: &str| (AUTHORIZATION.to_owned(), value.as_bytes().to_vec());
    assert_eq!(bearer(&vec![field("Bearer abc")]), Ok("abc"));
    assert!(bearer(&Vec::new()).unwrap_err().contains("not found"));
    assert!(
        bearer(&vec![field("Bearer a"), field("Bearer b")])
            .unwrap_err()
            .contains("too many (2)")
    );
    assert!(
        bearer(&vec![field("Basic abc")])
            .unwrap_err()
            .contains("prefix")
    );
}

#[test]
fn an_agent_whose_token_names_a_node_speaks_for_that_one() {
    let node = Node {
        name: "a".into(),
        addresses: vec!["10.0.0.4".into(), "a.local".into()],
    };
    let claims = |text: &str| speaks_for(&node, &Identifiers::parse(text));
    assert_eq!(claims(""), Ok(()));
    assert_eq!(claims("ipv4=10.0.0.4&host=a&host=a.local"), Ok(()));
    let refused = claims("ipv4=10.0.0.4&ipv4=10.0.0.5").unwrap_err();
    assert_eq!(
        refused,
        r#"the agent's token is for node "a", which is not "10.0.0.5""#
    );
}
