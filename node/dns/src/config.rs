//! What the server is told: a Corefile, as AKS mounts it, with what users add by `coredns-custom`.
//!
//! The stanzas clusters use are followed. Others are named in a warning and otherwise let pass, so that one of them
//! does not take the names of a whole cluster away.

mod corefile;
mod rewrite;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use crate::forward::Forward;
use crate::message::{Data, Query, Record, Reply, kind};
use crate::name::Name;
use crate::records::{Pods, Settings};

use corefile::{Directive, parse};
use rewrite::Rewrites;

/// What AKS writes, but for its custom parts.
pub const DEFAULT: &str = "
.:53 {
    errors
    ready
    health
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf
    cache 30
    loop
    reload
    loadbalance
    import custom/*.override
}
import custom/*.server
";

/// Why a configuration is of no use.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read `{path}`: {cause}")]
    File {
        /// Which.
        path: String,
        /// Why not.
        cause: String,
    },
    /// Its form is wrong.
    #[error("{file}:{line}: {problem}")]
    Form {
        /// Which file.
        file: String,
        /// Where in it.
        line: usize,
        /// What is wrong.
        problem: String,
    },
}

/// Everything the server is told.
#[derive(Debug)]
pub struct Config {
    /// Zones and what is done about them.
    pub blocks: Vec<Block>,
    /// The longest time an answer of somebody else is believed.
    pub cache: Duration,
    /// Where to serve health, readiness and metrics.
    pub health: Option<SocketAddr>,
    /// Whether this server can answer.
    pub ready: Option<SocketAddr>,
    /// What it counts.
    pub metrics: Option<SocketAddr>,
    /// What was not understood.
    pub warnings: Vec<String>,
}

/// What is done about names below some zones.
#[derive(Debug)]
pub struct Block {
    zones: Vec<Name>,
    /// Names that stand for others.
    pub rewrites: Rewrites,
    /// The cluster's own names.
    pub kubernetes: Option<Settings>,
    /// Names that are written down.
    pub hosts: Hosts,
    /// Who knows the rest.
    pub forward: Option<Forward>,
}

/// Names that are written down in the configuration.
#[derive(Debug, Default)]
pub struct Hosts {
    entries: Vec<(IpAddr, Name)>,
}

impl Hosts {
    /// The answer, if the name is among them.
    pub fn answer(&self, query: &Query) -> Option<Reply> {
        let mine = self.entries.iter().filter(|(_, name)| *name == query.name);
        let found: Vec<IpAddr> = mine.map(|(ip, _)| *ip).collect();
        let data = found.iter().map(|ip| match ip {
            IpAddr::V4(ip) => Data::A(*ip),
            IpAddr::V6(ip) => Data::Aaaa(*ip),
        });
        let wanted = data.filter(|data| data.kind() == query.kind || query.kind == kind::ANY);
        let answers = wanted
            .map(|data| Record {
                name: query.name.clone(),
                ttl: 3600,
                data,
            })
            .collect();
        (!found.is_empty()).then(|| Reply {
            authoritative: true,
            answers,
            ..Reply::default()
        })
    }
}

impl Config {
    /// Reads a Corefile; what it imports is looked for beside it.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|e| ConfigError::File {
            path: path.display().to_string(),
            cause: e.to_string(),
        })?;
        Config::parse(&text, path)
    }

    /// The same for text that would stand in a file.
    pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
        let mut config = Config {
            blocks: Vec::new(),
            cache: Duration::ZERO,
            health: None,
            ready: None,
            metrics: None,
            warnings: Vec::new(),
        };
        for block in parse(text, path)? {
            config.block_of(&block)?;
        }
        Ok(config)
    }

    /// The block whose zone fits a name best.
    pub fn block(&self, name: &Name) -> Option<&Block> {
        let depth = |block: &&Block| {
            let zones = block.zones.iter().filter(|zone| name.is_under(zone));
            zones.map(|zone| zone.labels().count()).max()
        };
        let fitting = self.blocks.iter().filter(|block| depth(block).is_some());
        // Of equals the first: `max_by_key` would take the last.
        fitting.rev().max_by_key(depth)
    }

    fn block_of(&mut self, directive: &Directive) -> Result<(), ConfigError> {
        let mut block = Block {
            zones: Vec::new(),
            rewrites: Rewrites::default(),
            kubernetes: None,
            hosts: Hosts::default(),
            forward: None,
        };
        for word in &directive.words {
            let word = word.trim_end_matches(',');
            let word = word.strip_prefix("dns://").unwrap_or(word);
            let zone = word.rsplit_once(':').map_or(word, |(zone, _)| zone);
            block
                .zones
                .push(Name::parse(zone).ok_or_else(|| directive.wrong("this is not a zone"))?);
        }
        for plugin in &directive.inner {
            self.plugin(plugin, &mut block)?;
        }
        self.blocks.push(block);
        Ok(())
    }

    fn plugin(&mut self, plugin: &Directive, block: &mut Block) -> Result<(), ConfigError> {
        let first = plugin.words.get(1).map(String::as_str);
        match plugin.words[0].as_str() {
            // What these ask for is always done here, or says nothing.
            "errors" | "log" | "loop" | "reload" | "loadbalance" | "bind" | "debug" => {}
            "health" => self.health = Some(listening(plugin, first, 8080)?),
            "ready" => self.ready = Some(listening(plugin, first, 8181)?),
            "prometheus" => self.metrics = Some(listening(plugin, first, 9153)?),
            "cache" => {
                let seconds = first
                    .map_or(Ok(3600), str::parse)
                    .map_err(|_| plugin.wrong("cache takes a number of seconds"))?;
                self.cache = self.cache.max(Duration::from_secs(seconds));
            }
            "kubernetes" => block.kubernetes = Some(kubernetes(plugin)?),
            "hosts" => block.hosts.entries.extend(hosts(plugin)?),
            "forward" => block.forward = Some(Forward::new(servers(plugin)?)),
            "rewrite" if block.rewrites.take(plugin)? => {}
            other => {
                let line = plugin.line;
                self.warnings.push(format!(
                    "{}:{line}: `{other}` is not followed by this server",
                    plugin.file
                ));
            }
        }
        Ok(())
    }
}

fn listening(plugin: &Directive, text: Option<&str>, port: u16) -> Result<SocketAddr, ConfigError> {
    let Some(text) = text else {
        return Ok(SocketAddr::from(([0, 0, 0, 0], port)));
    };
    let whole = if text.starts_with(':') {
        format!("0.0.0.0{text}")
    } else {
        text.replace("localhost", "127.0.0.1")
    };
    whole
        .parse()
        .map_err(|_| plugin.wrong("this is not an address and port"))
}

fn kubernetes(plugin: &Directive) -> Result<Settings, ConfigError> {
    let is_forward = |zone: &&String| !zone.ends_with(".arpa") && !zone.ends_with(".arpa.");
    let zone = plugin.words.iter().skip(1).find(is_forward);
    let zone = zone.map_or("cluster.local", String::as_str);
    let zone = Name::parse(zone).ok_or_else(|| plugin.wrong("this is not a zone"))?;
    let mut settings = Settings::new(zone);
    settings.ttl = 5;
    settings.pods = Pods::Disabled;
    for option in &plugin.inner {
        let value = option.words.get(1).map(String::as_str);
        match (option.words[0].as_str(), value) {
            ("pods", Some("insecure" | "verified")) => settings.pods = Pods::Insecure,
            ("pods", Some("disabled")) => settings.pods = Pods::Disabled,
            ("ttl", Some(seconds)) => {
                let seconds = seconds.parse().ok().filter(|seconds| *seconds <= 3600);
                settings.ttl =
                    seconds.ok_or_else(|| option.wrong("ttl is a number of seconds up to 3600"))?;
            }
            _ => {}
        }
    }
    Ok(settings)
}

fn hosts(plugin: &Directive) -> Result<Vec<(IpAddr, Name)>, ConfigError> {
    let mut entries = Vec::new();
    for line in plugin.inner.iter().filter(|line| line.words.len() > 1) {
        // Options such as `ttl` and `fallthrough` are no addresses.
        let Ok(ip) = line.words[0].parse::<IpAddr>() else {
            continue;
        };
        for name in &line.words[1..] {
            entries.push((
                ip,
                Name::parse(name).ok_or_else(|| line.wrong("this is not a name"))?,
            ));
        }
    }
    Ok(entries)
}

fn servers(plugin: &Directive) -> Result<Vec<SocketAddr>, ConfigError> {
    let mut servers = Vec::new();
    for word in plugin.words.iter().skip(2) {
        if word.starts_with('/') {
            servers.extend(of_resolv_conf(Path::new(word)));
            continue;
        }
        let word = word.strip_prefix("dns://").unwrap_or(word);
        let address = word
            .parse()
            .ok()
            .or_else(|| Some(SocketAddr::new(word.parse().ok()?, 53)));
        servers.push(address.ok_or_else(|| {
            plugin.wrong("forward takes addresses or a file such as /etc/resolv.conf")
        })?);
    }
    Ok(servers)
}

fn of_resolv_conf(path: &Path) -> Vec<SocketAddr> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let servers = text
        .lines()
        .filter_map(|line| line.strip_prefix("nameserver"));
    let addresses = servers.filter_map(|rest| rest.trim().parse::<IpAddr>().ok());
    addresses.map(|ip| SocketAddr::new(ip, 53)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text, Path::new("/nowhere/Corefile")).unwrap()
    }

    #[test]
    fn the_default_is_what_aks_writes() {
        let config = config(DEFAULT);
        assert_eq!(config.cache, Duration::from_secs(30));
        assert_eq!(config.metrics, Some("0.0.0.0:9153".parse().unwrap()));
        assert_eq!(config.ready, Some("0.0.0.0:8181".parse().unwrap()));
        let block = config.block(&Name::parse("a.b").unwrap()).unwrap();
        assert_eq!(
            block.kubernetes,
            Some(Settings::new(Name::parse("cluster.local").unwrap()))
        );
        assert_eq!(config.warnings, [""; 0]);
    }

    #[test]
    fn the_longest_zone_has_a_name() {
        let config = config(".:53 {\n}\nexample.org:53 b.c {\n forward . 10.0.0.1\n}\n");
        let has_forward = |name: &str| {
            config
                .block(&Name::parse(name).unwrap())
                .unwrap()
                .forward
                .is_some()
        };
        assert!(has_forward("a.example.org") && has_forward("B.c") && !has_forward("example.com"));
    }

    #[test]
    fn users_add_files_of_their_own() {
        let dir = std::env::temp_dir().join(format!("corefile-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("custom")).unwrap();
        std::fs::write(
            dir.join("custom/a.override"),
            "hosts {\n 10.1.2.3 gate.example.org # a comment\n fallthrough\n}\n",
        )
        .unwrap();
        std::fs::write(
            dir.join("custom/b.server"),
            "corp.example:53 {\n errors\n forward . 10.9.9.9 10.9.9.8:5353\n}\n",
        )
        .unwrap();
        let config = Config::parse(DEFAULT, &dir.join("Corefile")).unwrap();
        std::fs::remove_dir_all(dir).unwrap();
        assert_eq!(config.blocks.len(), 2);
        assert_eq!(config.blocks[0].hosts.entries.len(), 1);
        assert!(
            config
                .block(&Name::parse("x.corp.example").unwrap())
                .unwrap()
                .forward
                .is_some()
        );
    }

    #[test]
    fn what_is_not_followed_is_said_and_what_is_wrong_is_named() {
        let config = config(".:53 {\n rewrite type ANY HINFO\n}\n");
        assert_eq!(
            config.warnings,
            ["/nowhere/Corefile:2: `rewrite` is not followed by this server"]
        );
        for (text, said) in [
            (".:53 {\n forward . nobody\n}\n", ":2: forward takes"),
            (".:53 {\n errors\n", "`}` is missing"),
            (".:53 {\n cache soon\n}\n", ":2: cache takes"),
        ] {
            let error = Config::parse(text, Path::new("/C"))
                .unwrap_err()
                .to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
