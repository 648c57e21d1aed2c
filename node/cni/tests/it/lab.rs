//! Network namespaces as nodes, pods and the world outside; the plugin runs on the nodes.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::skip;
use nix::sched::{CloneFlags, unshare};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

/// The plugin.
pub(crate) const PLUGIN: &str = env!("CARGO_BIN_EXE_kyanite-cni");
const OWN: &str = "/proc/thread-self/ns/net";
const PATIENCE: Duration = Duration::from_secs(60);

/// A network namespace that goes with this.
pub(crate) struct Space {
    pub(crate) path: PathBuf,
}

impl Space {
    fn new(path: PathBuf) -> Space {
        File::create(&path).expect("a file");
        std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                unshare(CloneFlags::CLONE_NEWNET).expect("a namespace");
                mount_bind(OWN, &path).expect("held");
            });
            made.join().expect("made");
        });
        let space = Space { path };
        space.ip("link set lo up");
        space
    }

    /// Runs something inside; programs and sockets that it starts stay there.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let file = File::open(&self.path).expect("a namespace");
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("entered");
                work()
            });
            inside.join().expect("done")
        })
    }

    /// What `ip` says.
    pub(crate) fn ip(&self, line: &str) -> String {
        let run = || {
            let mut ip = Command::new("ip");
            ip.args(line.split(' ')).output().expect("ip runs")
        };
        let output = self.inside(run);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ip {line}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Answers whoever connects with the address that they come from.
    pub(crate) fn serve(&self, address: &str) -> Server {
        let address: SocketAddr = address.parse().expect("an address");
        let listener = self.inside(|| TcpListener::bind(address).expect("a port"));
        listener.set_nonblocking(true).expect("a listener");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((mut peer, from)) => {
                        let _ = peer.write_all(from.ip().to_string().as_bytes());
                    }
                    Err(_) => std::thread::park_timeout(Duration::from_millis(2)),
                }
            }
        });
        Server {
            stop,
            thread: Some(thread),
        }
    }

    /// What a server there answers.
    pub(crate) fn ask(&self, address: &str) -> Result<String, std::io::Error> {
        self.ask_within(address, Duration::from_secs(10))
    }

    pub(crate) fn ask_within(
        &self,
        address: &str,
        within: Duration,
    ) -> Result<String, std::io::Error> {
        let address: SocketAddr = address.parse().expect("an address");
        self.inside(|| {
            let mut stream = TcpStream::connect_timeout(&address, within)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        })
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = unmount(&self.path, UnmountFlags::DETACH);
        let _ = fs::remove_file(&self.path);
    }
}

/// A server that ends with this.
pub(crate) struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A directory with namespaces in it.
pub(crate) struct Lab {
    directory: tempfile::TempDir,
}

impl Lab {
    /// Nothing where namespaces cannot be made.
    pub(crate) fn new() -> Option<Lab> {
        if !rustix::process::geteuid().is_root() {
            skip("network namespaces need root");
            return None;
        }
        if Command::new("ip").arg("-V").output().is_err() {
            skip("no `ip` here (package iproute2; scripts/setup --for test)");
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        Some(Lab { directory })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn space(&self, name: &str) -> Space {
        Space::new(self.path().join(name))
    }

    /// A node on a network of nodes: `outside` has a link to it. Its own address is 192.0.2.`n`.
    pub(crate) fn node(&self, outside: &Space, n: u8, conf: Value) -> Node {
        let space = self.space(&format!("node{n}"));
        let path = space.path.display();
        outside.ip(&format!(
            "link add to{n} type veth peer name eth0 netns {path}"
        ));
        outside.ip(&format!("link set to{n} master br0 up"));
        space.ip("link set eth0 up");
        space.ip(&format!("address add 192.0.2.{n}/24 dev eth0"));
        space.ip(&format!("address add 2001:db8::{n}/64 dev eth0 nodad"));
        space.ip("route add default via 192.0.2.254");
        space.ip("route add default via 2001:db8::ff");
        Node {
            space,
            conf: with_books(conf, &self.path().join(format!("books{n}"))),
        }
    }

    /// The network of nodes and the world beyond it.
    pub(crate) fn outside(&self) -> Space {
        let space = self.space("outside");
        space.ip("link add br0 type bridge");
        space.ip("link set br0 up");
        space.ip("address add 192.0.2.254/24 dev br0");
        space.ip("address add 2001:db8::ff/64 dev br0 nodad");
        space
    }

    /// A node alone.
    pub(crate) fn lone_node(&self, conf: Value) -> Node {
        let space = self.space("node");
        let conf = with_books(conf, &self.path().join("books"));
        Node { space, conf }
    }
}

fn with_books(mut conf: Value, directory: &Path) -> Value {
    conf["ipam"]["dataDir"] = json!(directory);
    conf
}

/// A node's namespace and the configuration of its network.
pub(crate) struct Node {
    pub(crate) space: Space,
    pub(crate) conf: Value,
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) output: Output,
    pub(crate) value: Value,
}

impl Answer {
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(self.output.status.success(), "{self:?}");
        self.value
    }

    #[track_caller]
    pub(crate) fn code(self) -> u64 {
        assert!(!self.output.status.success(), "{self:?}");
        self.value["code"].as_u64().unwrap_or_default()
    }
}

/// A call of the plugin.
pub(crate) struct Invocation<'a> {
    node: &'a Node,
    variables: Vec<(&'static str, String)>,
    conf: Value,
}

impl Node {
    pub(crate) fn call(&self, verb: &str) -> Invocation<'_> {
        let call = Invocation {
            node: self,
            variables: Vec::new(),
            conf: self.conf.clone(),
        };
        call.set("CNI_COMMAND", verb)
    }

    /// A call about a pod; its container is called as its namespace.
    pub(crate) fn about(&self, verb: &str, pod: &Space) -> Invocation<'_> {
        let name = pod.path.file_name().expect("a name").to_string_lossy();
        self.call(verb)
            .set("CNI_CONTAINERID", name)
            .set("CNI_IFNAME", "eth0")
            .set("CNI_NETNS", pod.path.display())
    }

    /// Attaches a pod; its addresses.
    #[track_caller]
    pub(crate) fn add(&self, pod: &Space) -> Vec<IpAddr> {
        addresses(&self.about("ADD", pod).run().ok())
    }

    #[track_caller]
    pub(crate) fn del(&self, pod: &Space) {
        self.about("DEL", pod).run().ok();
    }

    /// What there is of pods: cables and entries in the books.
    pub(crate) fn remains(&self) -> Vec<String> {
        let links = self.space.ip("-o link show type veth");
        let mut remains: Vec<String> = links
            .lines()
            .filter(|line| line.contains("veth"))
            .filter(|line| !line.contains(" eth0@"))
            .map(str::to_owned)
            .collect();
        let name = self.conf["name"].as_str().expect("a name");
        let books = self.conf["ipam"]["dataDir"].as_str().expect("a directory");
        let books = Path::new(books).join(name).join("ledger.json");
        let books = fs::read(books).unwrap_or_else(|_| b"{}".to_vec());
        let books: Value = serde_json::from_slice(&books).expect("books");
        let entries = books["attachments"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        remains.extend(entries.keys().cloned());
        remains
    }
}

impl Invocation<'_> {
    pub(crate) fn set(mut self, name: &'static str, value: impl ToString) -> Self {
        self.variables.push((name, value.to_string()));
        self
    }

    pub(crate) fn with(mut self, key: &str, value: Value) -> Self {
        self.conf[key] = value;
        self
    }

    pub(crate) fn run(self) -> Answer {
        let mut command = Command::new(PLUGIN);
        command
            .env_clear()
            .envs(self.variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let input = self.conf.to_string();
        let output = self.node.space.inside(|| {
            let mut child = command.spawn().expect("the plugin runs");
            let mut stdin = child.stdin.take().expect("an input");
            let _ = stdin.write_all(input.as_bytes());
            drop(stdin);
            child.wait_with_output().expect("the plugin ends")
        });
        let value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        Answer { output, value }
    }
}

/// The addresses of a result, in its order.
pub(crate) fn addresses(result: &Value) -> Vec<IpAddr> {
    let ips = result["ips"].as_array().expect("addresses");
    ips.iter()
        .map(|ip| {
            let text = ip["address"].as_str().expect("an address");
            let text = text.split('/').next().expect("an address");
            text.parse().expect("an address")
        })
        .collect()
}

/// A configuration as a runtime hands it over.
pub(crate) fn conf(mode: &str, ranges: &[&str]) -> Value {
    let ranges: Vec<Value> = ranges.iter().map(|r| json!([{"subnet": r}])).collect();
    json!({
        "cniVersion": "1.1.0", "name": "pods", "type": "kyanite-cni", "mode": mode,
        "nonMasqueradeCIDRs": ["10.244.0.0/16", "fd00:244::/48"],
        "ipam": {"ranges": ranges},
    })
}
