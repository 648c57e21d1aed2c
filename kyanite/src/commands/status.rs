//! `kyanite status`: whether it runs, where, and how it is.

use serde_json::{Value, json};

use super::certs;
use crate::admin;
use crate::cli::Place;
use crate::datadir::DataDir;
use crate::exit::{Code, Failure, Result};
use crate::pki::Pki;
use crate::printer::Printer;

/// Prints the status; exit code 6 when nothing runs.
pub(super) fn run(place: &Place, printer: &Printer) -> Result<()> {
    let dir = DataDir::find(place)?;
    let Some(state) = dir.running()? else {
        return Err(Failure::new(Code::Unavailable, "kyanite is not running")
            .hint("start it with `kyanite up`"));
    };
    let store = admin::ask(&dir.socket(), &json!({"ask": "stats"}))?;
    let pki = Pki::at(dir.pki(), std::time::SystemTime::now());
    let certificates = certs::report(&pki, jiff::Timestamp::now())?;
    let soonest = certificates.first().cloned().unwrap_or_default();
    let number = |field: &str| store[field].as_u64().unwrap_or(0);
    let read_only = store["readOnly"].as_str();
    let mut lines = vec![
        format!("server       {}", state.server),
        format!("pid          {}", state.pid),
        format!("started      {}", state.started),
        format!("data         {}", dir.path().display()),
        format!(
            "store        {} keys, revision {}, {} KiB on disk",
            number("keys"),
            number("revision"),
            number("diskBytes") / 1024
        ),
        format!(
            "certificates valid until {} ({} days; `{}` is the first to end)",
            soonest["expires"].as_str().unwrap_or_default(),
            soonest["daysLeft"],
            soonest["name"].as_str().unwrap_or_default()
        ),
    ];
    let agents = admin::ask(&dir.socket(), &json!({"ask": "agents"}))?["agents"].take();
    if let Some(address) = &state.konnectivity {
        lines.push(tunnels(address, &agents));
    }
    if let Some(cause) = read_only {
        lines.push(format!("READ-ONLY    {cause}"));
    }
    let value: Value = json!({"running": true, "server": state.server, "pid": state.pid, "started": state.started,
        "dataDir": dir.path(), "kubeconfig": state.kubeconfig, "konnectivity": state.konnectivity, "agents": agents,
        "store": store, "certificateExpires": soonest["expires"], "certificates": certificates});
    printer.result(&lines.join("\n"), &value);
    Ok(())
}

/// Where agents connect to, and who has.
fn tunnels(address: &str, agents: &Value) -> String {
    let agents = agents.as_array().map(Vec::as_slice).unwrap_or_default();
    let lines = agents.iter().map(|agent| {
        let hosts = agent["hosts"].as_array().into_iter().flatten();
        let hosts: Vec<&str> = hosts.filter_map(Value::as_str).collect();
        let who = match hosts.is_empty() {
            true => String::new(),
            false => format!(" for {}", hosts.join(", ")),
        };
        let id = agent["id"].as_str().unwrap_or_default();
        let count = agent["connections"].as_u64().unwrap_or(0);
        format!("\n             {id}{who}, {count} connections")
    });
    format!(
        "konnectivity at {address}, {} agents connected{}",
        agents.len(),
        lines.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_shown_with_whom_they_speak_for() {
        let agents = json!([{"id": "a", "hosts": ["10.0.0.4", "node-1"], "connections": 2},
                            {"id": "b", "hosts": [], "connections": 0}]);
        let expected = "konnectivity at 10.0.0.1:8132, 2 agents connected
             a for 10.0.0.4, node-1, 2 connections
             b, 0 connections";
        assert_eq!(tunnels("10.0.0.1:8132", &agents), expected);
        let nobody = "konnectivity at 10.0.0.1:8132, 0 agents connected";
        assert_eq!(tunnels("10.0.0.1:8132", &json!([])), nobody);
    }
}
