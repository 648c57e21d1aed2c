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
    find_program, skip,
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
    Process::new(command.spawn().expect("the agent can be started"))
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
    without_its_agent_the_node_is_out_of_reach(&mut cluster);
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
