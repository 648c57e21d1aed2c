//! A network of a test's own, which nothing else on this machine can reach.

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::TcpStream;

use super::skip;

/// An address inside that is not loopback, but only leads to the namespace itself.
pub(crate) const INSIDE: &str = "10.77.0.2";

static MADE: AtomicU32 = AtomicU32::new(0);

/// A network namespace with loopback and [`INSIDE`]; gone when dropped.
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes one; says so and gives nothing when this machine does not let us.
    pub(crate) fn make() -> Option<Namespace> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let namespace = Namespace {
            name: format!("kyanite-it-{}-{number}", std::process::id()),
        };
        let made = ip(&["netns", "add", &namespace.name])
            && namespace.ip(&["link", "set", "lo", "up"])
            && namespace.ip(&["address", "add", &format!("{INSIDE}/32"), "dev", "lo"]);
        if !made {
            skip("no network namespace can be made (root and the ip program are needed)");
            return None;
        }
        Some(namespace)
    }

    fn ip(&self, words: &[&str]) -> bool {
        ip(&[&["-n", &self.name], words].concat())
    }

    /// Gives it one more address.
    pub(crate) fn add_address(&self, address: &str) {
        let added = self.ip(&["address", "add", &format!("{address}/32"), "dev", "lo"]);
        assert!(added, "{address} cannot be added");
    }

    /// A program that is to run inside.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.name])
            .arg(program.as_ref());
        command
    }

    /// A listener inside, on any free port of [`INSIDE`]; it may be used from outside.
    pub(crate) fn listen(&self) -> TcpListener {
        self.inside(|| TcpListener::bind((INSIDE, 0)).expect("a free port"))
    }

    /// A port of loopback inside that leads to one of loopback outside, as long as the caller's runtime runs.
    pub(crate) fn door_to(&self, outside: u16) -> u16 {
        let listener = self.inside(|| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let port = listener.local_addr().expect("it is bound").port();
        listener.set_nonblocking(true).expect("a socket of ours");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut to = TcpStream::connect(("127.0.0.1", outside)).await?;
                    tokio::io::copy_bidirectional(&mut from, &mut to).await
                });
            }
        });
        port
    }

    /// Runs something on a thread inside; sockets it makes stay there.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let door = File::open(format!("/run/netns/{}", self.name)).expect("it exists");
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(door.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("root may go there");
                work()
            });
            thread.join().expect("no panic inside")
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        ip(&["netns", "delete", &self.name]);
    }
}

fn ip(words: &[&str]) -> bool {
    let ended = Command::new("ip")
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    ended.is_ok_and(|status| status.success())
}
