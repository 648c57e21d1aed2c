//! What kubectl has of a running pod: its output, programs inside it, its ports; and its kubelet.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::kubectl::Kubectl;
use crate::runtime::IMAGE;
use crate::wait::eventually;

/// Both ways in which kubectl speaks to a pod: what it prefers, and what it did before 1.30.
const PROTOCOLS: [&[(&str, &str)]; 2] = [
    &[],
    &[
        ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false"),
        ("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false"),
    ],
];

pub(super) fn run(kubectl: &Kubectl, node: &str) -> Result<()> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port();
    kubectl.with_input("create -f -", &pod(node, port).to_string())?;
    eventually("the pod runs", || {
        kubectl.expect("get pod stays", "{.status.phase}", "Running")
    })?;
    logs(kubectl)?;
    for protocol in PROTOCOLS {
        let kubectl = kubectl.with_settings(protocol);
        exec(&kubectl)?;
        port_forward(&kubectl, port)?;
    }
    let health = kubectl.run(&format!("get --raw /api/v1/nodes/{node}/proxy/healthz"))?;
    ensure!(health == "ok", "the kubelet's health is {health:?}");
    kubectl
        .run("delete pod stays --grace-period=1 --timeout=60s")
        .map(drop)
}

// It answers only on loopback, so that nobody else can come near it.
fn pod(node: &str, port: u16) -> Value {
    let script =
        format!("echo first; echo second; exec /busybox httpd -f -h /etc -p 127.0.0.1:{port}");
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stays"},
        "spec": {"nodeName": node, "hostNetwork": true,
                 "containers": [{"name": "stays", "image": IMAGE, "imagePullPolicy": "Never",
                                 "command": ["/busybox", "sh", "-c", script]}]},
    })
}

fn logs(kubectl: &Kubectl) -> Result<()> {
    eventually("the pod has said something", || {
        let said = kubectl.run("logs stays")?;
        ensure!(said == "first\nsecond\n", "the log is {said:?}");
        Ok(())
    })?;
    let last = kubectl.run("logs stays --tail=1")?;
    ensure!(last == "second\n", "the log's last line is {last:?}");
    kubectl.refused(
        "logs stays -c absent",
        "container absent is not valid for pod stays",
    )
}

fn exec(kubectl: &Kubectl) -> Result<()> {
    let said = kubectl.run("exec stays -- /busybox echo hello")?;
    ensure!(said == "hello\n", "echo says {said:?}");
    let large = "0123456789abcdef".repeat(64 * 1024);
    let back = kubectl.with_input("exec -i stays -- /busybox cat", &large)?;
    ensure!(
        back == large,
        "{} of {} bytes came back",
        back.len(),
        large.len()
    );
    let code = kubectl.args(&[
        "exec",
        "stays",
        "--",
        "/busybox",
        "sh",
        "-c",
        "echo lost >&2; exit 7",
    ]);
    let complaint = format!(
        "{:#}",
        code.err().context("an exit code of 7 is a success")?
    );
    ensure!(
        complaint.contains("lost"),
        "no standard error in {complaint:?}"
    );
    ensure!(
        complaint.contains("exit code 7"),
        "no exit code in {complaint:?}"
    );
    Ok(())
}

fn port_forward(kubectl: &Kubectl, port: u16) -> Result<()> {
    let mut command = kubectl.command()?;
    command.args(["port-forward", "pod/stays", &format!(":{port}")]);
    let mut child = Forwarding(
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?,
    );
    let output = child.0.stdout.take().context("piped above")?;
    // Held to the end: kubectl ends when nobody reads what it says.
    let mut output = BufReader::new(output);
    let mut line = String::new();
    output.read_line(&mut line)?;
    let local: u16 = line
        .split("127.0.0.1:")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .and_then(|port| port.parse().ok())
        .with_context(|| format!("no port in {line:?}"))?;
    // Twice: the second connection shares the stream of the first.
    for _ in 0..2 {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, local))?;
        stream.write_all(b"GET /hostname HTTP/1.0\r\n\r\n")?;
        // What comes after the answer is kubectl's: it may end a connection without ceremony.
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        ensure!(
            answer.starts_with("HTTP/1.1 200"),
            "httpd answers {answer:?}"
        );
    }
    Ok(())
}

/// Ended with the scenario.
struct Forwarding(Child);

impl Drop for Forwarding {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
