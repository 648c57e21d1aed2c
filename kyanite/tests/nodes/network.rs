//! Networks that az makes, with machines in them and real packets between: what security groups, route tables, peerings
//! and private zones say is what happens. Needs root and az; skipped, loudly, without.

use std::fs;

use harness::{eventually, said};

use crate::azure::{IMAGE, KEY, Person};
use crate::cluster::traces;

/// Machines, and where they are: two networks, the first with two subnets.
const MACHINES: [(&str, &str, &str, &str); 4] = [
    ("web", "v1", "b", "10.1.2.4"),
    ("client", "v1", "a", "10.1.1.4"),
    ("router", "v1", "c", "10.1.3.4"),
    ("far", "v2", "a", "10.2.1.4"),
];
/// Says what it hears.
const ECHO: &str = "import socketserver\n\
    class Echo(socketserver.BaseRequestHandler):\n\
    \x20   def handle(self):\n\
    \x20       while data := self.request.recv(100): self.request.sendall(data)\n\
    socketserver.ThreadingTCPServer(('', 8081), Echo).serve_forever()\n";
/// Says something again and again, and counts how often it was heard.
const BEATS: &str = "import socket, time\n\
    wire, heard = socket.create_connection(('10.1.2.4', 8081)), 0\n\
    while wire.sendall(b'x') is None and wire.recv(1):\n\
    \x20   heard += 1; open('/run/beats', 'w').write(str(heard)); time.sleep(0.1)\n";

impl Person {
    /// Whether a machine gets an answer from an address at a port.
    fn reaches(&self, vm: &str, address: &str, port: u16) -> Result<(), String> {
        let line = format!("timeout 3 bash -c 'exec 3<>/dev/tcp/{address}/{port}'");
        self.home.on_vm(vm, &line).map(drop)
    }

    fn is_cut_off(&self, vm: &str, address: &str, port: u16) -> Result<(), String> {
        match self.reaches(vm, address, port) {
            Ok(()) => Err(format!("{vm} reaches {address}")),
            Err(_) => Ok(()),
        }
    }

    fn serves(&self, vm: &str, unit: &str, program: &str) {
        let line = format!("systemd-run --collect --unit {unit} {program}");
        eventually("a program runs", || self.home.on_vm(vm, &line));
    }

    fn make_networks(&self) {
        self.ok("group create -n g -l eastus");
        self.ok("network vnet create -g g -n v1 --address-prefixes 10.1.0.0/16 --subnet-name a --subnet-prefixes 10.1.1.0/24");
        for (name, range) in [("b", "10.1.2.0/24"), ("c", "10.1.3.0/24")] {
            self.ok(&format!(
                "network vnet subnet create -g g --vnet-name v1 -n {name} --address-prefixes {range}"
            ));
        }
        self.ok("network vnet create -g g -n v2 --address-prefixes 10.2.0.0/16 --subnet-name a --subnet-prefixes 10.2.1.0/24");
        let key = self.home.path().join("key.pub");
        fs::write(&key, KEY).expect("a file");
        let key = key.to_string_lossy().into_owned();
        let make = |(name, network, subnet, _): &(&str, &str, &str, &str)| {
            let words = format!(
                "vm create -g g -n {name} --image {IMAGE} --size Standard_D2s_v3 --admin-username somebody \
                 --ssh-key-values {key} --vnet-name {network} --subnet {subnet} --public-ip-address NONE --nsg NONE"
            );
            let words = words.split_whitespace();
            let words: Vec<&str> = words.map(|w| if w == "NONE" { "" } else { w }).collect();
            self.az_of(&words).expect("a machine")
        };
        std::thread::scope(|scope| {
            for machine in &MACHINES {
                scope.spawn(move || {
                    let made = make(machine);
                    assert_eq!(made["privateIpAddress"], machine.3, "{made}");
                });
            }
        });
    }
}

#[test]
fn networks_carry_what_groups_routes_peerings_and_zones_say_and_nothing_is_left() {
    let Some(person) = Person::new() else { return };
    let before = traces::of(person.home.path());
    person
        .home
        .kyanite("up --port 0 --nodes 0")
        .expect("it comes up");
    person.make_networks();
    for (name, _, _, address) in MACHINES {
        let shown = person
            .home
            .on_vm(name, "ip -4 addr show eth0")
            .expect("it runs");
        assert!(shown.contains(&format!("inet {address}/24")), "{shown}");
        person.serves(name, "web", "python3 -m http.server 8080");
    }
    eventually("subnets of a network reach each other", || {
        person.reaches("client", "10.1.2.4", 8080)
    });
    peers_meet(&person);
    groups_decide(&person);
    routes_lead(&person);
    zones_answer(&person);
    for (name, _, _, _) in MACHINES {
        person.ok(&format!("vm delete -g g -n {name} -y"));
    }
    assert_eq!(
        person
            .home
            .mounts()
            .iter()
            .filter(|m| m.contains("/vms/"))
            .count(),
        0,
        "{:?}",
        person.home.mounts()
    );
    person.home.kyanite("down --purge").expect("it goes down");
    eventually("nothing is left", || {
        match (traces::of(person.home.path()), person.home.world().links()) {
            (after, links) if after == before && links == ["lo"] => Ok(()),
            (after, links) => Err(format!("{links:?} {after:#?} instead of {before:#?}")),
        }
    });
}

fn peers_meet(person: &Person) {
    let cut = person.is_cut_off("client", "10.2.1.4", 8080);
    assert_eq!(cut, Ok(()), "networks do not meet by themselves");
    let peer = |from: &str, to: &str| {
        person.ok(&format!(
            "network vnet peering create -g g -n {from}-{to} --vnet-name {from} --remote-vnet {to} --allow-vnet-access"
        ))
    };
    assert_eq!(peer("v1", "v2")["peeringState"], "Initiated");
    let cut = person.is_cut_off("client", "10.2.1.4", 8080);
    assert_eq!(cut, Ok(()), "it takes both");
    assert_eq!(peer("v2", "v1")["peeringState"], "Connected");
    let shown =
        person.ok("network vnet peering show -g g -n v1-v2 --vnet-name v1 --query peeringState");
    assert_eq!(shown, "Connected");
    eventually("peers reach each other", || {
        person.reaches("client", "10.2.1.4", 8080)?;
        person.reaches("far", "10.1.2.4", 8080)
    });
    person.ok("network vnet peering delete -g g -n v2-v1 --vnet-name v2");
    eventually("and no longer without a peering", || {
        person.is_cut_off("client", "10.2.1.4", 8080)
    });
}

fn groups_decide(person: &Person) {
    let write = |vm: &str, path: &str, text: &str| {
        let line = format!("cat > {path} <<'END'\n{text}END\n");
        person.home.on_vm(vm, &line).expect("a file");
    };
    write("web", "/root/echo.py", ECHO);
    write("client", "/root/beats.py", BEATS);
    person.serves("web", "echo", "python3 /root/echo.py");
    eventually("it echoes", || person.reaches("client", "10.1.2.4", 8081));
    person.serves("client", "beats", "python3 /root/beats.py");
    let beats = || -> Result<u64, String> {
        let text = person.home.on_vm("client", "cat /run/beats")?;
        text.trim().parse().map_err(|e| format!("{text}: {e}"))
    };
    eventually("somebody talks", beats);

    person.ok("network nsg create -g g -n n");
    let rule = |name: &str, priority: u32, access: &str, more: &str| {
        person.ok(&format!(
            "network nsg rule create -g g --nsg-name n -n {name} --priority {priority} --access {access} --protocol Tcp {more}"
        ));
    };
    rule(
        "no",
        200,
        "Deny",
        "--destination-port-ranges 8000-8079 8080-8090 --source-address-prefixes 10.1.1.0/24",
    );
    person.ok("network vnet subnet update -g g --vnet-name v1 -n b --network-security-group n");
    eventually("a rule that denies drops", || {
        person.is_cut_off("client", "10.1.2.4", 8080)
    });
    eventually("others are allowed as they are by default", || {
        person.reaches("router", "10.1.2.4", 8080)
    });
    let then = beats().expect("a number");
    eventually("a connection from before goes on", || match beats()? {
        now if now > then + 5 => Ok(()),
        now => Err(format!("{now} after {then}")),
    });
    rule(
        "yes",
        100,
        "Allow",
        "--destination-port-ranges 8080 --source-address-prefixes 10.1.1.4",
    );
    eventually("a rule with a lower priority decides", || {
        person.reaches("client", "10.1.2.4", 8080)
    });
    person
        .is_cut_off("client", "10.1.2.4", 8081)
        .expect("and only for its port");
    person.ok("network nsg rule delete -g g --nsg-name n -n yes");
    eventually("without it it is as before", || {
        person.is_cut_off("client", "10.1.2.4", 8080)
    });
    let out = "--direction Outbound --destination-port-ranges 9090 --destination-address-prefixes VirtualNetwork";
    rule("out", 300, "Deny", out);
    person.serves("client", "other", "python3 -m http.server 9090");
    eventually("what leaves a subnet is asked about, too", || {
        person.reaches("router", "10.1.1.4", 9090)?;
        person.is_cut_off("web", "10.1.1.4", 9090)
    });
    person.ok("network vnet subnet update -g g --vnet-name v1 -n b --remove networkSecurityGroup");
    eventually("without a group nothing is", || {
        person.reaches("client", "10.1.2.4", 8080)?;
        person.reaches("web", "10.1.1.4", 9090)
    });
}

fn routes_lead(person: &Person) {
    person.ok("network route-table create -g g -n r");
    person.ok(
        "network route-table route create -g g --route-table-name r -n by --address-prefix 10.1.2.0/24 \
         --next-hop-type VirtualAppliance --next-hop-ip-address 10.1.3.4",
    );
    let forwards = |on: u8| {
        let line = format!("echo {on} > /proc/sys/net/ipv4/ip_forward");
        person.home.on_vm("router", &line).expect("a setting");
    };
    forwards(1);
    person.ok("network vnet subnet update -g g --vnet-name v1 -n a --route-table r");
    eventually("a card that is not to forward gets nothing", || {
        person.is_cut_off("client", "10.1.2.4", 8080)
    });
    person.ok("network nic update -g g -n routerVMNic --ip-forwarding true");
    eventually("packets go through another machine", || {
        person.reaches("client", "10.1.2.4", 8080)
    });
    forwards(0);
    eventually("which may as well not let them", || {
        person.is_cut_off("client", "10.1.2.4", 8080)
    });
    person
        .reaches("client", "10.1.3.4", 8080)
        .expect("other ways are as they were");
    person.ok(
        "network route-table route update -g g --route-table-name r -n by --next-hop-type None --remove nextHopIpAddress",
    );
    forwards(1);
    eventually("and a route may lead nowhere", || {
        person.is_cut_off("client", "10.1.2.4", 8080)
    });
    person.ok("network vnet subnet update -g g --vnet-name v1 -n a --remove routeTable");
    eventually("without a table all is as before", || {
        person.reaches("client", "10.1.2.4", 8080)
    });
}

fn zones_answer(person: &Person) {
    let resolves = |vm: &str, name: &str| person.home.on_vm(vm, &format!("getent hosts {name}"));
    person.ok("network private-dns zone create -g g -n corp.example");
    person.ok("network private-dns record-set a add-record -g g -z corp.example -n db -a 10.1.2.4");
    person.ok("network private-dns link vnet create -g g -z corp.example -n l -v v1 -e true");
    eventually("a zone's names are known in its network", || {
        let found = resolves("client", "db.corp.example")?;
        match found.contains("10.1.2.4") {
            true => Ok(()),
            false => Err(found),
        }
    });
    for name in ["web", "web.corp.example"] {
        let found = resolves("client", name).expect("a machine's name");
        assert!(found.contains("10.1.2.4"), "{found}");
    }
    assert!(resolves("far", "db.corp.example").is_err(), "not there");
    assert!(resolves("client", "none.corp.example").is_err());
    // What stands behind all of it, for whoever wonders.
    let driver = person.home.driver_of("client").expect("a driver");
    let network = driver.network("vnet").expect("a network");
    let list = || said(std::process::Command::new("nft").args(["list", "tables"]));
    let tables = network.inside(list).expect("it is there").expect("tables");
    assert!(tables.contains("kyanite_network"), "{tables}");
}
