//! Credentials that are forged, stale or somebody else's: each is answered with 401 and no word about why.

use aws_lc_rs::hmac;
use jiff::Timestamp;
use rcgen::{ExtendedKeyUsagePurpose, date_time_ymd};
use serde_json::{Value, json};

use crate::harness::{Credentials, Forger, Server, TokenKey, eventually, jwt, opened};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A token that the server made for an account, bound to an object where one is named.
fn token(server: &Server, account: &str, bound_to: Option<&Value>) -> String {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound_to}});
    let path = format!("{ACCOUNTS}/{account}/token");
    let made = server.admin().post(&path, &request).ok();
    made["status"]["token"].as_str().unwrap().to_owned()
}

fn create_account(server: &Server, name: &str) {
    let account = json!({"metadata": {"name": name}});
    server.admin().post(ACCOUNTS, &account).ok();
}

fn pki_file(server: &Server, name: &str) -> String {
    std::fs::read_to_string(server.home().join("data/pki").join(name)).unwrap()
}

fn changed(claims: &Value, changes: Value) -> Value {
    let mut claims = claims.clone();
    for (key, value) in changes.as_object().unwrap() {
        claims[key] = value.clone();
    }
    claims
}

#[test]
fn a_token_that_was_bent_anywhere_is_worthless() {
    let server = Server::start();
    create_account(&server, "robot");
    let genuine = token(&server, "robot", None);
    let (header, claims) = opened(&genuine);
    let key = TokenKey::from_pem(&pki_file(&server, "sa.key"));
    let kid = header["kid"].as_str().unwrap();
    // The key is the right one: what it signs is believed, so each refusal below has its own cause.
    server.bearer(&genuine).whoami().ok();
    server.bearer(key.token(kid, &claims)).whoami().ok();
    let now = Timestamp::now().as_second();
    let with = |changes: Value| key.token(kid, &changed(&claims, changes));
    let public = pki_file(&server, "sa.pub");
    let hs256 = |secret: &[u8]| {
        let header = json!({"alg": "HS256", "kid": kid});
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        jwt(&header, &claims, |message| {
            hmac::sign(&secret, message).as_ref().to_vec()
        })
    };
    let parts: Vec<&str> = genuine.split('.').collect();
    let other_account = json!({"sub": "system:serviceaccount:kube-system:default"});
    let swapped = jwt(&header, &changed(&claims, other_account), |_| Vec::new());
    let swapped: Vec<&str> = swapped.split('.').collect();
    let stranger = TokenKey::new();
    let bad = [
        (
            "expired",
            with(json!({"exp": now - 120, "iat": now - 600, "nbf": now - 600})),
        ),
        ("not yet valid", with(json!({"nbf": now + 600}))),
        (
            "wrong audience",
            with(json!({"aud": ["https://vault.example"]})),
        ),
        (
            "wrong issuer",
            with(json!({"iss": "https://issuer.example"})),
        ),
        ("no issuer", with(json!({"iss": null}))),
        (
            "an account that never was",
            with(json!({"kubernetes.io": {"namespace": "default",
            "serviceaccount": {"name": "ghost", "uid": "1"}}})),
        ),
        ("swapped key, right id", stranger.token(kid, &claims)),
        (
            "swapped key, no id",
            jwt(&json!({"alg": "ES256"}), &claims, |m| stranger.sign(m)),
        ),
        ("HS256 with the public key", hs256(public.as_bytes())),
        (
            "HS256 with the public key, trimmed",
            hs256(public.trim().as_bytes()),
        ),
        (
            "alg none",
            jwt(&json!({"alg": "none"}), &claims, |_| Vec::new()),
        ),
        (
            "alg None",
            jwt(&json!({"alg": "None", "kid": kid}), &claims, |m| {
                key.sign(m)
            }),
        ),
        (
            "another algorithm",
            jwt(&json!({"alg": "RS256", "kid": kid}), &claims, |m| {
                key.sign(m)
            }),
        ),
        (
            "a critical extension",
            jwt(
                &json!({"alg": "ES256", "kid": kid, "crit": ["x"], "x": 1}),
                &claims,
                |m| key.sign(m),
            ),
        ),
        (
            "its own key",
            jwt(
                &json!({"alg": "ES256", "jwk": stranger.jwk("k")}),
                &claims,
                |m| stranger.sign(m),
            ),
        ),
        (
            "claims of another",
            format!("{}.{}.{}", parts[0], swapped[1], parts[2]),
        ),
        ("no signature", format!("{}.{}.", parts[0], parts[1])),
        ("two parts", format!("{}.{}", parts[0], parts[1])),
        ("four parts", format!("{genuine}.x")),
        ("half", genuine[..genuine.len() / 2].to_owned()),
        ("one letter less", genuine[..genuine.len() - 1].to_owned()),
        ("one letter more", format!("{genuine}A")),
        ("padded", format!("{genuine}=")),
        ("dots", "..".to_owned()),
        ("a word", "password".to_owned()),
    ];
    for (what, token) in bad {
        let answer = server.bearer(token).whoami();
        assert_eq!(answer.code, 401, "{what}: {answer:?}");
        answer.unauthorized();
    }
}

#[test]
fn a_bad_token_is_refused_even_where_nobody_needs_one() {
    let server = Server::start();
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        let nobody = server.person(Credentials::Nothing).get(path);
        assert_eq!(nobody.code, 200, "{path}");
        server.bearer("password").get(path).unauthorized();
        server
            .bearer("aaaaaa.bbbbbbbbbbbbbbbb")
            .get(path)
            .unauthorized();
    }
    // Without credentials there is nothing else, whether it exists or not.
    let nobody = server.person(Credentials::Nothing);
    for path in ["/api", "/api/v1/namespaces", "/metrics", "/no/such/thing"] {
        nobody.get(path).unauthorized();
    }
    // A good certificate is looked at first, as upstream does.
    let admin = server.admin().with("Authorization", "Bearer password");
    let me = admin.whoami().ok();
    let groups = me["status"]["userInfo"]["groups"].as_array().unwrap();
    assert!(groups.contains(&json!("system:authenticated")), "{me:#}");
}

#[test]
fn a_token_dies_with_its_account_and_is_not_raised_by_a_namesake() {
    let server = Server::start();
    for round in 0..200 {
        create_account(&server, "robot");
        let robot = server.bearer(token(&server, "robot", None));
        robot.whoami().ok();
        server.admin().delete(&format!("{ACCOUNTS}/robot")).ok();
        let answer = robot.whoami();
        assert_eq!(answer.code, 401, "round {round}: {answer:?}");
        create_account(&server, "robot");
        robot.whoami().unauthorized();
        server.admin().delete(&format!("{ACCOUNTS}/robot")).ok();
    }
}

#[test]
fn a_token_dies_with_what_it_is_bound_to() {
    let server = Server::start();
    let admin = server.admin();
    create_account(&server, "robot");
    let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "robot",
        "containers": [{"name": "c", "image": "i"}]}});
    let secrets = "/api/v1/namespaces/default/secrets";
    let cases = [
        ("Pod", PODS, pod),
        ("Secret", secrets, json!({"metadata": {"name": "p"}})),
        ("Node", "/api/v1/nodes", json!({"metadata": {"name": "p"}})),
    ];
    for (kind, collection, object) in cases {
        let made = admin.post(collection, &object).ok();
        let uid = made["metadata"]["uid"].clone();
        let reference = json!({"apiVersion": "v1", "kind": kind, "name": "p", "uid": uid});
        let bearer = server.bearer(token(&server, "robot", Some(&reference)));
        bearer.whoami().ok();
        admin.delete(&format!("{collection}/p")).ok();
        let answer = bearer.whoami();
        assert_eq!(answer.code, 401, "{kind}: {answer:?}");
        admin.post(collection, &object).ok();
        bearer.whoami().unauthorized();
    }
}

#[test]
fn a_certificate_that_is_not_good_for_clients_now_is_refused() {
    let server = Server::start();
    let ours = Forger::of(&server, "ca");
    let masters = ["system:masters"];
    let me = server.person(ours.client("jane", &masters)).whoami().ok();
    assert_eq!(me["status"]["userInfo"]["username"], "jane");
    let bad = [
        ("of another CA", Forger::impostor().client("jane", &masters)),
        (
            "of the front proxy's CA",
            Forger::of(&server, "front-proxy-ca").client("jane", &masters),
        ),
        (
            "expired",
            ours.certificate("jane", &masters, |params| {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
                params.not_before = date_time_ymd(2020, 1, 1);
                params.not_after = date_time_ymd(2021, 1, 1);
            }),
        ),
        (
            "not yet valid",
            ours.certificate("jane", &masters, |params| {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
                params.not_before = date_time_ymd(2100, 1, 1);
            }),
        ),
        (
            "for servers only",
            ours.certificate("jane", &masters, |params| {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            }),
        ),
    ];
    for (what, certificate) in bad {
        let person = server.person(certificate);
        let answer = person.whoami();
        assert_eq!(answer.code, 401, "{what}: {answer:?}");
        answer.unauthorized();
        person.get("/healthz").unauthorized();
    }
}

fn bootstrap_secret(id: &str, changes: Value) -> Value {
    let data = json!({"token-id": id, "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true"});
    json!({"metadata": {"name": format!("bootstrap-token-{id}")}, "type": "bootstrap.kubernetes.io/token",
        "stringData": changed(&data, changes)})
}

#[test]
fn a_bootstrap_token_is_good_until_it_ends_and_for_what_it_is_for() {
    let server = Server::start();
    let admin = server.admin();
    let bearer = |id: &str| server.bearer(format!("{id}.0123456789abcdef"));
    admin
        .post(SECRETS, &bootstrap_secret("good00", json!({})))
        .ok();
    let me = bearer("good00").whoami().ok();
    assert_eq!(
        me["status"]["userInfo"]["username"],
        "system:bootstrap:good00"
    );
    let bad = [
        ("ended0", json!({"expiration": "2020-01-01T00:00:00Z"})),
        ("never0", json!({"expiration": "tomorrow"})),
        ("usage0", json!({"usage-bootstrap-authentication": "false"})),
        (
            "usage1",
            json!({"usage-bootstrap-authentication": null, "usage-bootstrap-signing": "true"}),
        ),
        ("secret", json!({"token-secret": "fedcba9876543210"})),
        ("group0", json!({"auth-extra-groups": "system:masters"})),
    ];
    for (id, changes) in bad {
        admin.post(SECRETS, &bootstrap_secret(id, changes)).ok();
        let answer = bearer(id).whoami();
        assert_eq!(answer.code, 401, "{id}: {answer:?}");
        answer.unauthorized();
    }
    // A secret of another kind or place is not a token.
    let mut opaque = bootstrap_secret("opaque", json!({}));
    opaque["type"] = json!("Opaque");
    admin.post(SECRETS, &opaque).ok();
    bearer("opaque").whoami().unauthorized();
    let elsewhere = bootstrap_secret("place0", json!({}));
    let default = "/api/v1/namespaces/default/secrets";
    admin.post(default, &elsewhere).ok();
    bearer("place0").whoami().unauthorized();
    // One that works ends by itself, and at once when its secret goes.
    let soon = Timestamp::now() + jiff::SignedDuration::from_secs(3);
    let soon = json!({"expiration": soon.to_string()});
    admin.post(SECRETS, &bootstrap_secret("soon00", soon)).ok();
    let person = bearer("soon00");
    eventually("the token ends", || match person.whoami().code {
        401 => Ok(()),
        code => Err(code.to_string()),
    });
    admin
        .delete(&format!("{SECRETS}/bootstrap-token-good00"))
        .ok();
    bearer("good00").whoami().unauthorized();
}

#[test]
fn users_in_headers_are_believed_from_the_front_proxy_only() {
    let server = Server::start();
    let proxies = Forger::of(&server, "front-proxy-ca");
    let spoof = |credentials: Credentials| {
        let person = server.person(credentials);
        person
            .with("X-Remote-User", "jane")
            .with("X-Remote-Group", "system:masters")
            .with("X-Remote-Extra-Scope", "all")
    };
    let file = |name: &str| pki_file(&server, &format!("front-proxy-client.{name}"));
    let genuine = Credentials::Certificate(file("crt"), file("key"));
    let me = spoof(genuine.clone()).whoami().ok();
    assert_eq!(
        me["status"]["userInfo"],
        json!({"username": "jane", "groups": ["system:masters", "system:authenticated"],
            "extra": {"scope": ["all"]}})
    );
    // Without a name it vouches for nobody, and it is nobody itself.
    server.person(genuine).whoami().unauthorized();
    spoof(Credentials::Nothing).whoami().unauthorized();
    spoof(proxies.client("somebody", &[]))
        .whoami()
        .unauthorized();
    let as_itself = [
        (
            Forger::of(&server, "ca").client("front-proxy-client", &[]),
            "front-proxy-client",
        ),
        (Forger::of(&server, "ca").client("bob", &[]), "bob"),
    ];
    for (credentials, name) in as_itself {
        let me = spoof(credentials).whoami().ok();
        let info = &me["status"]["userInfo"];
        assert_eq!(info["username"], name);
        assert_eq!(info["groups"], json!(["system:authenticated"]));
    }
    create_account(&server, "robot");
    let me = spoof(Credentials::Token(token(&server, "robot", None)))
        .whoami()
        .ok();
    assert_eq!(
        me["status"]["userInfo"]["username"],
        "system:serviceaccount:default:robot"
    );
}
