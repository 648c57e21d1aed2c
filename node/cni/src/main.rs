//! `kyanite-cni`: the plugin as runtimes call it, and the writer of its configuration.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use cni::call::Call;
use cni::error::{Code, Error};
use cni::result::{VERSIONS, Version};
use cni::template::{CONFLIST, Network};
use ipnet::IpNet;
use serde_json::Value;

const USAGE: &str = "\
usage: kyanite-cni masquerade [--inside CIDR]... --pod-cidr CIDR...
       kyanite-cni conf [--kubenet] [--mtu BYTES] [--inside CIDR]... (--template | --pod-cidr CIDR...) [--to FILE]

`masquerade` lets what the cluster's pods send out of it have the node's address, as AKS' ip-masq-agent does, for
networks whose configuration does not say so (AKS' own of kubenet). Without ranges it ends that.

`conf` writes the network's configuration: for a node with these pod ranges (one for each family), or as a template for
containerd's `conf_template`. --inside names a range whose members see pods' own addresses: the cluster's pods.
Without --to it goes to standard output; `--to` alone takes the usual place.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match (std::env::var("CNI_COMMAND"), arguments.split_first()) {
        (Ok(_), _) => plugin(),
        (Err(_), Some((first, rest))) if first == "conf" => configuration(rest),
        (Err(_), Some((first, rest))) if first == "masquerade" => masquerade(rest),
        (Err(_), Some(_)) => usage("this is no command"),
        (Err(_), None) => {
            let about = format!(
                "kyanite-cni {}, a CNI plugin; CNI versions {}\n{USAGE}",
                env!("CARGO_PKG_VERSION"),
                VERSIONS.join(", ")
            );
            tell(&about);
            ExitCode::SUCCESS
        }
    }
}

fn plugin() -> ExitCode {
    let mut input = String::new();
    let read = std::io::stdin().read_to_string(&mut input);
    let read = read.map_err(|e| Error::new(Code::Io, "cannot read standard input").because(e));
    let answered = read
        .and_then(|_| Call::read(|name| std::env::var(name).ok()))
        .and_then(|call| cni::answer(&call, &input));
    match answered {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(value)) => print(&value.to_string()),
        Err(error) => {
            // Whoever asked in a version reads errors of that version.
            let asked: Value = serde_json::from_str(&input).unwrap_or_default();
            let version = asked["cniVersion"].as_str();
            let version = version.unwrap_or(Version::NEWEST.text());
            print(&error.to_json(version).to_string());
            ExitCode::FAILURE
        }
    }
}

fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn tell(text: &str) {
    // Nobody may be listening; that is no failure.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn usage(wrong: &str) -> ExitCode {
    tell(&format!("kyanite-cni: {wrong}\n{USAGE}"));
    ExitCode::from(2)
}

/// What a person says after a command.
#[derive(Default)]
struct Flags {
    network: Network,
    ranges: Vec<IpNet>,
    template: bool,
    to: Option<String>,
}

impl Flags {
    fn read(arguments: &[String]) -> Result<Flags, String> {
        let mut flags = Flags::default();
        let mut rest = arguments.iter().peekable();
        while let Some(argument) = rest.next() {
            let value = rest.next_if(|next| !next.starts_with("--"));
            let net = || value.and_then(|text| text.parse::<IpNet>().ok());
            let number = || value.and_then(|text| text.parse::<u32>().ok());
            match argument.as_str() {
                "--kubenet" if value.is_none() => flags.network.bridge = true,
                "--template" if value.is_none() => flags.template = true,
                "--to" => flags.to = Some(value.cloned().unwrap_or(CONFLIST.to_owned())),
                "--mtu" if number().is_some() => flags.network.mtu = number().unwrap_or_default(),
                "--inside" if net().is_some() => flags.network.inside.extend(net()),
                "--pod-cidr" if net().is_some() => flags.ranges.extend(net()),
                _ => return Err(format!("cannot understand `{argument}`")),
            }
        }
        Ok(flags)
    }
}

fn masquerade(arguments: &[String]) -> ExitCode {
    let flags = match Flags::read(arguments) {
        Ok(flags) => flags,
        Err(wrong) => return usage(&wrong),
    };
    match cni::masquerade(&flags.ranges, &flags.network.inside) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("kyanite-cni: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

fn configuration(arguments: &[String]) -> ExitCode {
    let flags = match Flags::read(arguments) {
        Ok(flags) => flags,
        Err(wrong) => return usage(&wrong),
    };
    let text = match (flags.template, flags.ranges.as_slice()) {
        (true, []) => flags.network.template(),
        (true, _) | (false, []) => return usage("either --template or --pod-cidr is needed"),
        (false, ranges) => flags.network.conflist(ranges),
    };
    match flags.to {
        None => print(&text),
        Some(path) => write(&path, &text),
    }
}

// A runtime that looks at the wrong moment sees the old file or the new one.
fn write(path: &str, text: &str) -> ExitCode {
    let new = format!("{path}.new");
    match std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            tell(&format!("kyanite-cni: cannot write `{path}`: {cause}\n"));
            ExitCode::FAILURE
        }
    }
}
