//! What the steps know of the machine they run on. Pure: `steps::observe` fills it in.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::version::Version;

/// The machine, as far as what a node's files say depends on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// Its name.
    pub hostname: String,
    /// `ID` and `VERSION_ID` of its distribution.
    pub distribution: Distribution,
    /// The containerd that is installed.
    pub containerd: Option<Version>,
    /// Where runc is, if not at `/usr/bin/runc`.
    pub runc: Option<String>,
    /// The hierarchy at `/sys/fs/cgroup` is cgroup2's alone.
    pub unified_cgroups: bool,
    /// It may give processes negative OOM scores; containers and some virtual machines may not.
    pub lowers_oom_scores: bool,
    /// The pod network's plugin brought a template of its configuration.
    pub has_network_template: bool,
    /// The primary interface's addresses: IPv4, then IPv6.
    pub addresses: Vec<String>,
    /// Tags of the virtual machine.
    pub tags: BTreeMap<String, String>,
    /// Units that came with the image.
    pub units: Vec<String>,
}

impl Machine {
    /// Whether a tag is set to true. Names and values are compared without case, as upstream
    /// does; unlike there the whole name and the whole value count.
    pub fn is_tagged(&self, name: &str) -> bool {
        self.tags.iter().any(|(key, value)| {
            key.eq_ignore_ascii_case(name) && value.eq_ignore_ascii_case("true")
        })
    }

    /// Whether the image brought this unit.
    pub fn has_unit(&self, name: &str) -> bool {
        self.units.iter().any(|unit| unit == name)
    }

    /// Whether containerd reads its configuration in the layout of 2.x. What is not known is
    /// taken for 1.x, as upstream does.
    pub fn has_containerd_2(&self) -> bool {
        self.containerd
            .as_ref()
            .is_some_and(|version| version.is_at_least([2, 0, 0]))
    }
}

/// The version in what a program says of itself; what a distribution appends (`1.6.20~ds1`) is cut
/// off.
pub fn version_of(word: &str) -> Option<Version> {
    let numbers = word.trim_start_matches('v');
    let end = numbers
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(numbers.len());
    Version::parse(&numbers[..end])
}

/// A distribution, by what `/etc/os-release` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// Such as `ubuntu`.
    pub id: String,
    /// Such as `22.04`.
    pub version: String,
    /// Such as `Ubuntu 22.04.5 LTS`.
    pub name: String,
}

impl Distribution {
    /// Reads `/etc/os-release`.
    pub fn parse(os_release: &str) -> Self {
        let value = |key: &str| {
            let line = os_release
                .lines()
                .find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
            line.unwrap_or_default()
                .trim()
                .trim_matches(['"', '\''])
                .to_owned()
        };
        Self {
            id: value("ID"),
            version: value("VERSION_ID"),
            name: value("PRETTY_NAME"),
        }
    }

    /// Whether the steps know it.
    pub fn is_supported(&self) -> bool {
        ["ubuntu", "debian"].contains(&self.id.as_str())
    }

    /// Whether it is Ubuntu.
    pub fn is_ubuntu(&self) -> bool {
        self.id == "ubuntu"
    }
}

/// What the instance metadata service says of the virtual machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    /// Addresses of the first interface: IPv4, then IPv6.
    pub addresses: Vec<String>,
    /// Tags by name.
    pub tags: BTreeMap<String, String>,
    /// The other interfaces, in order.
    pub secondary: Vec<Interface>,
}

/// An interface that is not the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Lower case, with colons.
    pub mac: String,
    /// Whether it has IPv6 addresses.
    pub ipv6: bool,
}

impl Metadata {
    /// Reads the instance document (`/metadata/instance`).
    pub fn parse(document: &[u8]) -> Option<Self> {
        let document: Value = serde_json::from_slice(document).ok()?;
        let interfaces = document["network"]["interface"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let address = |family: &str| {
            let first = interfaces.first()?[family]["ipAddress"].get(0)?;
            first["privateIpAddress"]
                .as_str()
                .filter(|a| !a.is_empty())
                .map(str::to_owned)
        };
        let tags = document["compute"]["tagsList"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let tag = |tag: &Value| Some((text(&tag["name"])?, text(&tag["value"])?));
        Some(Self {
            addresses: ["ipv4", "ipv6"].into_iter().filter_map(address).collect(),
            tags: tags.iter().filter_map(tag).collect(),
            secondary: interfaces.iter().skip(1).filter_map(interface).collect(),
        })
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn interface(document: &Value) -> Option<Interface> {
    let digits: Vec<char> = document["macAddress"]
        .as_str()?
        .chars()
        .filter(char::is_ascii_hexdigit)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let pairs: Vec<String> = digits.chunks(2).map(|pair| pair.iter().collect()).collect();
    let ipv6 = document["ipv6"]["ipAddress"]
        .as_array()
        .is_some_and(|list| !list.is_empty());
    (pairs.len() == 6).then(|| Interface {
        mac: pairs.join(":"),
        ipv6,
    })
}

#[cfg(test)]
mod tests;
