//! `kyanite policy`: network policies, kept and explained.

use std::net::IpAddr;
use std::path::PathBuf;

use client_runtime::Connection;
use network::policy::evaluate::Attempt;
use network::policy::model::World;
use network::policy_agent::{self, Config, Error};
use network::{Family, Protocol};
use serde_json::json;

use super::serve;
use crate::cli::policy::{Agent, Explain, PolicyCommand, Transport};
use crate::exit::{Code, Failure, Result};
use crate::logging;
use crate::printer::Printer;

/// Runs the command that was asked for.
pub(super) async fn run(command: PolicyCommand, printer: &Printer) -> Result<()> {
    match command {
        PolicyCommand::Explain(question) => explain(question, printer).await,
        PolicyCommand::Agent(flags) => agent(flags).await,
    }
}

async fn agent(flags: Agent) -> Result<()> {
    logging::start(&flags.logging)?;
    if flags.cleanup {
        return Ok(policy_agent::cleanup().await?);
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let node = flags.hostname_override.unwrap_or(host);
    let config = Config {
        connection: flags
            .kubeconfig
            .map_or(Connection::InCluster, Connection::Kubeconfig),
        node: node.trim().to_lowercase(),
        daemon_set: flags.daemon_set,
    };
    Ok(policy_agent::run(config, serve::told_to_stop()).await?)
}

async fn explain(question: Explain, printer: &Printer) -> Result<()> {
    let home = || {
        std::env::var_os("HOME")
            .map(PathBuf::from)
            .unwrap_or_default()
    };
    let kubeconfig = question
        .kubeconfig
        .clone()
        .unwrap_or_else(|| home().join(".kube/config"));
    let world = policy_agent::world(&Connection::Kubeconfig(kubeconfig)).await?;
    let attempt = attempt(&question, &world)?;
    let verdict = world.evaluate(&attempt);
    let reasons: Vec<String> = verdict.reasons.iter().map(ToString::to_string).collect();
    let said = if verdict.allowed { "allowed" } else { "denied" };
    let text = format!(
        "{} to {}: {said}\n  {}",
        question.from,
        question.to,
        reasons.join("\n  ")
    );
    printer.result(
        &text,
        &json!({ "allowed": verdict.allowed, "reasons": reasons }),
    );
    Ok(())
}

fn attempt(question: &Explain, world: &World) -> Result<Attempt> {
    let wrong = |text: String| Failure::new(Code::Usage, text);
    let (host, port) = question.to.rsplit_once(':').ok_or_else(|| {
        wrong(format!(
            "{:?} names no port; write namespace/pod:port",
            question.to
        ))
    })?;
    let port = port
        .parse()
        .map_err(|_| wrong(format!("{port:?} is not a port")))?;
    let to = addresses(host.trim_matches(['[', ']']), world)?;
    let from = addresses(&question.from, world)?;
    // Both sides by the same family.
    let pairs = to
        .iter()
        .flat_map(|to| from.iter().map(move |from| (*from, *to)));
    let mut pairs = pairs.filter(|(from, to)| Family::of(*from) == Family::of(*to));
    let (from, to) = pairs
        .next()
        .ok_or_else(|| wrong("the two have no address of the same family".into()))?;
    let protocol = match question.protocol {
        Transport::Tcp => Protocol::Tcp,
        Transport::Udp => Protocol::Udp,
        Transport::Sctp => Protocol::Sctp,
    };
    Ok(Attempt {
        from,
        to,
        protocol,
        port,
    })
}

fn addresses(text: &str, world: &World) -> Result<Vec<IpAddr>> {
    if let Ok(ip) = text.parse() {
        return Ok(vec![ip]);
    }
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    let pod = world.pods.get(&(namespace.to_owned(), name.to_owned()));
    let addresses = pod.map(|pod| pod.addresses.clone()).unwrap_or_default();
    if addresses.is_empty() {
        let text = format!("there is no pod {namespace}/{name} with an address");
        return Err(Failure::new(Code::Failure, text));
    }
    Ok(addresses)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match &error {
            Error::Client(client_runtime::Error::File { .. }) => Code::Usage,
            Error::Client(client_runtime::Error::Connection { .. }) | Error::List { .. } => {
                Code::Unavailable
            }
            _ => Code::Failure,
        };
        Failure::new(code, error.to_string())
    }
}
