//! Machines reach those of their network, and nobody else.

use std::io::Read as _;
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use harness::eventually;
use machines::{Attachment, File, Network, Spec};

use crate::host::Host;

// A machine that says its name to whoever connects.
fn greeter(name: &str, network: &str, address: [u8; 4]) -> Spec {
    let socket = "[Socket]\nListenStream=80\nAccept=yes\n";
    let service = "[Service]\nExecStart=/bin/hostname\nStandardInput=null\nStandardOutput=socket\n";
    Spec {
        name: name.to_owned(),
        attachment: Some(Attachment {
            network: network.to_owned(),
            address: Ipv4Addr::from(address),
            name_servers: Vec::new(),
        }),
        files: vec![
            File::new("/etc/systemd/system/greeter.socket", socket),
            File::new("/etc/systemd/system/greeter@.service", service),
        ],
        units: vec!["greeter.socket".to_owned()],
        ..Spec::default()
    }
}

fn greeting(network: &Network, address: [u8; 4]) -> Result<String, String> {
    let ask = || {
        let mut stream = TcpStream::connect((Ipv4Addr::from(address), 80))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    };
    network
        .inside(ask)
        .map_err(|e| e.to_string())?
        .map_err(|e: std::io::Error| e.to_string())
}

#[test]
fn several_machines_at_once_and_two_networks_with_the_same_addresses() {
    let Some(host) = Host::new() else { return };
    let subnet = "10.9.0.0/24".parse().expect("a subnet");
    let one = host
        .driver
        .create_network("one", subnet)
        .expect("a network");
    let two = host
        .driver
        .create_network("two", subnet)
        .expect("a network");
    assert_eq!(one.gateway(), Ipv4Addr::new(10, 9, 0, 1));
    let specs = [
        greeter("alice", "one", [10, 9, 0, 4]),
        greeter("bob", "one", [10, 9, 0, 5]),
        greeter("carol", "two", [10, 9, 0, 4]),
    ];
    std::thread::scope(|scope| {
        for spec in &specs {
            let host = &host;
            scope.spawn(move || host.boot(spec));
        }
    });
    let heard = host.must("bob", "cat < /dev/tcp/10.9.0.4/80");
    assert_eq!(heard, "alice\n");
    assert_eq!(host.must("alice", "cat < /dev/tcp/10.9.0.5/80"), "bob\n");
    assert_eq!(
        host.must("alice", "cat < /dev/tcp/$(hostname)/80"),
        "alice\n"
    );
    let from_outside = |network| eventually("a greeting", || greeting(network, [10, 9, 0, 4]));
    assert_eq!(from_outside(&one), "alice\n");
    assert_eq!(from_outside(&two), "carol\n");
    host.run("carol", "timeout 2 cat < /dev/tcp/10.9.0.5/80")
        .expect_err("bob is elsewhere");
    assert!(
        host.must("alice", "ip route")
            .starts_with("default via 10.9.0.1"),
        "a default route"
    );
}
