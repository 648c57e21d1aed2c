//! The record table of the specification, row by row.

use serde_json::{Value, json};

use super::*;
use crate::message::{INTERNET, parse_query};
use crate::objects::{Service, Slice};

fn key(namespace: &str, name: &str) -> Key {
    (namespace.into(), name.into())
}

fn service(records: &mut Records, namespace: &str, name: &str, spec: &Value) {
    let service = json!({ "metadata": {}, "spec": spec });
    let service = Service::of(&serde_json::from_value(service).unwrap());
    records.service(&key(namespace, name), service);
}

fn slice(records: &mut Records, namespace: &str, service: &str, kind: &str, endpoints: &Value) {
    let slice = json!({
        "metadata": { "labels": { "kubernetes.io/service-name": service } }, "addressType": kind,
        "endpoints": endpoints, "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
    });
    let slice = Slice::of(&serde_json::from_value(slice).unwrap());
    records.slice(&key(namespace, &format!("{service}-{kind}")), slice);
}

pub(crate) fn cluster() -> Records {
    let mut records = Records::default();
    records.namespace("default", true);
    let ports =
        json!([{ "name": "http", "port": 80 }, { "name": "dns", "port": 53, "protocol": "UDP" }]);
    service(
        &mut records,
        "default",
        "web",
        &json!({
            "type": "ClusterIP", "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5", "fd00::5"], "ports": ports,
        }),
    );
    service(
        &mut records,
        "default",
        "old",
        &json!({ "clusterIP": "10.0.0.6", "ports": [{ "port": 80 }] }),
    );
    service(
        &mut records,
        "kube-system",
        "kube-dns",
        &json!({ "clusterIP": "10.0.0.10" }),
    );
    service(
        &mut records,
        "default",
        "db",
        &json!({ "clusterIP": "None", "ports": [{ "name": "http", "port": 80 }] }),
    );
    slice(
        &mut records,
        "default",
        "db",
        "IPv4",
        &json!([
            { "addresses": ["10.244.0.2"], "hostname": "db-0", "conditions": { "ready": true } },
            { "addresses": ["10.244.0.3"] },
            { "addresses": ["10.244.0.4"], "conditions": { "ready": false } },
        ]),
    );
    slice(
        &mut records,
        "default",
        "db",
        "IPv6",
        &json!([{ "addresses": ["fd00:244::"], "conditions": {} }]),
    );
    service(
        &mut records,
        "default",
        "empty",
        &json!({ "clusterIP": "None" }),
    );
    service(
        &mut records,
        "default",
        "away",
        &json!({ "type": "ExternalName", "externalName": "example.org" }),
    );
    records
}

pub(crate) fn query(name: &str, kind: u16) -> Query {
    let mut bytes = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    bytes.extend(Name::parse(name).unwrap().wire());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(INTERNET.to_be_bytes());
    parse_query(&bytes).unwrap()
}

fn settings() -> Settings {
    Settings::new(Name::parse("cluster.local").unwrap())
}

// An answer in one line: its code, then its data.
fn ask(records: &Records, name: &str, kind: u16) -> String {
    match records.answer(&query(name, kind), &settings()) {
        Outcome::NotOurs => "not ours".into(),
        Outcome::Follow(record) => format!("follow {}", text(&record)),
        Outcome::Reply(reply) => {
            let data: Vec<String> = reply.answers.iter().map(text).collect();
            let glue: Vec<String> = reply.additional.iter().map(text).collect();
            let glue = if glue.is_empty() {
                String::new()
            } else {
                format!(" + {}", glue.join(", "))
            };
            format!("{} {}{glue}", reply.code().name(), data.join(", "))
                .trim()
                .to_owned()
        }
    }
}

fn text(record: &Record) -> String {
    match &record.data {
        Data::A(ip) => ip.to_string(),
        Data::Aaaa(ip) => ip.to_string(),
        Data::Cname(name) | Data::Ptr(name) | Data::Ns(name) => name.to_string(),
        Data::Srv {
            priority,
            weight,
            port,
            target,
        } => format!("{priority} {weight} {port} {target}"),
        Data::Txt(text) => String::from_utf8_lossy(text).into_owned(),
        Data::Soa { server, .. } => server.to_string(),
    }
}

#[test]
fn names_are_answered_as_the_specification_says() {
    let records = cluster();
    for (name, kind, expected) in [
        ("web.default.svc.cluster.local", kind::A, "NOERROR 10.0.0.5"),
        (
            "WEB.default.SVC.cluster.local",
            kind::AAAA,
            "NOERROR fd00::5",
        ),
        ("old.default.svc.cluster.local", kind::AAAA, "NOERROR"),
        ("web.default.svc.cluster.local", kind::TXT, "NOERROR"),
        (
            "_http._tcp.web.default.svc.cluster.local",
            kind::SRV,
            "NOERROR 0 100 80 web.default.svc.cluster.local. + 10.0.0.5, fd00::5",
        ),
        (
            "_dns._udp.web.default.svc.cluster.local",
            kind::SRV,
            "NOERROR 0 100 53 web.default.svc.cluster.local. + 10.0.0.5, fd00::5",
        ),
        (
            "_http._udp.web.default.svc.cluster.local",
            kind::SRV,
            "NXDOMAIN",
        ),
        (
            "_ftp._tcp.web.default.svc.cluster.local",
            kind::SRV,
            "NXDOMAIN",
        ),
        (
            "web.default.svc.cluster.local",
            kind::SRV,
            "NOERROR 0 50 53 web.default.svc.cluster.local., 0 50 80 web.default.svc.cluster.local. + 10.0.0.5, fd00::5",
        ),
        (
            "db.default.svc.cluster.local",
            kind::A,
            "NOERROR 10.244.0.2, 10.244.0.3",
        ),
        (
            "db.default.svc.cluster.local",
            kind::AAAA,
            "NOERROR fd00:244::",
        ),
        (
            "db-0.db.default.svc.cluster.local",
            kind::A,
            "NOERROR 10.244.0.2",
        ),
        ("db-0.db.default.svc.cluster.local", kind::AAAA, "NOERROR"),
        (
            "10-244-0-3.db.default.svc.cluster.local",
            kind::A,
            "NOERROR 10.244.0.3",
        ),
        (
            "fd00-244--0.db.default.svc.cluster.local",
            kind::AAAA,
            "NOERROR fd00:244::",
        ),
        (
            "10-244-0-4.db.default.svc.cluster.local",
            kind::A,
            "NXDOMAIN",
        ),
        (
            "_http._tcp.db.default.svc.cluster.local",
            kind::SRV,
            "NOERROR 0 33 8080 db-0.db.default.svc.cluster.local., 0 33 8080 10-244-0-3.db.default.svc.cluster.local., \
             0 33 8080 fd00-244--0.db.default.svc.cluster.local. + 10.244.0.2, 10.244.0.3, fd00:244::",
        ),
        ("empty.default.svc.cluster.local", kind::A, "NXDOMAIN"),
        (
            "away.default.svc.cluster.local",
            kind::A,
            "follow example.org.",
        ),
        (
            "away.default.svc.cluster.local",
            kind::CNAME,
            "NOERROR example.org.",
        ),
        ("nobody.default.svc.cluster.local", kind::A, "NXDOMAIN"),
        ("web.elsewhere.svc.cluster.local", kind::A, "NXDOMAIN"),
        ("default.svc.cluster.local", kind::A, "NOERROR"),
        ("elsewhere.svc.cluster.local", kind::A, "NXDOMAIN"),
        ("svc.cluster.local", kind::A, "NOERROR"),
        ("cluster.local", kind::SOA, "NOERROR ns.dns.cluster.local."),
        (
            "cluster.local",
            kind::NS,
            "NOERROR ns.dns.cluster.local. + 10.0.0.10",
        ),
        ("ns.dns.cluster.local", kind::A, "NOERROR 10.0.0.10"),
        ("dns-version.cluster.local", kind::TXT, "NOERROR 1.1.0"),
        (
            "10-244-0-9.default.pod.cluster.local",
            kind::A,
            "NOERROR 10.244.0.9",
        ),
        (
            "fd00--9.default.pod.cluster.local",
            kind::AAAA,
            "NOERROR fd00::9",
        ),
        (
            "10-244-0-9.elsewhere.pod.cluster.local",
            kind::A,
            "NXDOMAIN",
        ),
        ("somebody.default.pod.cluster.local", kind::A, "NXDOMAIN"),
        (
            "5.0.0.10.in-addr.arpa",
            kind::PTR,
            "NOERROR web.default.svc.cluster.local.",
        ),
        (
            "2.0.244.10.in-addr.arpa",
            kind::PTR,
            "NOERROR db-0.db.default.svc.cluster.local.",
        ),
        (
            "3.0.244.10.in-addr.arpa",
            kind::PTR,
            "NOERROR 10-244-0-3.db.default.svc.cluster.local.",
        ),
        ("1.0.0.192.in-addr.arpa", kind::PTR, "not ours"),
        (
            "5.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa",
            kind::PTR,
            "NOERROR web.default.svc.cluster.local.",
        ),
        ("example.org", kind::A, "not ours"),
        ("a.b.c.d.e.f.svc.cluster.local", kind::A, "NXDOMAIN"),
    ] {
        assert_eq!(ask(&records, name, kind), expected, "{name} {kind}");
    }
}

#[test]
fn what_is_gone_has_no_name() {
    let mut records = cluster();
    records.service(&key("default", "web"), None);
    assert_eq!(
        ask(&records, "web.default.svc.cluster.local", kind::A),
        "NXDOMAIN"
    );
    assert_eq!(
        ask(&records, "5.0.0.10.in-addr.arpa", kind::PTR),
        "not ours"
    );
    records.slice(&key("default", "db-IPv4"), None);
    assert_eq!(
        ask(&records, "db.default.svc.cluster.local", kind::A),
        "NOERROR"
    );
    records.slice(&key("default", "db-IPv6"), None);
    assert_eq!(
        ask(&records, "db.default.svc.cluster.local", kind::A),
        "NXDOMAIN"
    );
    for name in ["old", "db", "empty", "away"] {
        records.service(&key("default", name), None);
    }
    assert_eq!(
        ask(&records, "default.svc.cluster.local", kind::A),
        "NOERROR"
    );
    records.namespace("default", false);
    assert_eq!(
        ask(&records, "default.svc.cluster.local", kind::A),
        "NXDOMAIN"
    );
}
