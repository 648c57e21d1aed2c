//! What roles that run alone tell about themselves, and to whom.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ::harness::Authority;
use serde_json::json;

use crate::harness::{
    Finished, KYANITE, Process, Server, ServerOptions, eventually, find_program, free_port, skip,
};

/// The roles, with their kubeconfig in a data directory, upstream's name, and a metric of theirs.
const ROLES: [(&str, &str, &str, &str); 2] = [
    (
        "controller-manager",
        "controller-manager.conf",
        "kube-controller-manager",
        "workqueue_adds_total{name=\"namespace\"}",
    ),
    (
        "scheduler",
        "scheduler.conf",
        "kube-scheduler",
        "scheduler_pending_pods{queue=\"active\"}",
    ),
];

#[test]
fn health_is_for_everybody_and_metrics_for_whom_the_api_server_says_so() {
    let Some(curl) = find_program("CURL", "curl") else {
        return skip("curl not found on PATH or in CURL");
    };
    let server = Server::start_with(ServerOptions {
        flags: vec!["--controllers=", "--scheduler=false"],
    });
    let token = token_of_a_monitor(&server);
    let path = |path: PathBuf| path.display().to_string();
    let pki = server.home().join("data/pki");
    let admin = (path(pki.join("admin.crt")), path(pki.join("admin.key")));
    let stranger = Authority::new("nobody's").issue("kubernetes-admin", &["system:masters"], &[]);
    let (cert, key) = stranger.write(server.home(), "stranger");
    let stranger = (path(cert), path(key));
    for (role, file, component, metric) in ROLES {
        let port = free_port();
        let mut command = Command::new(KYANITE);
        command
            .args([role, "--bind-address=127.0.0.1", "--leader-elect=false"])
            .arg(format!("--secure-port={port}"))
            .arg(format!("--cert-dir={}", server.home().join(role).display()))
            .arg("--kubeconfig")
            .arg(server.home().join("data").join(file))
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let _running = Process::spawn(&mut command);
        let get = |path: &str, token: Option<&str>| {
            let header = token.map(|token| format!("Authorization: Bearer {token}"));
            let with = header.iter().flat_map(|header| ["-H", header]).collect();
            page(&curl, port, path, with)
        };
        eventually("the port is open", || match get("/healthz", None) {
            (200, text) if text == "ok" => Ok(()),
            other => Err(format!("{other:?}")),
        });
        for path in ["/livez", "/readyz"] {
            assert_eq!(get(path, None), (200, "ok".to_owned()));
        }
        let refused = "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"";
        assert_eq!(get("/metrics", None), (403, refused.to_owned()));
        assert_eq!(get("/metrics", Some("nobody")).0, 401);
        eventually("the role has begun to count", || {
            let (code, text) = get("/metrics", Some(&token));
            assert_eq!(code, 200, "{text}");
            text.contains(metric).then_some(()).ok_or(text)
        });
        let (code, status) = get("/statusz", Some(&token));
        assert_eq!(
            (code, status.starts_with(component)),
            (200, true),
            "{status}"
        );
        for ((cert, key), expected) in [(&admin, 200), (&stranger, 401)] {
            let with = vec!["--cert", cert.as_str(), "--key", key.as_str()];
            assert_eq!(page(&curl, port, "/metrics", with).0, expected, "{cert}");
        }
    }
}

/// A service account that may see what monitors see.
fn token_of_a_monitor(server: &Server) -> String {
    let admin = server.admin();
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "monitor"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin.post(accounts, &account).ok();
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "monitor"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:monitoring"},
        "subjects": [{"kind": "ServiceAccount", "name": "monitor", "namespace": "default"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    admin.post(bindings, &binding).ok();
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let made = admin
        .post(&format!("{accounts}/monitor/token"), &request)
        .ok();
    made["status"]["token"].as_str().unwrap().to_owned()
}

/// A page's code and text.
fn page(curl: &Path, port: u16, path: &str, with: Vec<&str>) -> (u16, String) {
    let mut command = Command::new(curl);
    command.args(["-sk", "-w", "\n%{http_code}"]).args(with);
    let said = Finished::run(command.arg(format!("https://127.0.0.1:{port}{path}")), "");
    let (text, code) = said.stdout.rsplit_once('\n').unwrap_or_default();
    (code.parse().unwrap_or(0), text.to_owned())
}
