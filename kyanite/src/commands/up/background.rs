//! `kyanite up` as people call it: it starts the server, says how far it is, and what there is at the end.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::AZ_ENV;
use crate::admin;
use crate::cli::Up;
use crate::datadir::{DataDir, State};
use crate::exit::{Code, Failure, Result};
use crate::printer::{Printer, table};

/// How long machines may take that are brought back.
const REPAIR_PATIENCE: Duration = Duration::from_secs(600);

/// What to do next.
const TRY: &str = "Try: PROGRAM demo
     kubectl get pods -A -o wide
     kubectl create deployment web --image=kyanite.local/demo:1 --port=8080 --replicas=3";

/// Starts a server in the background and returns when it is ready.
pub(crate) fn background(up: &Up, printer: &Printer) -> Result<()> {
    let dir = DataDir::find(&up.place)?;
    // One that was killed a moment ago may still hold its lock, but does not answer.
    if let Some(state) = dir.running()?
        && admin::ask(&dir.socket(), &json!({"ask": "stats"})).is_ok()
    {
        let repaired = repair(up, &dir, printer)?;
        return announce(printer, &dir, &state, &repaired);
    }
    dir.prepare()?;
    printer.note(&format!("Starting kyanite in {}", dir.path().display()));
    let mut child = spawn(up, &dir)?;
    let ready = follow(&mut child, &dir, printer)?;
    let state = dir.running()?.ok_or_else(|| ended_early(&dir))?;
    announce(printer, &dir, &state, &ready)
}

// One that runs already brings back the machines it lost, or boots those that are asked for now.
fn repair(up: &Up, dir: &DataDir, printer: &Printer) -> Result<Value> {
    let question = json!({"ask": "repair", "nodes": up.nodes.nodes});
    let answer = admin::ask_patiently(&dir.socket(), &question, REPAIR_PATIENCE)?;
    for machine in answer["booted"].as_array().into_iter().flatten() {
        let name = machine.as_str().unwrap_or_default();
        printer.stage(
            "machine",
            &format!("{name} was not running; it is Ready now"),
            0,
        );
    }
    Ok(answer)
}

fn announce(printer: &Printer, dir: &DataDir, state: &State, told: &Value) -> Result<()> {
    let (name, started) = (dir.name(), told["ready"] == true);
    let mut text = match started {
        false => format!(
            "kyanite runs already at {} (pid {})",
            state.server, state.pid
        ),
        true => format!(
            "kyanite is up at {} (context `{name}` in {})",
            state.server,
            state.kubeconfig.display()
        ),
    };
    if let Some(nodes) = told["nodes"].as_array().filter(|nodes| !nodes.is_empty()) {
        text = format!("{}\n\n{text}", node_table(nodes));
    }
    if started {
        text = format!("{text}\n{}", TRY.replace("PROGRAM", &own_name()));
    }
    if let Some(why) = &state.on_paper {
        text = format!(
            "{text}\nIts nodes are on paper: they take pods and run no containers ({why}). As root, and \
            with containerd and runc (`make up` brings them), `kyanite up` gives real ones."
        );
    }
    if let Some(origin) = &state.cloud {
        text = format!("{text}\nAzure is at {origin}; to use it with az: {AZ_ENV}");
    }
    let value = json!({"running": true, "started": started, "server": state.server, "pid": state.pid,
        "kubeconfig": state.kubeconfig, "context": name, "nodes": told["nodes"], "booted": told["booted"],
        "cloud": state.cloud});
    printer.result(&text, &value);
    Ok(())
}

// What people type to get this program: its name, where a shell finds it by that.
fn own_name() -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|directory| directory.join("kyanite"));
    let own = std::env::current_exe().ok();
    match own.filter(|_| !places.any(|place| place.is_file())) {
        Some(own) => own.display().to_string(),
        None => "kyanite".to_owned(),
    }
}

fn node_table(nodes: &[Value]) -> String {
    let cell = |node: &Value, field: &str| node[field].as_str().unwrap_or("-").to_owned();
    let columns = ["name", "status", "zone", "address", "pods"];
    let rows = nodes
        .iter()
        .map(|node| columns.iter().map(|column| cell(node, column)).collect());
    table(&["NODE", "STATUS", "ZONE", "ADDRESS", "PODS"], rows)
}

// The server is this program again, in a session of its own so that it outlives the terminal.
fn spawn(up: &Up, dir: &DataDir) -> Result<Child> {
    let program = std::env::current_exe().map_err(|e| {
        Failure::new(
            Code::Failure,
            format!("this program cannot find itself: {e}"),
        )
    })?;
    let path = dir.log();
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&path)
        .map_err(|e| Failure::file("open", &path, &e))?;
    let mut command = Command::new(program);
    command
        .args(["up", "--foreground", "--report", "--data-dir"])
        .arg(dir.path());
    command.args(["--name", dir.name()]);
    command.args(["--bind-address", &up.bind_address.to_string()]);
    command.args(up.port.map(|port| format!("--port={port}")));
    if let Some(file) = &up.kubeconfig {
        command.arg("--kubeconfig").arg(file);
    }
    command.args(up.nodes.flags());
    command.args(up.serving.audit.flags());
    command.args(up.way_to_nodes.flags());
    command.args(up.serving.front_door.flags());
    command.arg(format!("--controllers={}", up.controllers.join(",")));
    command.args(up.node_controllers.flags());
    command.args(up.hollow.flags());
    command.args(up.beside.flags());
    command.arg(format!("--scheduler={}", up.scheduler));
    let serving = &up.serving;
    command.args([
        "--service-cluster-ip-range",
        &serving.service_cluster_ip_range.to_string(),
        "--event-ttl",
        &format!("{}ms", serving.event_ttl.as_millis()),
        "--etcd-compaction-interval",
        &format!("{}ms", serving.etcd_compaction_interval.as_millis()),
        "--log-level",
        &serving.logging.log_level,
        "--logging-format",
        match serving.logging.logging_format {
            crate::cli::LogFormat::Text => "text",
            crate::cli::LogFormat::Json => "json",
        },
    ]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .process_group(0);
    command
        .spawn()
        .map_err(|e| Failure::new(Code::Failure, format!("the server cannot be started: {e}")))
}

// Gives what the server says last: that it is ready, and its nodes.
fn follow(child: &mut Child, dir: &DataDir, printer: &Printer) -> Result<Value> {
    let Some(stdout) = child.stdout.take() else {
        return Err(ended_early(dir));
    };
    for line in BufReader::new(stdout).lines().map_while(|line| line.ok()) {
        let Ok(told) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        if told["ready"] == true {
            return Ok(told);
        }
        if let Some(failure) = told.get("error") {
            return Err(failure_of(failure, &told));
        }
        let text = |field: &str| told[field].as_str().unwrap_or_default().to_owned();
        if told.get("waiting").is_some() {
            printer.waiting(&text("waiting"));
            continue;
        }
        let millis = told["millis"].as_u64().unwrap_or(0);
        printer.stage(&text("stage"), &text("detail"), u128::from(millis));
    }
    Err(ended_early(dir))
}

fn failure_of(message: &Value, told: &Value) -> Failure {
    let code = match told["code"].as_u64() {
        Some(2) => Code::Usage,
        Some(3) => Code::NotFound,
        Some(4) => Code::Conflict,
        Some(5) => Code::Permission,
        Some(6) => Code::Unavailable,
        _ => Code::Failure,
    };
    let failure = Failure::new(code, message.as_str().unwrap_or_default());
    match told["hint"].as_str() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn ended_early(dir: &DataDir) -> Failure {
    let log = std::fs::read_to_string(dir.log()).unwrap_or_default();
    let last = log
        .lines()
        .next_back()
        .unwrap_or("it said nothing")
        .to_owned();
    Failure::new(
        Code::Failure,
        format!("the server ended while starting: {last}"),
    )
    .hint(format!("the whole log is in {}", dir.log().display()))
}
