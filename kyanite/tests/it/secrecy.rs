//! A server that logs all it can, through a day's work with secrets: none of them is in its log.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness::{
    Finished, KYANITE, Kubectl, RawConnection, Server, ServerOptions, eventually,
};

/// What must not be found, with a word about what it is.
#[derive(Default)]
struct Secrets(Vec<(String, String)>);

impl Secrets {
    fn add(&mut self, what: &str, secret: &str) {
        let is_long_enough = secret.len() >= 12;
        assert!(is_long_enough, "{what}: too short to be searched for");
        self.0.push((what.to_owned(), secret.to_owned()));
    }

    /// A JWT: the part that makes it good is enough to look for.
    fn add_jwt(&mut self, what: &str, token: &str) {
        let signature = token.rsplit('.').next().unwrap();
        self.add(&format!("signature of {what}"), signature);
        let payload = token.split('.').nth(1).unwrap();
        self.add(
            &format!("payload of {what}"),
            &payload[..payload.len().min(80)],
        );
    }

    /// A text that is stored and sent in base64 as well.
    fn add_value(&mut self, what: &str, value: &str) {
        self.add(what, value);
        let encoded = STANDARD.encode(value);
        self.add(&format!("{what} in base64"), encoded.trim_end_matches('='));
    }

    /// Every line of every private key below a directory, and the keys in kubeconfigs.
    fn add_keys(&mut self, data: &Path) {
        for entry in std::fs::read_dir(data.join("pki")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "key") {
                let name = path.display().to_string();
                let text = std::fs::read_to_string(&path).unwrap();
                let lines = text.lines().filter(|line| !line.starts_with("-----"));
                for line in lines.filter(|line| line.len() >= 12) {
                    self.add(&name, line);
                }
                let encoded = STANDARD.encode(&text);
                // Past the first line, which is the same in all of them.
                self.add(&format!("{name} in base64"), &encoded[60..160]);
            }
        }
    }

    fn are_not_in(&self, log: &str) {
        assert!(self.0.len() > 40, "only {} secrets", self.0.len());
        for (what, secret) in &self.0 {
            if let Some(at) = log.find(secret.as_str()) {
                let start = log[..at].rfind('\n').map_or(0, |n| n + 1);
                let line: String = log[start..at].chars().take(400).collect();
                panic!("{what} is in the log, after: {line}");
            }
        }
    }
}

fn kyanite(server: &Server, words: &str) -> Finished {
    let mut command = Command::new(KYANITE);
    command
        .args(words.split_whitespace())
        .env("KYANITE_DATA_DIR", server.home().join("data"))
        .env("HOME", server.home());
    Finished::run(&mut command, "")
}

fn whole_log(server: &Server) -> String {
    let bytes = std::fs::read(server.home().join("log")).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn use_bootstrap_tokens(kubectl: &Kubectl, secrets: &mut Secrets) {
    let made = kyanite(&kubectl.server, "token create -o json").ok().json();
    let token = made["token"].as_str().unwrap();
    secrets.add_value("a bootstrap token", token);
    let half = token.split_once('.').unwrap().1;
    secrets.add_value("half of a bootstrap token", half);
    kubectl.server.bearer(token).whoami().ok();
    login(kubectl, token, 0);
    kubectl.run("-n kube-system get secrets -o yaml").ok();
    // Nearly right ones are as good as a hint.
    let wrong = format!("{}x", &token[..token.len() - 1]);
    kubectl.server.bearer(&wrong).whoami();
    secrets.add("a wrong bootstrap token", &wrong);
    kyanite(&kubectl.server, "token list").ok();
}

/// Uses a token, and no certificate, with kubectl, which speaks HTTP/2.
fn login(kubectl: &Kubectl, token: &str, code: i32) {
    let server = &kubectl.server;
    let address = format!("https://127.0.0.1:{}", server.port());
    let authority = server.home().join("data/pki/ca.crt");
    let authority = authority.to_str().unwrap();
    let args = ["--kubeconfig", "/dev/null", "--server", &address];
    let more = ["--certificate-authority", authority, "--token", token];
    kubectl
        .args(&[&args[..], &more[..], &["auth", "whoami"]].concat())
        .exits_with(code);
}

fn use_account_tokens(kubectl: &Kubectl, secrets: &mut Secrets) {
    let server = &kubectl.server;
    kubectl.run("create sa robot").ok();
    let token = kubectl
        .run("create token robot")
        .ok()
        .stdout
        .trim()
        .to_owned();
    secrets.add_jwt("an account's token", &token);
    server.bearer(&token).whoami().ok();
    login(kubectl, &token, 0);
    server.bearer(format!("{token}A")).whoami().unauthorized();
    login(kubectl, &format!("{token}A"), 1);
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let status = server.admin().post(path, &review).ok()["status"].clone();
    assert_eq!(status["authenticated"], true);
    // One that stands in a secret.
    kubectl.create(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: robot-token, annotations: \
         {kubernetes.io/service-account.name: robot}}\ntype: kubernetes.io/service-account-token\n",
    );
    let stored = eventually("the secret is filled", || {
        match kubectl.field("secret robot-token", ".data.token") {
            token if token.is_empty() => Err(token),
            token => Ok(token),
        }
    });
    secrets.add("a stored token in base64", &stored);
    let stored = String::from_utf8(STANDARD.decode(stored).unwrap()).unwrap();
    secrets.add_jwt("a stored token", &stored);
    server.bearer(&stored).whoami().ok();
    kubectl.run("delete sa robot").ok();
    server.bearer(&token).whoami().unauthorized();
}

fn use_secrets(kubectl: &Kubectl, secrets: &mut Secrets) {
    let value = "correct horse battery staple";
    secrets.add_value("a secret", value);
    let changed = "tr0ub4dor and three more";
    secrets.add_value("a changed secret", changed);
    let args = ["create", "secret", "generic", "s", "--from-literal"];
    let literal = format!("password={value}");
    kubectl.args(&[&args[..], &[&literal]].concat()).ok();
    kubectl.run("get secret s -o yaml").ok();
    let server = &kubectl.server;
    let admin = server.admin();
    let path = "/api/v1/namespaces/default/secrets";
    let patch = json!({"stringData": {"password": changed}});
    admin.patch(&format!("{path}/s"), &patch).ok();
    admin
        .get(&format!("{path}?watch=true&timeoutSeconds=1"))
        .ok();
    // What is refused is not told to the log either.
    let secret = "another value nobody knows";
    secrets.add_value("a refused secret", secret);
    let named = |name: &str, data: Value| json!({"metadata": {"name": name}, "stringData": data});
    let bad_key = named("t", json!({"bad/key": secret}));
    assert_eq!(admin.post(path, &bad_key).code, 422);
    let no_text = json!({"metadata": {"name": "t"}, "data": {"k": format!("{secret}!")}});
    assert_eq!(admin.post(path, &no_text).code, 400);
    assert_eq!(
        admin.post(path, &named("s", json!({"k": secret}))).code,
        409
    );
    let stale =
        json!({"metadata": {"name": "s", "resourceVersion": "1"}, "stringData": {"k": secret}});
    assert_eq!(admin.put(&format!("{path}/s"), &stale).code, 409);
    let apply = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{password: {secret}}}\n"
    );
    kubectl.with_input("apply --server-side -f -", &apply);
    kubectl.run("delete secret s").ok();
}

/// Credentials where none belong: in the address and in a request that is not HTTP.
fn use_wrong_places(server: &Server, secrets: &mut Secrets) {
    let misplaced = "misplaced-bearer-token-0123456789";
    secrets.add("a token as a parameter", misplaced);
    let basic = STANDARD.encode("admin:hunter2hunter2");
    secrets.add("a password", &basic);
    server.block_on(async {
        for request in [
            format!("GET /api/v1/pods?token={misplaced} HTTP/1.1\r\nhost: a\r\n\r\n"),
            format!("GET /api HTTP/1.1\r\nhost: a\r\nauthorization: Basic {basic}\r\n\r\n"),
            format!(
                "GET /api HTTP/1.1\r\nauthorization: Bearer {misplaced} x\r\nbad header\r\n\r\n"
            ),
        ] {
            let mut connection = RawConnection::open(server).await;
            connection.write(request.as_bytes()).await.unwrap();
            connection.read_until("HTTP/1.1 ").await;
        }
    });
}

#[test]
fn no_secret_is_in_the_log_of_a_server_that_logs_everything() {
    let options = ServerOptions {
        flags: vec!["--log-level", "trace"],
    };
    let Some(kubectl) = Kubectl::start_with(options) else {
        return;
    };
    let server = &kubectl.server;
    let mut secrets = Secrets::default();
    let data = server.home().join("data");
    secrets.add_keys(&data);
    use_bootstrap_tokens(&kubectl, &mut secrets);
    use_account_tokens(&kubectl, &mut secrets);
    use_secrets(&kubectl, &mut secrets);
    use_wrong_places(server, &mut secrets);
    kyanite(server, "certs rotate").ok();
    secrets.add_keys(&data);
    kyanite(server, "certs rotate --ca").ok();
    kyanite(server, "certs rotate service-account").ok();
    secrets.add_keys(&data);
    kyanite(server, "certs list").ok();
    kyanite(server, "status").ok();
    kubectl.server.admin().whoami().ok();
    let log = whole_log(server);
    assert!(log.contains("TRACE"), "the log is not as verbose as can be");
    secrets.are_not_in(&log);
}

#[test]
fn nothing_in_the_data_directory_is_for_others() {
    let server = Server::start();
    kyanite(&server, "token create").ok();
    kyanite(&server, "certs rotate --ca").ok();
    let mut unseen = vec![server.home().join("data")];
    let mut seen = 0;
    while let Some(path) = unseen.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let mode = meta.permissions().mode() & 0o777;
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
        seen += 1;
        if meta.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap();
            unseen.extend(entries.map(|entry| entry.unwrap().path()));
        }
    }
    assert!(seen > 20, "only {seen} files");
}
