//! The konnectivity server inside `kyanite up`, and agents that join with what it wrote.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::by_tunnel::{
    Cluster, Tunnel, everything_reaches_the_node, streams_pass_by,
    without_its_agent_the_node_is_out_of_reach,
};
use crate::harness::{
    Finished, KYANITE, LOG, Namespace, Pki, Process, Server, ServerOptions, eventually,
    find_program, free_port, skip,
};

const AUDIENCE: &str = "system:konnectivity-server";
const TOKEN: &str = "/api/v1/namespaces/kube-system/serviceaccounts/konnectivity-agent/token";

/// A cluster whose server waits for an agent; nothing on a machine without namespaces.
fn waiting() -> Option<Cluster> {
    let namespace = Namespace::make()?;
    let server = Server::start_with(ServerOptions {
        flags: vec!["--konnectivity-agent-port=0"],
    });
    let (keys, dir) = (Pki::new(), tempfile::tempdir().unwrap());
    let nobody = Tunnel {
        _server: None,
        agent: None,
    };
    Some(Cluster::of(server, nobody, namespace, keys, dir))
}

/// The port for agents, as the server says it.
fn agent_port(server: &Server) -> u16 {
    let state = eventually("the server says where it is", || {
        let text = std::fs::read_to_string(server.home().join("data/state.json"));
        text.map_err(|e| e.to_string())
    });
    let state: Value = serde_json::from_str(&state).unwrap();
    let address = state["konnectivity"]
        .as_str()
        .expect("where agents connect");
    address.rsplit_once(':').unwrap().1.parse().unwrap()
}

/// A token of the agents' service account, in a file.
fn token(server: &Server, audience: &str) -> PathBuf {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                         "spec": {"audiences": [audience]}});
    let made = eventually("the agents' service account is there", || {
        let answer = server.admin().post(TOKEN, &request);
        (answer.code == 201)
            .then_some(answer.body.clone())
            .ok_or(format!("{:#}", answer.body))
    });
    let file = server.home().join("agent-token");
    std::fs::write(&file, made["status"]["token"].as_str().unwrap()).unwrap();
    file
}

/// Starts an agent in the cluster's namespace; the port there leads to the server's.
fn join(cluster: &Cluster, program: &[&Path], token: &Path) -> Process {
    let server = &cluster.server;
    let port = agent_port(server);
    let port = server.block_on(async { cluster.namespace.door_to(port) });
    let authority = server.home().join("data/pki/ca.crt");
    let mut command = cluster.namespace.command(program[0]);
    command
        .args(&program[1..])
        .arg("--proxy-server-host=127.0.0.1")
        .arg(format!("--proxy-server-port={port}"))
        .arg(format!("--ca-cert={}", authority.display()))
        .arg(format!("--service-account-token-path={}", token.display()))
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    Process::spawn(&mut command)
}

const OURS: [&str; 2] = [KYANITE, "konnectivity-agent"];

#[test]
fn an_agent_joins_a_cluster_with_what_it_wrote_and_everything_travels() {
    let Some(mut cluster) = waiting() else {
        return;
    };
    let token = token(&cluster.server, AUDIENCE);
    let agent = join(&cluster, &OURS.map(Path::new), &token);
    cluster.tunnel.agent = Some(agent);
    everything_reaches_the_node(&cluster);
    streams_pass_by(&cluster);
    kubectl_reads_a_log(&cluster.server);
    status_names_it(&cluster.server);
    without_its_agent_the_node_is_out_of_reach(&mut cluster);
}

fn status_names_it(server: &Server) {
    let data = server.home().join("data");
    let status = |words: &[&str]| {
        let mut command = Command::new(KYANITE);
        command.arg("status").args(words).arg("--data-dir");
        Finished::run(command.arg(&data), "").ok()
    };
    let told = status(&["-o", "json"]).json();
    let agents = told["agents"].as_array().expect("the agents");
    assert_eq!(agents.len(), 1, "{told}");
    assert!(agents[0]["id"].is_string(), "{told}");
    status(&[]).prints("1 agents connected");
}

fn kubectl_reads_a_log(server: &Server) {
    let Some(program) = find_program("KUBECTL", "kubectl") else {
        return skip("kubectl not found on PATH or in KUBECTL");
    };
    let mut command = Command::new(program);
    command
        .env("KUBECONFIG", server.kubeconfig())
        .env("HOME", server.home());
    let logs = Finished::run(command.args(["logs", "p"]), "").ok();
    assert_eq!(logs.stdout, LOG);
}

#[test]
fn upstreams_agent_joins_as_well() {
    let bin = std::env::var_os("UPSTREAM_BIN").map(PathBuf::from);
    let Some(program) = bin
        .map(|bin| bin.join("proxy-agent"))
        .filter(|p| p.is_file())
    else {
        return skip("no proxy-agent in UPSTREAM_BIN (make upstream, scripts/env)");
    };
    let Some(mut cluster) = waiting() else {
        return;
    };
    let token = token(&cluster.server, AUDIENCE);
    cluster.tunnel.agent = Some(join(&cluster, &[&program], &token));
    everything_reaches_the_node(&cluster);
    without_its_agent_the_node_is_out_of_reach(&mut cluster);
}

#[test]
fn an_agent_whose_token_is_for_somebody_else_is_refused() {
    let Some(mut cluster) = waiting() else {
        return;
    };
    let token = token(&cluster.server, "https://kubernetes.default.svc");
    let agent = join(&cluster, &OURS.map(Path::new), &token);
    cluster.tunnel.agent = Some(agent);
    eventually("the agent is refused", || {
        let log = std::fs::read_to_string(cluster.server.home().join("log")).unwrap();
        let refused = log.contains("Failed to validate authentication token");
        refused.then_some(()).ok_or(log)
    });
    let answer = cluster.server.admin().get("/api/v1/nodes/n/proxy/healthz");
    assert_eq!(answer.code, 503, "{:#}", answer.body);
    let said = answer.body["message"].as_str().unwrap();
    assert!(said.contains("No agent available"), "{said}");
}

/// A metric of the agent at this port, summed over its labels.
fn metric(port: u16, name: &str) -> Result<u64, String> {
    use std::io::{Read as _, Write as _};
    let broken = |error: std::io::Error| error.to_string();
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).map_err(broken)?;
    let ask = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(ask.as_bytes()).map_err(broken)?;
    let mut page = String::new();
    stream.read_to_string(&mut page).map_err(broken)?;
    let name = format!("konnectivity_network_proxy_agent_{name}");
    let values = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(&*name)?;
        (rest.starts_with([' ', '{'])).then(|| rest.rsplit(' ').next()?.parse::<u64>().ok())?
    });
    Ok(values.sum())
}

#[test]
fn an_agent_that_counts_leases_watches_them() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let server = Server::start_alone();
    for name in ["s1", "s2"] {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "labels": {"k8s-app": "konnectivity-server"}},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 3600,
                     "renewTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()}});
        server.admin().post(LEASES, &lease).ok();
    }
    let port = free_port();
    let mut command = Command::new(KYANITE);
    command
        .args([
            "konnectivity-agent",
            "--proxy-server-host=127.0.0.1",
            "--admin-server-port=0",
        ])
        .arg(format!("--proxy-server-port={}", free_port()))
        .arg(format!("--health-server-port={port}"))
        .args([
            "--sync-interval=100ms",
            "--sync-interval-cap=200ms",
            "--count-server-leases",
        ])
        .arg(format!("--kubeconfig={}", server.kubeconfig().display()))
        .arg(format!(
            "--ca-cert={}",
            server.home().join("data/pki/ca.crt").display()
        ))
        .env("HOME", server.home())
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let _agent = Process::spawn(&mut command);
    let knows = |servers: u64| {
        eventually("the agent knows how many servers there are", || {
            let known = metric(port, "known_server_count")?;
            (known == servers).then_some(()).ok_or(format!("{known}"))
        });
    };
    knows(2);
    server.admin().delete(&format!("{LEASES}/s1")).ok();
    knows(1);
    assert_eq!(metric(port, "lease_lists_total"), Ok(1));
    assert!(metric(port, "lease_watches_total").unwrap() >= 1);
}
