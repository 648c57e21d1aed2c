#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;

fn read(selections: &str) -> Result<Vec<Selection>, String> {
    let text = format!(
        "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n{selections}"
    );
    parse(text.as_bytes(), &|path| path.starts_with("/there"))
}

#[test]
fn each_kind_of_traffic_gets_its_way() {
    let found = read(
        "- name: cluster
  connection: {proxyProtocol: GRPC, transport: {uds: {udsName: /run/k.sock}}}
- name: ControlPlane
  connection: {proxyProtocol: Direct}
- name: etcd
  connection:
    proxyProtocol: HTTPConnect
    transport:
      tcp:
        url: https://proxy:8131/
        tlsConfig: {caBundle: /there/ca, clientKey: /there/key, clientCert: /there/crt, tlsServerName: k}
",
    )
    .unwrap();
    let keys = Keys {
        authority: Some("/there/ca".into()),
        certificate: "/there/crt".into(),
        key: "/there/key".into(),
        server_name: Some("k".into()),
    };
    let uds = Transport::Uds("/run/k.sock".into());
    let tcp = Transport::Tcp("proxy:8131".into(), Some(keys));
    let row = |traffic, way| Selection { traffic, way };
    assert_eq!(
        found,
        [
            row(Traffic::Cluster, Way::Tunnel(Protocol::Grpc, uds)),
            row(Traffic::ControlPlane, Way::Direct),
            row(Traffic::Etcd, Way::Tunnel(Protocol::HttpConnect, tcp)),
        ]
    );
}

#[test]
fn mistakes_are_named_as_upstream_names_them() {
    let connection = |text: &str| format!("- name: cluster\n  connection: {text}\n");
    let cases = [
        (connection("{proxyProtocol: SSH}"), "service.connection.protocol: Unsupported value: \"SSH\": supported values: \"Direct\", \"HTTPConnect\", \"GRPC\""),
        (connection("{proxyProtocol: Direct, transport: {uds: {udsName: x}}}"), "service.connection.transport: Invalid value: \"direct\": config must be absent for direct connect"),
        (connection("{proxyProtocol: GRPC}"), "service.connection.transport: Required value: transport must be set for GRPC"),
        (connection("{proxyProtocol: GRPC, transport: {tcp: {url: 'https://a'}}}"), "service.connection.uds: Required value: UDS must be set with GRPC"),
        (connection("{proxyProtocol: GRPC, transport: {uds: {}}}"), "service.connection.udsName: Invalid value: \"nil\": must be present for UDS connections"),
        (connection("{proxyProtocol: HTTPConnect, transport: {}}"), "service.connection.tcp: Required value: One of TCP or UDS must be set"),
        (connection("{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'ftp://a'}}}"), "service.connection.url: Invalid value: \"ftp://a\": supported connection protocols are http:// and https://"),
        (connection("{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://a'}}}"), "service.connection.tlsConfig: Required value: TLSConfig must be present when using HTTPS"),
        (connection("{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://a', tlsConfig: {}}}}"), "service.connection.tlsConfig: Invalid value: \"nil\": config must not be present when using HTTP"),
        (connection("{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://a', tlsConfig: {clientCert: /gone, clientKey: /there/k}}}}"), "service.connection.tlsConfig.clientCert: Invalid value: \"/gone\": TLS client cert does not exist"),
        ("- name: nodes\n  connection: {proxyProtocol: Direct}\n".into(), "service.connection: Unsupported value: \"nodes\": supported values: \"cluster\", \"controlplane\", \"etcd\""),
        ("- name: etcd\n  connection: {proxyProtocol: Direct}\n- name: Etcd\n  connection: {proxyProtocol: Direct}\n".into(), "service.connection[1]: Duplicate value: \"etcd\""),
    ];
    for (text, message) in cases {
        let wanted = format!("failed to validate egress selector configuration: {message}");
        assert_eq!(read(&text).unwrap_err(), wanted, "{text}");
    }
}

#[test]
fn a_file_of_another_kind_or_with_unknown_fields_is_refused() {
    let other = "apiVersion: v1\nkind: ConfigMap\negressSelections: []\n";
    for text in [other, "kind: EgressSelectorConfiguration", "apiVersion: ["] {
        let error = parse(text.as_bytes(), &|_| true).unwrap_err();
        assert!(
            error.starts_with("failed to read egress selector config: "),
            "{error}"
        );
    }
    let unknown = read("- name: cluster\n  conection: {}\n").unwrap_err();
    assert!(unknown.contains("unknown field `conection`"), "{unknown}");
}
