//! A host's network of a test's own: what a cluster lays there is laid where nobody else is.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use harness::{eventually, said, skip};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// A network namespace with a loopback; gone when dropped and nobody is left in it.
pub(crate) struct World(Child);

impl World {
    /// Makes one; says so and gives nothing when this machine does not let us.
    pub(crate) fn make() -> Option<World> {
        let holder = Command::new("unshare")
            .args(["--net", "sleep", "infinity"])
            .stdin(Stdio::null())
            .spawn();
        let Ok(holder) = holder else {
            skip("no network namespace can be made (root and unshare are needed)");
            return None;
        };
        let world = World(holder);
        let own = std::fs::read_link("/proc/self/ns/net").expect("a namespace");
        eventually("the namespace is there", || {
            match std::fs::read_link(world.file()).map_err(|e| e.to_string())? {
                other if other != own => Ok(()),
                _ => Err("not yet".to_owned()),
            }
        });
        said(world.command("ip").args(["link", "set", "lo", "up"])).expect("a loopback");
        Some(world)
    }

    fn file(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }

    /// A program that is to run there.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.file())).arg(program);
        command
    }

    /// Does something on a thread that is there.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let file = File::open(self.file()).expect("the namespace");
        std::thread::scope(|scope| {
            let there = || {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("a way in");
                work()
            };
            scope.spawn(there).join().expect("it does not panic")
        })
    }

    /// What a web server answers somebody who is there.
    pub(crate) fn gets(&self, address: Ipv4Addr, path: &str) -> Result<String, String> {
        let get = || -> std::io::Result<String> {
            let place = SocketAddr::from((address, 80));
            let mut stream = TcpStream::connect_timeout(&place, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = self.inside(get).map_err(|e| e.to_string())?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        match head.split(' ').nth(1) == Some("200") {
            true => Ok(body.trim().to_owned()),
            false => Err(answer),
        }
    }

    /// Whether a machine is at an address that says anything to a port of it, if only that nobody listens there.
    pub(crate) fn reaches(&self, address: Ipv4Addr, port: u16) -> Result<(), String> {
        let place = SocketAddr::from((address, port));
        match self.inside(|| TcpStream::connect_timeout(&place, PATIENCE)) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The links that are there.
    pub(crate) fn links(&self) -> Vec<String> {
        let listed = said(self.command("ip").args(["-o", "link"])).expect("links");
        let name = |line: &str| Some(line.split(": ").nth(1)?.split('@').next()?.to_owned());
        listed.lines().filter_map(name).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // One that has ended already is all right, too.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
