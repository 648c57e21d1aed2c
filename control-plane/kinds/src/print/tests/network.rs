//! Services, endpoints, ingresses and addresses.

use serde_json::{Value, json};

use super::check;
use super::workloads::{SELECTOR, selector};

#[test]
fn services_have_upstreams_columns() {
    let service = |spec: Value, status: Value, expected: Value| {
        check(
            "",
            "Service",
            json!({"spec": spec, "status": status}),
            expected,
        );
    };
    let ports = json!([{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]);
    service(
        json!({"type": "NodePort", "clusterIPs": ["10.0.0.1", "fd00::1"], "ports": ports, "selector": {"app": "web"}}),
        json!({}),
        json!([
            "x",
            "NodePort",
            "10.0.0.1",
            "<none>",
            "80:30080/TCP,53/UDP",
            "5m",
            "app=web"
        ]),
    );
    service(
        json!({"type": "ClusterIP", "clusterIPs": ["None"], "externalIPs": ["1.1.1.1", "2.2.2.2"]}),
        json!({}),
        json!([
            "x",
            "ClusterIP",
            "None",
            "1.1.1.1,2.2.2.2",
            "<none>",
            "5m",
            "<none>"
        ]),
    );
    service(
        json!({"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"]}),
        json!({}),
        json!([
            "x",
            "LoadBalancer",
            "10.0.0.1",
            "<pending>",
            "<none>",
            "5m",
            "<none>"
        ]),
    );
    service(
        json!({"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"], "externalIPs": ["1.1.1.1"]}),
        json!({"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}, {"hostname": "a-long-name.example.com"}, {"ip": "9.9.9.9"}]}}),
        json!([
            "x",
            "LoadBalancer",
            "10.0.0.1",
            "9.9.9.9,a-long-name.example.com,1.1.1.1",
            "<none>",
            "5m",
            "<none>"
        ]),
    );
    service(
        json!({"type": "ExternalName", "externalName": "example.com"}),
        json!({}),
        json!([
            "x",
            "ExternalName",
            "<none>",
            "example.com",
            "<none>",
            "5m",
            "<none>"
        ]),
    );
}

#[test]
fn endpoints_show_three() {
    let endpoints = |subsets: Value, expected: &str| {
        check(
            "",
            "Endpoints",
            json!({"subsets": subsets}),
            json!(["x", expected, "5m"]),
        );
    };
    let addresses = |ips: &[&str]| ips.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>();
    endpoints(json!(null), "<none>");
    endpoints(
        json!([{"notReadyAddresses": addresses(&["1.1.1.1"]), "ports": [{"port": 80}]}]),
        "",
    );
    endpoints(
        json!([{"addresses": addresses(&["1.1.1.1", "fd00::1"]), "ports": [{"port": 80}]}]),
        "1.1.1.1:80,[fd00::1]:80",
    );
    endpoints(
        json!([{"addresses": addresses(&["1.1.1.1", "1.1.1.2"])}]),
        "1.1.1.1,1.1.1.2",
    );
    endpoints(
        json!([{"addresses": addresses(&["1.1.1.1", "1.1.1.2"]), "ports": [{"port": 80}, {"port": 81}]},
            {"addresses": addresses(&["1.1.1.3"])}]),
        "1.1.1.1:80,1.1.1.2:80,1.1.1.1:81 + 2 more...",
    );
    let slice = |ports: Value, endpoints: Value, expected: [&str; 2]| {
        check(
            "discovery.k8s.io",
            "EndpointSlice",
            json!({"addressType": "IPv4", "ports": ports, "endpoints": endpoints}),
            json!(["x", "IPv4", expected[0], expected[1], "5m"]),
        );
    };
    slice(
        json!([{"port": 80}, {"name": "dns"}, {}]),
        json!([{"addresses": ["1.1.1.1"]}]),
        ["80,dns,*", "1.1.1.1"],
    );
    slice(json!([]), json!(null), ["<unset>", "<unset>"]);
    slice(
        json!([{"port": 1}, {"port": 2}, {"port": 3}, {"port": 4}]),
        json!([{"addresses": ["1.1.1.1", "1.1.1.2"]}, {"addresses": ["1.1.1.3"]}, {"addresses": ["1.1.1.4", "1.1.1.5"]}]),
        ["1,2,3 + 1 more...", "1.1.1.1,1.1.1.2,1.1.1.3 + 2 more..."],
    );
}

#[test]
fn ingresses_have_upstreams_columns() {
    let ingress = |hosts: &[&str], expected: &str| {
        let rules: Vec<Value> = hosts.iter().map(|host| json!({"host": host})).collect();
        check(
            "networking.k8s.io",
            "Ingress",
            json!({"spec": {"rules": rules}}),
            json!(["x", "<none>", expected, "", "80", "5m"]),
        );
    };
    ingress(&[], "*");
    ingress(&[""], "*");
    ingress(&["a", "b", "c"], "a,b,c");
    ingress(&["a", "b", "c", ""], "a,b,c + 1 more...");
    ingress(&["a", "", "b", "c", "d"], "a,b,c + 2 more...");
    check(
        "networking.k8s.io",
        "Ingress",
        json!({"spec": {"ingressClassName": "nginx", "tls": [{}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "2.2.2.2"}, {"hostname": "lb"}]}}}),
        json!(["x", "nginx", "*", "2.2.2.2,lb", "80, 443", "5m"]),
    );
    check(
        "networking.k8s.io",
        "IngressClass",
        json!({"metadata": {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
            "spec": {"controller": "c", "parameters": {"apiGroup": "g.io", "kind": "P", "name": "p"}}}),
        json!(["x (default)", "c", "P.g.io/p", "5m"]),
    );
    check(
        "networking.k8s.io",
        "IngressClass",
        json!({"spec": {"parameters": {"kind": "P", "name": "p"}}}),
        json!(["x", "", "P/p", "5m"]),
    );
    check(
        "networking.k8s.io",
        "IngressClass",
        json!({}),
        json!(["x", "", "<none>", "5m"]),
    );
    check(
        "networking.k8s.io",
        "NetworkPolicy",
        json!({"spec": {"podSelector": selector()}}),
        json!(["x", SELECTOR, "5m"]),
    );
    check(
        "networking.k8s.io",
        "NetworkPolicy",
        json!({"spec": {"podSelector": {}}}),
        json!(["x", "<none>", "5m"]),
    );
    check(
        "networking.k8s.io",
        "ServiceCIDR",
        json!({"spec": {"cidrs": ["10.0.0.0/16", "fd00::/108"]}}),
        json!(["x", "10.0.0.0/16,fd00::/108", "5m"]),
    );
    check(
        "networking.k8s.io",
        "IPAddress",
        json!({"spec": {"parentRef": {"group": "", "resource": "services", "namespace": "default", "name": "kubernetes"}}}),
        json!(["x", "services/default/kubernetes"]),
    );
    check(
        "networking.k8s.io",
        "IPAddress",
        json!({"spec": {"parentRef": {"group": "g.io", "resource": "Gs", "name": "a"}}}),
        json!(["x", "gs.g.io/a"]),
    );
}
