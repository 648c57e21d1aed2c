//! Users of other issuers: two of them in one configuration, their keys, and what their claims mean.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::harness::{OidcIssuer, Pki, Replica, TokenKey, call, eventually_async};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Two issuers, and a server that believes both.
struct Cluster {
    pki: Pki,
    one: OidcIssuer,
    two: OidcIssuer,
    server: Replica,
}

impl Cluster {
    async fn start() -> Cluster {
        let pki = Pki::new();
        let (one, two) = (OidcIssuer::start(&pki).await, OidcIssuer::start(&pki).await);
        let file = pki.path("authentication.json");
        let configuration = configuration(&pki, &one.url, &two.url);
        std::fs::write(&file, configuration.to_string()).unwrap();
        let flags = [
            format!("--authentication-config={}", file.display()),
            "--authorization-mode=RBAC".to_owned(),
        ];
        let server = Replica::alone(&pki, &flags).await;
        Cluster {
            pki,
            one,
            two,
            server,
        }
    }

    /// What the holder of a token is told about themselves.
    async fn whoami(&self, token: &str) -> (u16, Value) {
        let client = self.server.bearer(&self.pki, token).await;
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let answer = call(
            &client,
            ("POST", REVIEWS),
            "application/json",
            Some(&review),
        )
        .await;
        let (code, body) = answer.unwrap();
        (
            code,
            body.pointer("/status/userInfo").cloned().unwrap_or(body),
        )
    }

    async fn is_refused(&self, what: &str, token: &str) {
        let (code, body) = self.whoami(token).await;
        assert_eq!(code, 401, "{what}: {body}");
    }
}

fn configuration(pki: &Pki, one: &str, two: &str) -> Value {
    let authority = std::fs::read_to_string(pki.path("ca.crt")).unwrap();
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [
            {
                "issuer": {"url": one, "audiences": ["kyanite"], "certificateAuthority": authority},
                "claimValidationRules": [{"claim": "tenant", "requiredValue": "ours"}],
                "claimMappings": {
                    "username": {"claim": "sub", "prefix": "one:"},
                    "groups": {"claim": "roles", "prefix": "one:"},
                    "uid": {"claim": "oid"},
                },
            },
            {
                "issuer": {"url": two, "audiences": ["a", "b"], "audienceMatchPolicy": "MatchAny",
                    "certificateAuthority": authority},
                "claimMappings": {
                    "username": {"expression": "claims.name.split('@')[0] + '@two'"},
                    "groups": {"expression": "claims.?roles.orValue([]).map(r, 'two/' + r)"},
                    "extra": [{"key": "example.com/tenant", "valueExpression": "claims.tenant"}],
                },
                "claimValidationRules": [{"expression": "claims.exp - claims.iat <= 3600",
                    "message": "tokens last an hour at most"}],
                "userValidationRules": [{"expression": "!user.username.startsWith('system:')",
                    "message": "reserved"}],
            },
        ],
    })
}

/// Claims of somebody at an issuer, good for the next ten minutes, with these changes.
fn claims(issuer: &OidcIssuer, audience: &str, changes: Value) -> Value {
    let now = Timestamp::now().as_second();
    let mut claims = json!({"iss": issuer.url, "aud": audience, "sub": "jane", "name": "jane",
        "oid": "42", "tenant": "ours", "iat": now, "exp": now + 600});
    for (claim, value) in changes.as_object().unwrap() {
        claims[claim] = value.clone();
    }
    claims
}

#[tokio::test]
async fn each_issuers_claims_mean_what_the_configuration_says() {
    let cluster = Cluster::start().await;
    let (one, two) = (&cluster.one, &cluster.two);
    let (key_one, key_two) = (TokenKey::new(), TokenKey::new());
    one.show_keys(&[key_one.jwk("k1")]);
    two.show_keys(&[key_two.jwk("k2")]);
    let changes = json!({"roles": ["dev", "ops"]});
    let token = key_one.token("k1", &claims(one, "kyanite", changes));
    let (code, user) = cluster.whoami(&token).await;
    assert_eq!((code, &user["username"]), (201, &json!("one:jane")));
    assert_eq!(user["uid"], "42");
    assert_eq!(
        user["groups"],
        json!(["one:dev", "one:ops", "system:authenticated"])
    );
    let changes = json!({"roles": ["dev"], "name": "jane@home"});
    let token = key_two.token("k2", &claims(two, "b", changes));
    let (code, user) = cluster.whoami(&token).await;
    assert_eq!((code, &user["username"]), (201, &json!("jane@two")));
    assert_eq!(user["extra"]["example.com/tenant"], json!(["ours"]));
    assert_eq!(user["groups"], json!(["two/dev", "system:authenticated"]));
}

#[tokio::test]
async fn tokens_of_issuers_are_held_to_their_rules() {
    let cluster = Cluster::start().await;
    let (one, two) = (&cluster.one, &cluster.two);
    let (key_one, key_two) = (TokenKey::new(), TokenKey::new());
    one.show_keys(&[key_one.jwk("k1")]);
    two.show_keys(&[key_two.jwk("k2")]);
    let now = Timestamp::now().as_second();
    let good = claims(one, "kyanite", json!({}));
    let of_one = |changes: Value| key_one.token("k1", &claims(one, "kyanite", changes));
    let (code, _) = cluster.whoami(&key_one.token("k1", &good)).await;
    assert_eq!(code, 201);
    let bad = [
        ("wrong audience", of_one(json!({"aud": "another"}))),
        ("the other's audience", of_one(json!({"aud": "a"}))),
        ("expired", of_one(json!({"exp": now - 600}))),
        ("not yet valid", of_one(json!({"nbf": now + 600}))),
        ("another tenant", of_one(json!({"tenant": "theirs"}))),
        ("nobody", of_one(json!({"sub": null}))),
        ("no uid", of_one(json!({"oid": null}))),
        (
            "an unknown issuer",
            of_one(json!({"iss": "https://localhost:1"})),
        ),
        ("the other's key", key_two.token("k1", &good)),
        ("the other's key and its id", key_two.token("k2", &good)),
        (
            "the other's claims",
            key_one.token("k1", &claims(two, "a", json!({}))),
        ),
        (
            "a token that lasts for days",
            key_two.token("k2", &claims(two, "a", json!({"exp": now + 86_400}))),
        ),
        (
            "a reserved name",
            key_two.token("k2", &claims(two, "a", json!({"name": "system:x"}))),
        ),
    ];
    for (what, token) in bad {
        cluster.is_refused(what, &token).await;
    }
}

#[tokio::test]
async fn a_key_that_is_not_known_yet_is_fetched_and_one_that_is_gone_is_forgotten() {
    let cluster = Cluster::start().await;
    let issuer = &cluster.one;
    let (old, new, never) = (TokenKey::new(), TokenKey::new(), TokenKey::new());
    let mine = claims(issuer, "kyanite", json!({}));
    issuer.show_keys(&[old.jwk("old")]);
    assert_eq!(cluster.whoami(&old.token("old", &mine)).await.0, 201);
    assert_eq!(issuer.fetches(), 1);
    // Known keys are not fetched again.
    assert_eq!(cluster.whoami(&old.token("old", &mine)).await.0, 201);
    assert_eq!(issuer.fetches(), 1);
    issuer.show_keys(&[new.jwk("new")]);
    let token = new.token("new", &mine);
    eventually_async("the new key is fetched", async || {
        match cluster.whoami(&token).await {
            (201, _) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let fetches = issuer.fetches();
    assert_eq!(fetches, 2);
    cluster
        .is_refused("the old key", &old.token("old", &mine))
        .await;
    // Whoever makes up key ids does not make the server ask the issuer each time.
    for round in 0..20 {
        let made_up = never.token(&format!("made-up-{round}"), &mine);
        cluster.is_refused("a made-up key", &made_up).await;
    }
    assert!(
        issuer.fetches() <= fetches + 2,
        "{} fetches",
        issuer.fetches()
    );
}

#[tokio::test]
async fn a_configuration_that_cannot_be_used_leaves_the_one_before_in_force() {
    let cluster = Cluster::start().await;
    let key = TokenKey::new();
    cluster.two.show_keys(&[key.jwk("k")]);
    let token = key.token("k", &claims(&cluster.two, "a", json!({})));
    let file = cluster.pki.path("authentication.json");
    let good = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, good.replace("user.username", "user.nickname")).unwrap();
    let failures =
        "apiserver_authentication_config_controller_automatic_reloads_total{status=\"failure\"}";
    eventually_async("the broken file was looked at", async || {
        let (_, page) = cluster.server.get("/metrics").await;
        page.contains(failures).then_some(()).ok_or(page.len())
    })
    .await;
    assert_eq!(cluster.whoami(&token).await.0, 201);
    std::fs::write(&file, good.replace("@two", "@new")).unwrap();
    eventually_async("the new file is in force", async || {
        match cluster.whoami(&token).await.1 {
            user if user["username"] == "jane@new" => Ok(()),
            other => Err(other.to_string()),
        }
    })
    .await;
}
