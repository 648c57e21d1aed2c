#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;
use serde_json::json;

fn plain(host: &str, port: u16) -> Place {
    Place {
        tls: None,
        host: host.into(),
        port,
    }
}

#[test]
fn names_have_three_forms() {
    let named = |https, name, port| Named { https, name, port };
    let cases = [
        ("a", Some(named(false, "a", ""))),
        ("a:80", Some(named(false, "a", "80"))),
        ("a:web", Some(named(false, "a", "web"))),
        ("https:a:443", Some(named(true, "a", "443"))),
        ("http:a:", Some(named(false, "a", ""))),
        (":a:80", Some(named(false, "a", "80"))),
        ("ftp:a:1", None),
        ("a:b:c:d", None),
        (":80", None),
    ];
    for (id, wanted) in cases {
        assert_eq!(Named::parse(id, "pod").ok(), wanted, "{id}");
    }
    let refused = Named::parse("ftp:a:1", "service").unwrap_err();
    assert_eq!(refused.message, "invalid service request \"ftp:a:1\"");
}

#[test]
fn a_kubelet_is_where_the_preferred_kind_of_address_says() {
    let mut node = json!({"status": {"addresses": [
        {"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.0.0.4"}]}});
    let preferred =
        |kinds: &[&str]| -> Vec<String> { kinds.iter().map(|k| (*k).to_owned()).collect() };
    let found = kubelet(&node, &preferred(&["ExternalIP", "InternalIP", "Hostname"])).unwrap();
    assert_eq!(
        (&*found.host, found.port, found.tls),
        ("10.0.0.4", 10_250, Some(Trust::Kubelet))
    );
    let none = kubelet(&node, &preferred(&["ExternalDNS"])).unwrap_err();
    assert_eq!(
        none.message,
        "no preferred addresses found; known addresses: [{Hostname n} {InternalIP 10.0.0.4}]"
    );
    node["status"]["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": 12}});
    assert_eq!(kubelet(&node, &preferred(&["Hostname"])).unwrap().port, 12);
}

#[test]
fn the_port_of_a_node_is_the_kubelets_unless_another_is_named() {
    let kubelet = || Place {
        tls: Some(Trust::Kubelet),
        host: "n".into(),
        port: 10_250,
    };
    let of = |id| of_node(&Named::parse(id, "node").unwrap(), kubelet()).unwrap();
    assert_eq!(of("n"), kubelet());
    assert_eq!(of("http:n:10250"), kubelet());
    assert_eq!(of("n:9100"), plain("n", 9_100));
    assert_eq!(of("https:n:9100").tls, Some(Trust::Anybody));
}

#[test]
fn a_pod_is_reached_at_its_first_port_unless_another_is_named() {
    let pod = json!({"spec": {"containers": [{}, {"ports": [{"containerPort": 8080}, {"containerPort": 9}]}]},
        "status": {"podIPs": [{"ip": "10.1.0.7"}]}});
    let of = |id, pod: &Value| of_pod(&Named::parse(id, "pod").unwrap(), pod);
    assert_eq!(of("p", &pod).unwrap(), plain("10.1.0.7", 8080));
    assert_eq!(of("p:81", &pod).unwrap(), plain("10.1.0.7", 81));
    let bare = json!({"status": {"podIPs": [{"ip": "10.1.0.7"}]}});
    assert_eq!(of("p", &bare).unwrap(), plain("10.1.0.7", 80));
    assert_eq!(of("https:p:", &bare).unwrap().port, 443);
    assert_eq!(of("p:web", &pod).unwrap_err().code.as_u16(), 503);
}

#[test]
fn only_addresses_a_pod_may_have_are_connected_to() {
    for (address, allowed) in [
        ("10.0.0.1", true),
        ("fd00::1", true),
        ("8.8.8.8", true),
        ("127.0.0.1", false),
        ("169.254.169.254", false),
        ("224.0.0.1", false),
        ("::1", false),
        ("fe80::1", false),
        ("0.0.0.0", false),
        ("255.255.255.255", false),
        ("::ffff:127.0.0.1", false),
        ("", false),
    ] {
        assert_eq!(check_address(address).is_ok(), allowed, "{address}");
    }
}

#[test]
fn a_port_number_of_a_service_stands_for_its_name() {
    let service = json!({"spec": {"ports": [{"port": 80, "name": "web"}, {"port": 81}]}});
    let of = |id| service_port(&Named::parse(id, "service").unwrap(), &service).map(str::to_owned);
    assert_eq!(of("s:80").unwrap(), "web");
    assert_eq!(of("s:81").unwrap(), "");
    assert_eq!(of("s:web").unwrap(), "web");
    assert_eq!(
        of("s:9").unwrap_err().message,
        "no service port 9 found for service \"s\""
    );
}

#[test]
fn every_ready_address_behind_a_port_is_tried_once_from_any_turn() {
    let address = |ip: &str| json!({"ip": ip, "targetRef": {"name": ip, "namespace": "n"}});
    let endpoints = json!({"subsets": [
        {"addresses": [address("10.0.0.1"), address("10.0.0.2")], "ports": [{"name": "web", "port": 8080}]},
        {"addresses": [address("10.0.0.3")], "ports": [{"name": "web", "port": 8081}, {"name": "x", "port": 1}]},
        {"notReadyAddresses": [address("10.0.0.4")], "ports": [{"name": "web", "port": 8080}]},
    ]});
    for turn in 0..7 {
        let mut found: Vec<_> = candidates(&endpoints, "web", turn)
            .iter()
            .map(|c| (c.address, c.port))
            .collect();
        found.sort_unstable();
        assert_eq!(
            found,
            [("10.0.0.1", 8080), ("10.0.0.2", 8080), ("10.0.0.3", 8081)]
        );
    }
    assert_eq!(candidates(&endpoints, "web", 1)[0].address, "10.0.0.3");
    assert!(candidates(&json!({}), "web", 3).is_empty());
    let first = &candidates(&endpoints, "x", 0)[0];
    assert!(first.is_of(&json!({"status": {"podIPs": [{"ip": "10.0.0.3"}]}})));
    assert!(!first.is_of(&json!({"status": {"podIPs": [{"ip": "10.0.0.9"}]}})));
}
