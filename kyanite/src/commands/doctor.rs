//! `kyanite doctor`: what is wrong with the cluster, and the next step.

use serde_json::{Value, json};

use super::machine;
use crate::cli::doctor::Doctor;
use crate::client::Client;
use crate::datadir::DataDir;
use crate::doctor::{Finding, Machine, World, findings};
use crate::exit::{Code, Failure, Result};
use crate::printer::Printer;

/// How the names of a cluster's machines begin, as a scale set's do.
const NODE_PREFIX: &str = "aks-";

/// Prints what is wrong; the exit code says whether anything is.
pub(super) async fn run(command: Doctor, printer: &Printer) -> Result<()> {
    let dir = DataDir::find(&command.place)?;
    let client = Client::of_running(&dir).await?;
    let world = look(&client, &dir, machines(&command, &dir)).await?;
    let is_asked_for = |finding: &Finding| {
        let asked = command.about.as_deref();
        asked.is_none_or(|name| finding.about.contains(name) || finding.next.contains(name))
    };
    let found: Vec<Finding> = findings(&world).into_iter().filter(is_asked_for).collect();
    let value: Vec<Value> = found
        .iter()
        .map(|f| json!({"about": f.about, "wrong": f.wrong, "next": f.next}))
        .collect();
    if found.is_empty() {
        let text = format!(
            "nothing is wrong with {} nodes and {} pods",
            world.nodes.len(),
            world.pods.len()
        );
        printer.result(&text, &json!(value));
        return Ok(());
    }
    let lines: Vec<String> = found
        .iter()
        .map(|f| format!("{}\n  wrong  {}\n  next   {}", f.about, f.wrong, f.next))
        .collect();
    printer.result(&lines.join("\n"), &json!(value));
    let what = match found.len() {
        1 => "1 thing is wrong".to_owned(),
        many => format!("{many} things are wrong"),
    };
    Err(Failure::new(Code::Failure, what))
}

// Without root there are none to see, and nothing to say about them.
fn machines(command: &Doctor, dir: &DataDir) -> Vec<Machine> {
    if !dir.path().join("machines").exists() {
        return Vec::new();
    }
    let listed = machine::driver(&command.place).and_then(|driver| Ok(driver.list()?));
    let machines = listed.unwrap_or_default().into_iter();
    // Others were booted by hand, for whatever they are for.
    machines
        .filter(|machine| machine.name.starts_with(NODE_PREFIX))
        .map(|machine| Machine {
            is_running: machine.state == machines::State::Running,
            name: machine.name,
        })
        .collect()
}

async fn look(client: &Client, dir: &DataDir, machines: Vec<Machine>) -> Result<World> {
    let list = async |path: &str| -> Result<Vec<Value>> {
        let answer = client.get(path).await?;
        Ok(answer["items"].as_array().cloned().unwrap_or_default())
    };
    Ok(World {
        now: jiff::Timestamp::now(),
        nodes: list("/api/v1/nodes").await?,
        pods: list("/api/v1/pods").await?,
        events: list("/api/v1/events").await?,
        requests: list("/apis/certificates.k8s.io/v1/certificatesigningrequests").await?,
        deployments: list("/apis/apps/v1/deployments").await?,
        machines,
        free_disk: free_disk(dir),
    })
}

// As `df` counts: what only root may use is not free.
fn free_disk(dir: &DataDir) -> Option<u64> {
    let disk = rustix::fs::statvfs(dir.path()).ok()?;
    let used = disk.f_blocks.saturating_sub(disk.f_bfree);
    let all = used + disk.f_bavail;
    (all > 0).then(|| disk.f_bavail * 100 / all)
}
