//! The cluster's own names, by the schema every Kubernetes client expects (version 1.1.0 of the specification).
//!
//! | name below the zone | what it is |
//! |---|---|
//! | `<service>.<namespace>.svc` | its addresses, or those of its ready endpoints if it is headless |
//! | `<host>.<service>.<namespace>.svc` | one endpoint |
//! | `_<port>._<protocol>.<service>.<namespace>.svc` | a named port |
//! | `<a-b-c-d>.<namespace>.pod` | the address that is written there |

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};

use crate::message::{Code, Data, Query, Record, Reply, kind};
use crate::name::Name;
use crate::objects::{Endpoint, Kind, Service, Slice};

/// A namespace and a name in it.
pub type Key = (Box<str>, Box<str>);

/// How names are answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The zone, such as `cluster.local`.
    pub zone: Name,
    /// For how many seconds an answer holds.
    pub ttl: u32,
    /// Which names of pods there are.
    pub pods: Pods,
}

/// Which names of pods there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pods {
    /// None.
    Disabled,
    /// Every address, in every namespace that exists.
    Insecure,
}

impl Settings {
    /// AKS' settings for a zone.
    pub fn new(zone: Name) -> Settings {
        Settings {
            zone,
            ttl: 30,
            pods: Pods::Insecure,
        }
    }
}

/// Everything that has a name.
#[derive(Debug, Default)]
pub struct Records {
    namespaces: BTreeMap<Box<str>, Services>,
    by_address: HashMap<IpAddr, Vec<Key>>,
    slice_owners: HashMap<Key, Key>,
    serial: u32,
}

#[derive(Debug, Default)]
struct Services {
    /// Whether the namespace itself is known, and not only what is in it.
    exists: bool,
    services: BTreeMap<Box<str>, Known>,
}

#[derive(Debug, Default)]
struct Known {
    service: Option<Service>,
    slices: BTreeMap<Box<str>, Slice>,
}

impl Known {
    fn endpoints(&self) -> impl Iterator<Item = (&Endpoint, &Slice)> {
        let slices = self.slices.values();
        slices.flat_map(|slice| {
            slice
                .endpoints
                .iter()
                .map(move |endpoint| (endpoint, slice))
        })
    }

    fn addresses(&self) -> Vec<IpAddr> {
        let service = self.service.iter();
        let own = service.flat_map(|service| service.cluster_ips.iter().copied());
        own.chain(self.endpoints().map(|(endpoint, _)| endpoint.address))
            .collect()
    }
}

/// What the cluster's names say to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The whole answer.
    Reply(Reply),
    /// Another name, which somebody else knows more about.
    Follow(Record),
    /// Not one of our names.
    NotOurs,
}

impl Records {
    /// Notes that a namespace exists, or no longer does.
    pub fn namespace(&mut self, name: &str, exists: bool) {
        self.namespaces.entry(name.into()).or_default().exists = exists;
        self.tidy(name);
        self.serial += 1;
    }

    /// Notes what is now known of a Service.
    pub fn service(&mut self, key: &Key, service: Option<Service>) {
        self.change(key, |known| known.service = service);
    }

    /// Notes what is now known of an EndpointSlice, by its own key.
    pub fn slice(&mut self, key: &Key, slice: Option<Slice>) {
        let owner = slice
            .as_ref()
            .map(|slice| (key.0.clone(), slice.service.clone()));
        let before = self.slice_owners.remove(key);
        if let Some(before) = before.filter(|before| owner.as_ref() != Some(before)) {
            self.change(&before, |known| {
                known.slices.remove(&key.1);
            });
        }
        if let (Some(slice), Some(owner)) = (slice, owner) {
            self.change(&owner, |known| {
                known.slices.insert(key.1.clone(), slice);
            });
            self.slice_owners.insert(key.clone(), owner);
        }
    }

    fn change(&mut self, key: &Key, change: impl FnOnce(&mut Known)) {
        let services = self.namespaces.entry(key.0.clone()).or_default();
        let known = services.services.entry(key.1.clone()).or_default();
        let before = known.addresses();
        change(known);
        let after = known.addresses();
        if known.service.is_none() && known.slices.is_empty() {
            services.services.remove(&key.1);
        }
        for address in before {
            self.unname(address, key);
        }
        for address in after {
            let keys = self.by_address.entry(address).or_default();
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
        self.tidy(&key.0);
        self.serial += 1;
    }

    fn unname(&mut self, address: IpAddr, key: &Key) {
        if let Some(keys) = self.by_address.get_mut(&address) {
            keys.retain(|known| known != key);
            if keys.is_empty() {
                self.by_address.remove(&address);
            }
        }
    }

    fn tidy(&mut self, namespace: &str) {
        let is_empty = |n: &Services| !n.exists && n.services.is_empty();
        if self.namespaces.get(namespace).is_some_and(is_empty) {
            self.namespaces.remove(namespace);
        }
    }

    fn known(&self, namespace: &str, service: &str) -> Option<&Known> {
        self.namespaces.get(namespace)?.services.get(service)
    }

    /// Answers a question about one of the cluster's names.
    pub fn answer(&self, query: &Query, settings: &Settings) -> Outcome {
        if let Some(address) = reverse(&query.name) {
            return self.name_of(query, address, settings);
        }
        match query.name.prefix_before(&settings.zone) {
            Some(labels) => {
                let lookup = Lookup {
                    records: self,
                    settings,
                    query,
                };
                lookup.answer(&labels)
            }
            None => Outcome::NotOurs,
        }
    }

    // An address that nobody here has may have a name elsewhere.
    fn name_of(&self, query: &Query, address: IpAddr, settings: &Settings) -> Outcome {
        let Some(keys) = self.by_address.get(&address) else {
            return Outcome::NotOurs;
        };
        let lookup = Lookup {
            records: self,
            settings,
            query,
        };
        if query.kind != kind::PTR {
            return lookup.nothing(Code::NoError);
        }
        let names = keys.iter().flat_map(|key| lookup.names_of(key, address));
        lookup.found(
            names
                .map(|name| lookup.record(&query.name, Data::Ptr(name)))
                .collect(),
        )
    }
}

struct Lookup<'a> {
    records: &'a Records,
    settings: &'a Settings,
    query: &'a Query,
}

impl Lookup<'_> {
    // Labels before the zone, from the left. Names of the API are plain text.
    fn answer(&self, labels: &[&[u8]]) -> Outcome {
        let text: Option<Vec<&str>> = labels
            .iter()
            .map(|label| std::str::from_utf8(label).ok())
            .collect();
        match text.unwrap_or_default().as_slice() {
            [] if labels.is_empty() => self.apex(),
            ["dns-version"] => self.only(vec![Data::Txt(b"1.1.0".to_vec())]),
            ["ns", "dns"] => self.only(self.own_addresses()),
            ["dns"] | ["svc"] => self.nothing(Code::NoError),
            ["pod"] if self.settings.pods != Pods::Disabled => self.nothing(Code::NoError),
            [namespace, "svc"] => self.namespace(namespace),
            [namespace, "pod"] if self.settings.pods != Pods::Disabled => self.namespace(namespace),
            [pod, namespace, "pod"] => self.pod(pod, namespace),
            [service, namespace, "svc"] => self.service(namespace, service, None),
            [host, service, namespace, "svc"] => self.endpoint(namespace, service, host),
            [port, protocol, service, namespace, "svc"] => {
                match (port.strip_prefix('_'), protocol.strip_prefix('_')) {
                    (Some(port), Some(protocol)) => {
                        self.service(namespace, service, Some((port, protocol)))
                    }
                    _ => self.nothing(Code::NxDomain),
                }
            }
            _ => self.nothing(Code::NxDomain),
        }
    }

    fn apex(&self) -> Outcome {
        match self.query.kind {
            kind::SOA => self.found(vec![self.soa()]),
            kind::NS => {
                let Some(server) = self.name(&["ns", "dns"]) else {
                    return self.nothing(Code::NoError);
                };
                let glue = self
                    .own_addresses()
                    .into_iter()
                    .map(|data| self.record(&server, data))
                    .collect();
                let answers = vec![self.record(&self.settings.zone, Data::Ns(server.clone()))];
                Outcome::Reply(Reply {
                    authoritative: true,
                    answers,
                    additional: glue,
                    ..Reply::default()
                })
            }
            _ => self.nothing(Code::NoError),
        }
    }

    // The addresses of the Service that leads here, by its usual name.
    fn own_addresses(&self) -> Vec<Data> {
        let known = self.records.known("kube-system", "kube-dns");
        let service = known.and_then(|known| known.service.as_ref());
        service
            .iter()
            .flat_map(|service| &service.cluster_ips)
            .map(|ip| address(*ip))
            .collect()
    }

    fn namespace(&self, name: &str) -> Outcome {
        match self.records.namespaces.contains_key(name) {
            true => self.nothing(Code::NoError),
            false => self.nothing(Code::NxDomain),
        }
    }

    fn pod(&self, pod: &str, namespace: &str) -> Outcome {
        let exists = self.records.namespaces.contains_key(namespace);
        match undashed(pod) {
            Some(ip) if exists && self.settings.pods == Pods::Insecure => {
                self.only(vec![address(ip)])
            }
            _ => self.nothing(Code::NxDomain),
        }
    }

    fn service(&self, namespace: &str, name: &str, port: Option<(&str, &str)>) -> Outcome {
        let Some(known) = self.records.known(namespace, name) else {
            return self.nothing(Code::NxDomain);
        };
        let Some(service) = &known.service else {
            return self.nothing(Code::NxDomain);
        };
        match &service.kind {
            Kind::External(target) => self.external(target, port.is_some()),
            Kind::Headless => self.headless((namespace, name), known, port),
            Kind::Cluster => self.cluster((namespace, name), service, port),
        }
    }

    fn external(&self, target: &Name, is_port: bool) -> Outcome {
        if is_port {
            return self.nothing(Code::NxDomain);
        }
        let alias = self.record(&self.query.name, Data::Cname(target.clone()));
        match self.query.kind {
            kind::A | kind::AAAA => Outcome::Follow(alias),
            kind::CNAME | kind::ANY => self.found(vec![alias]),
            _ => self.nothing(Code::NoError),
        }
    }

    fn cluster(
        &self,
        (namespace, name): (&str, &str),
        service: &Service,
        port: Option<(&str, &str)>,
    ) -> Outcome {
        let ports = service
            .ports
            .iter()
            .filter(|p| port.is_none_or(|wanted| p.is(wanted)));
        let ports: Vec<u16> = ports.map(|port| port.port).collect();
        if port.is_some() && ports.is_empty() {
            return self.nothing(Code::NxDomain);
        }
        let addresses: Vec<Data> = service.cluster_ips.iter().map(|ip| address(*ip)).collect();
        if self.query.kind != kind::SRV {
            return self.only(addresses);
        }
        let Some(host) = self.name(&[name, namespace, "svc"]) else {
            return self.nothing(Code::NoError);
        };
        self.places(
            ports.into_iter().map(|port| (port, host.clone())).collect(),
            addresses
                .into_iter()
                .map(|data| self.record(&host, data))
                .collect(),
        )
    }

    fn headless(
        &self,
        (namespace, name): (&str, &str),
        known: &Known,
        port: Option<(&str, &str)>,
    ) -> Outcome {
        let ready = || known.endpoints().filter(|(endpoint, _)| endpoint.ready);
        let has =
            |slice: &Slice| port.is_none_or(|wanted| slice.ports.iter().any(|p| p.is(wanted)));
        let mut addresses: Vec<IpAddr> = ready()
            .filter(|(_, slice)| has(slice))
            .map(|(endpoint, _)| endpoint.address)
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.is_empty() {
            return self.nothing(Code::NxDomain);
        }
        if self.query.kind != kind::SRV {
            return self.only(addresses.into_iter().map(address).collect());
        }
        let mut places = Vec::new();
        let mut glue = Vec::new();
        for (endpoint, slice) in ready() {
            let Some(host) = self.name(&[&endpoint.host(), name, namespace, "svc"]) else {
                continue;
            };
            let ports = slice
                .ports
                .iter()
                .filter(|p| port.is_none_or(|wanted| p.is(wanted)));
            places.extend(ports.map(|port| (port.port, host.clone())));
            glue.push(self.record(&host, address(endpoint.address)));
        }
        self.places(places, glue)
    }

    fn endpoint(&self, namespace: &str, service: &str, host: &str) -> Outcome {
        let known = self
            .records
            .known(namespace, service)
            .filter(|known| known.service.is_some());
        let endpoints = known.into_iter().flat_map(Known::endpoints);
        let mut found: Vec<(IpAddr, &Slice)> = endpoints
            .filter(|(endpoint, _)| endpoint.ready && endpoint.host() == host)
            .map(|(endpoint, slice)| (endpoint.address, slice))
            .collect();
        found.dedup_by_key(|(address, _)| *address);
        if found.is_empty() {
            return self.nothing(Code::NxDomain);
        }
        if self.query.kind != kind::SRV {
            return self.only(found.into_iter().map(|(ip, _)| address(ip)).collect());
        }
        let name = &self.query.name;
        let ports = found
            .iter()
            .flat_map(|(_, slice)| &slice.ports)
            .map(|port| (port.port, name.clone()));
        let glue = found.iter().map(|(ip, _)| self.record(name, address(*ip)));
        self.places(ports.collect(), glue.collect())
    }

    // Every place counts the same; CoreDNS says so by an equal share of a hundred.
    fn places(&self, mut places: Vec<(u16, Name)>, mut glue: Vec<Record>) -> Outcome {
        places.sort();
        places.dedup();
        glue.sort_by(|a, b| {
            (&a.name, format!("{:?}", a.data)).cmp(&(&b.name, format!("{:?}", b.data)))
        });
        glue.dedup();
        let weight = u16::try_from(100 / places.len().max(1)).unwrap_or(1).max(1);
        let srv = |(port, target): (u16, Name)| Data::Srv {
            priority: 0,
            weight,
            port,
            target,
        };
        let answers = places
            .into_iter()
            .map(|place| self.record(&self.query.name, srv(place)))
            .collect();
        match self.found(answers) {
            Outcome::Reply(reply) => Outcome::Reply(Reply {
                additional: glue,
                ..reply
            }),
            other => other,
        }
    }

    /// The names of an address in a Service: the Service's own, or that of an endpoint.
    fn names_of(&self, (namespace, service): &Key, address: IpAddr) -> Vec<Name> {
        let Some(known) = self.records.known(namespace, service) else {
            return Vec::new();
        };
        let Some(own) = &known.service else {
            return Vec::new();
        };
        if own.cluster_ips.contains(&address) {
            return self
                .name(&[service, namespace, "svc"])
                .into_iter()
                .collect();
        }
        let here = known
            .endpoints()
            .filter(|(endpoint, _)| endpoint.address == address && endpoint.ready);
        let mut names: Vec<Name> = here
            .filter_map(|(endpoint, _)| self.name(&[&endpoint.host(), service, namespace, "svc"]))
            .collect();
        names.sort();
        names.dedup();
        names
    }

    fn name(&self, labels: &[&str]) -> Option<Name> {
        let below = labels
            .iter()
            .map(|label| label.as_bytes())
            .collect::<Vec<_>>();
        Name::of_labels(below.into_iter().chain(self.settings.zone.labels()))
    }

    fn record(&self, name: &Name, data: Data) -> Record {
        Record {
            name: name.clone(),
            ttl: self.settings.ttl,
            data,
        }
    }

    /// Those of the data that were asked for; the name exists in any case.
    fn only(&self, all: Vec<Data>) -> Outcome {
        let wanted = |data: &Data| data.kind() == self.query.kind || self.query.kind == kind::ANY;
        let records = all.into_iter().filter(wanted);
        self.found(
            records
                .map(|data| self.record(&self.query.name, data))
                .collect(),
        )
    }

    fn found(&self, answers: Vec<Record>) -> Outcome {
        if answers.is_empty() {
            return self.nothing(Code::NoError);
        }
        Outcome::Reply(Reply {
            authoritative: true,
            answers,
            ..Reply::default()
        })
    }

    fn nothing(&self, code: Code) -> Outcome {
        Outcome::Reply(Reply {
            code: Some(code),
            authoritative: true,
            authority: vec![self.soa()],
            ..Reply::default()
        })
    }

    fn soa(&self) -> Record {
        let zone = &self.settings.zone;
        let root = Name::root();
        let name = |labels: &[&str]| self.name(labels).unwrap_or_else(|| root.clone());
        let soa = Data::Soa {
            server: name(&["ns", "dns"]),
            contact: name(&["hostmaster"]),
            serial: self.records.serial,
            minimum: self.settings.ttl,
        };
        self.record(zone, soa)
    }
}

fn address(ip: IpAddr) -> Data {
    match ip {
        IpAddr::V4(ip) => Data::A(ip),
        IpAddr::V6(ip) => Data::Aaaa(ip),
    }
}

/// `10-0-0-1` or `fd00--1` as an address.
fn undashed(text: &str) -> Option<IpAddr> {
    let v4 = text.replace('-', ".").parse().ok();
    v4.or_else(|| {
        text.replace('-', ":")
            .parse::<Ipv6Addr>()
            .ok()
            .map(IpAddr::V6)
    })
}

/// The address that a name below `in-addr.arpa` or `ip6.arpa` is about.
pub fn reverse(name: &Name) -> Option<IpAddr> {
    let mut labels: Vec<&str> = name
        .labels()
        .map(std::str::from_utf8)
        .collect::<Result<_, _>>()
        .ok()?;
    if labels.pop() != Some("arpa") {
        return None;
    }
    match (labels.pop(), labels.len()) {
        (Some("in-addr"), 4) => {
            labels.reverse();
            labels.join(".").parse().ok()
        }
        (Some("ip6"), 32) => {
            labels.reverse();
            let groups: Vec<String> = labels.chunks(4).map(<[&str]>::concat).collect();
            groups.join(":").parse().ok()
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
