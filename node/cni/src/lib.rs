//! A CNI plugin: attaches pods to the network of their node.
//!
//! A runtime starts it for each pod with a verb in the environment and a configuration on standard input
//! ([`call`], [`conf`]); it answers with a [`result`] or an [`error`] on standard output, as the CNI specification
//! 1.1.0 and its older versions say.
//!
//! Two ways to connect pods: *overlay*, where each pod is alone on its cable and the node routes, and *kubenet*, where
//! pods are on a bridge. Address management and ports of the node are part of both ([`ipam`]), and so are the names
//! `bridge`, `portmap` and `loopback` of the reference plugins.
//!
//! Whatever is made stands in the books before (`ledger`), under a lock that is held for a moment only. A call that is
//! killed anywhere leaves something that the next call repairs: another ADD, the DEL that must follow, a GC, or, when
//! addresses run out, a look at which pods still live.

mod attach;
mod bandwidth;
pub mod call;
mod check;
mod cleanup;
pub mod conf;
pub mod error;
mod firewall;
pub mod ipam;
mod ledger;
mod links;
mod namespace;
mod netlink;
pub mod result;
mod stand_in;
pub mod template;

use call::{Call, Verb};
use conf::{Conf, Role};
use error::{Code, Error};
use ipnet::IpNet;
use result::{VERSIONS, Version};
use serde_json::{Value, json};

/// Answers a call: what goes to standard output, or nothing.
pub fn answer(call: &Call, input: &str) -> Result<Option<Value>, Error> {
    if call.verb == Verb::Version {
        return versions(input).map(Some);
    }
    let conf = Conf::read(input)?;
    allowed(call.verb, conf.version)?;
    let outcome = match (call.verb, conf.role) {
        (Verb::Add, Role::Loopback) => stand_in::add_loopback(call, &conf)?,
        (Verb::Add, Role::Portmap) => stand_in::add_ports(call, &conf)?,
        (Verb::Add, _) => attach::add(call, &conf)?,
        (verb, role) => return silent(verb, role, call, &conf).map(|()| None),
    };
    Ok(Some(outcome.to_json(conf.version)))
}

fn silent(verb: Verb, role: Role, call: &Call, conf: &Conf) -> Result<(), Error> {
    match (verb, role) {
        (Verb::Del, Role::Loopback) => stand_in::del_loopback(call),
        (Verb::Del, _) => cleanup::del(call, conf),
        (Verb::Check, Role::Loopback) => stand_in::check_loopback(call),
        (Verb::Check, _) => check::check(call, conf),
        (Verb::Gc, Role::Loopback) => Ok(()),
        (Verb::Gc, _) => cleanup::gc(conf),
        (Verb::Status, _) => check::status(conf),
        (Verb::Add | Verb::Version, _) => Ok(()),
    }
}

fn allowed(verb: Verb, version: Version) -> Result<(), Error> {
    let (name, since) = match verb {
        Verb::Check => ("CHECK", Version::CHECK),
        Verb::Gc => ("GC", Version::GC),
        Verb::Status => ("STATUS", Version::GC),
        _ => return Ok(()),
    };
    if version >= since {
        return Ok(());
    }
    let message = format!("config version does not allow {name}");
    Err(Error::new(Code::IncompatibleVersion, message))
}

fn versions(input: &str) -> Result<Value, Error> {
    let asked: Value = serde_json::from_str(input).unwrap_or_default();
    let version = asked["cniVersion"].as_str();
    let version = version.unwrap_or(Version::NEWEST.text());
    Ok(json!({"cniVersion": version, "supportedVersions": VERSIONS}))
}

/// Lets what pods send out of the cluster have the node's address, whatever plugin attached them: the job of AKS'
/// `ip-masq-agent`. Pods' ranges and those `inside` see pods' own addresses. No ranges take the rules away.
pub fn masquerade(pods: &[IpNet], inside: &[IpNet]) -> Result<(), Error> {
    let base = firewall::Base {
        masquerade: true,
        pods: pods.to_vec(),
        inside: inside.to_vec(),
    };
    let books = ledger::Ledger {
        base,
        ..ledger::Ledger::default()
    };
    firewall::follow("kyanite-masquerade", &books)
}

/// Dies as if killed, when a test wants it to die here.
fn killed_at(step: &str) {
    if cfg!(debug_assertions) && std::env::var("KYANITE_CNI_KILLED_AT").is_ok_and(|at| at == step) {
        let this = rustix::process::getpid();
        let _ = rustix::process::kill_process(this, rustix::process::Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_whatever_is_asked() {
        let told = versions(r#"{"cniVersion": "0.3.1"}"#).expect("versions");
        assert_eq!(told["cniVersion"], "0.3.1");
        assert_eq!(told["supportedVersions"].as_array().map(Vec::len), Some(7));
        assert!(versions("").is_ok());
    }

    #[test]
    fn verbs_are_refused_before_the_version_that_brought_them() {
        for (verb, version, allows) in [
            (Verb::Check, "0.3.1", false),
            (Verb::Check, "0.4.0", true),
            (Verb::Gc, "1.0.0", false),
            (Verb::Status, "1.1.0", true),
            (Verb::Add, "0.1.0", true),
        ] {
            let version = Version::parse(version).expect("a version");
            assert_eq!(allowed(verb, version).is_ok(), allows, "{verb:?}");
        }
    }
}
