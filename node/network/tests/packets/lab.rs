//! A node with pods, a pod elsewhere and a client outside, each a network namespace.
//!
//! ```text
//!  client 192.168.77.2 ── 192.168.77.1 node ── 10.244.0.2, 10.244.0.3   pods here
//!                                        └───── 10.244.1.2              a pod of another node
//! ```

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

pub(crate) const NODE: [&str; 2] = ["192.168.77.1", "fd00:77::1"];
pub(crate) const CLIENT: [&str; 2] = ["192.168.77.2", "fd00:77::2"];
/// Namespace, addresses.
pub(crate) const PODS: [(&str, [&str; 2]); 3] = [
    ("p1", ["10.244.0.2", "fd00:244::2"]),
    ("p2", ["10.244.0.3", "fd00:244::3"]),
    ("r1", ["10.244.1.2", "fd00:244:0:1::2"]),
];

pub(crate) struct Lab {
    prefix: String,
}

static LABS: AtomicU32 = AtomicU32::new(0);

impl Lab {
    /// Nothing where this machine cannot do it, and says so.
    pub(crate) fn new() -> Option<Lab> {
        for program in ["ip", "nft"] {
            if Command::new(program)
                .arg("-V")
                .stdout(Stdio::null())
                .status()
                .is_err()
            {
                eprintln!("SKIPPED: no {program} on this machine");
                return None;
            }
        }
        if !nix::unistd::geteuid().is_root() {
            eprintln!("SKIPPED: network namespaces need root");
            return None;
        }
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let lab = Lab {
            prefix: format!("ky{}x{number}", std::process::id()),
        };
        lab.build();
        Some(lab)
    }

    pub(crate) fn ns(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn build(&self) {
        for name in ["node", "client", "p1", "p2", "r1"] {
            run(&format!("ip netns add {}", self.ns(name)), "");
            // Addresses are usable at once.
            run(
                &format!(
                    "ip netns exec {} sysctl -qw net.ipv6.conf.default.accept_dad=0",
                    self.ns(name)
                ),
                "",
            );
            self.batch(name, "link set lo up\n");
        }
        let node = self.ns("node");
        for setting in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
            run(&format!("ip netns exec {node} sysctl -qw {setting}"), "");
        }
        let ends = PODS.into_iter().chain([("client", CLIENT)]);
        for (name, addresses) in ends {
            self.connect(name, addresses);
        }
    }

    // Routed, as in Azure's transparent mode: no bridge, a link to the node with addresses on both ends.
    fn connect(&self, name: &str, [v4, v6]: [&str; 2]) {
        let (node, other) = (self.ns("node"), self.ns(name));
        let way = if name == "client" {
            NODE
        } else {
            ["169.254.1.1", "fd00:169::1"]
        };
        let [gw4, gw6] = way;
        run(
            &format!("ip -n {node} link add v{name} type veth peer name eth0 netns {other}"),
            "",
        );
        self.batch(
            "node",
            &format!(
                "addr add {gw4}/32 dev v{name}\naddr add {gw6}/128 dev v{name} nodad\nlink set v{name} up\n\
                 route add {v4}/32 dev v{name}\nroute add {v6}/128 dev v{name}\n"
            ),
        );
        self.batch(
            name,
            &format!(
                "addr add {v4}/32 dev eth0\naddr add {v6}/128 dev eth0 nodad\nlink set eth0 up\n\
                 route add {gw4}/32 dev eth0\nroute add default via {gw4} src {v4}\n\
                 route add {gw6}/128 dev eth0\nroute add default via {gw6} src {v6}\n"
            ),
        );
    }

    fn batch(&self, name: &str, commands: &str) {
        run(&format!("ip -n {} -batch -", self.ns(name)), commands);
    }

    /// Runs something inside a namespace, on a thread of its own.
    pub(crate) fn inside<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let path = format!("/run/netns/{}", self.ns(name));
        thread::spawn(move || {
            setns(File::open(path).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
            work()
        })
    }

    /// Answers every connection and datagram with its name and who asked.
    pub(crate) fn serve(&self, name: &'static str, port: u16) {
        let (ready, is_ready) = mpsc::channel();
        self.inside(name, move || {
            let tcp = TcpListener::bind(("::", port)).unwrap();
            let udp = UdpSocket::bind(("::", port)).unwrap();
            thread::spawn(move || echo_datagrams(name, &udp));
            ready.send(()).unwrap();
            for stream in tcp.incoming().flatten() {
                let from = plain(stream.peer_addr().unwrap().ip());
                let _ = { stream }.write_all(format!("{name} {from}").as_bytes());
            }
        });
        is_ready.recv().unwrap();
    }

    /// What a TCP client in a namespace is told: name and seen source, or `refused`.
    pub(crate) fn tcp(&self, from: &str, to: &str, port: u16) -> String {
        let to = SocketAddr::new(to.parse().unwrap(), port);
        self.inside(from, move || tcp(to, PATIENCE)).join().unwrap()
    }

    /// Whether a TCP client is told nothing at all.
    pub(crate) fn is_silent(&self, from: &str, to: &str, port: u16) -> bool {
        let to = SocketAddr::new(to.parse().unwrap(), port);
        self.inside(from, move || tcp(to, SILENCE)).join().unwrap() == "silence"
    }

    /// The same by UDP, from a port of the client's choice (0: any).
    pub(crate) fn udp(&self, from: &str, to: &str, port: u16, own: u16) -> String {
        let to = SocketAddr::new(to.parse().unwrap(), port);
        self.inside(from, move || udp(to, own)).join().unwrap()
    }

    pub(crate) fn in_node(&self, command: &str) -> String {
        let node = self.ns("node");
        let words: Vec<&str> = command.split(' ').collect();
        let output = Command::new("ip")
            .args(["netns", "exec", &node])
            .args(words)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{command}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

fn echo_datagrams(name: &str, socket: &UdpSocket) {
    let mut buffer = [0; 64];
    while let Ok((_, from)) = socket.recv_from(&mut buffer) {
        let _ = socket.send_to(format!("{name} {}", plain(from.ip())).as_bytes(), from);
    }
}

fn plain(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// How long nothing must come until it counts as dropped.
const SILENCE: Duration = Duration::from_millis(1500);
/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn tcp(to: SocketAddr, patience: Duration) -> String {
    match TcpStream::connect_timeout(&to, patience) {
        Ok(mut stream) => {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut text = String::new();
            match stream.read_to_string(&mut text) {
                Ok(_) => text,
                Err(error) => error.to_string(),
            }
        }
        Err(error) => failed(&error),
    }
}

fn udp(to: SocketAddr, own: u16) -> String {
    let any: IpAddr = if to.is_ipv4() {
        [0, 0, 0, 0].into()
    } else {
        [0; 16].into()
    };
    let socket = UdpSocket::bind((any, own)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(to).unwrap();
    let mut buffer = [0; 64];
    let answer = socket.send(b"?").and_then(|_| socket.recv(&mut buffer));
    match answer {
        Ok(length) => String::from_utf8_lossy(&buffer[..length]).into_owned(),
        Err(error) => failed(&error),
    }
}

fn failed(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "refused".into(),
        std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock => "silence".into(),
        _ => error.to_string(),
    }
}

fn run(command: &str, input: &str) {
    let mut words = command.split(' ');
    let mut child = Command::new(words.next().unwrap())
        .args(words)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success(), "{command}\n{input}");
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in ["node", "client", "p1", "p2", "r1"] {
            let _ = Command::new("ip")
                .args(["netns", "del", &self.ns(name)])
                .status();
        }
    }
}
