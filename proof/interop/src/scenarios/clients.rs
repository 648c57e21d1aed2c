//! Clients in other languages: each is a program in `clients/`, which lists, watches, keeps a store up to date, patches and
//! elects a leader, and says so.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::cluster::Cluster;
use crate::kubectl::run as run_program;
use crate::outcome::Missing;

/// A client: what must be there once set-up has made it, and the command that runs it.
pub(crate) struct Client {
    needs: &'static str,
    command: fn(&Path) -> Command,
}

/// Java: fabric8.
pub(crate) const JAVA: Client = Client {
    needs: "java/target/classes/Clients.class",
    command: |clients| {
        let java = clients.join("java");
        let path = format!("{0}/target/classes:{0}/lib/*", java.display());
        let mut command = Command::new("java");
        command.args(["-cp", &path, "Clients"]);
        command
    },
};

/// Python: the official client.
pub(crate) const PYTHON: Client = Client {
    needs: "python/clients.py",
    command: |clients| {
        let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
        let mut command = Command::new(python);
        command.arg(clients.join("python/clients.py"));
        command
    },
};

/// JavaScript: the official client.
pub(crate) const JAVASCRIPT: Client = Client {
    needs: "javascript/node_modules/@kubernetes/client-node/package.json",
    command: |clients| {
        let mut command = Command::new("node");
        command.arg(clients.join("javascript/clients.js"));
        command
    },
};

/// Runs a client's program to its end.
pub(crate) fn run(cluster: &Cluster<'_>, client: &Client) -> Result<()> {
    let clients = cluster.programs.clients();
    if !clients.join(client.needs).exists() {
        let missing = format!("set-up has not made {}", client.needs);
        return Err(Missing(missing).into());
    }
    let mut command = (client.command)(clients);
    command
        .env("HOME", cluster.dir)
        .env("KUBECONFIG", cluster.pki.file("admin.kubeconfig"));
    let said = run_program(&mut command, "")?;
    ensure!(said.contains("every step passed"), "it said {said:?}");
    Ok(())
}
