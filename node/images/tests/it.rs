//! Our own programs, run as a pod would.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(90);

// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(
            begin.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

#[test]
fn the_demo_says_who_answers_and_serves_on_for_a_moment_when_told_to_end() {
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("a port")
        .port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kyanite-demo"));
    command
        .env("PORT", port.to_string())
        .env("POD_NAME", "web-0")
        .env("VERSION", "2");
    let mut demo = Running(command.stdout(Stdio::null()).spawn().expect("it runs"));
    let said = eventually("an answer", || get(port, "/"));
    assert!(said.ends_with("Hello from web-0, version 2\n"), "{said}");
    assert!(
        get(port, "/json")
            .expect("an answer")
            .contains(r#""pod":"web-0""#)
    );
    assert!(
        get(port, "/healthz")
            .expect("an answer")
            .starts_with("HTTP/1.1 200")
    );
    terminate(&demo.0);
    eventually("not ready", || {
        get(port, "/healthz").filter(|a| a.starts_with("HTTP/1.1 503"))
    });
    let ended = eventually("its end", || demo.0.try_wait().expect("a child"));
    assert!(ended.success());
}

fn terminate(child: &Child) {
    let mut kill = Command::new("kill");
    assert!(
        kill.arg(child.id().to_string())
            .status()
            .expect("kill runs")
            .success()
    );
}

#[test]
fn pause_waits_until_it_is_told_to_end() {
    let mut pause = Running(
        Command::new(env!("CARGO_BIN_EXE_kyanite-pause"))
            .spawn()
            .expect("it runs"),
    );
    // `rt_sigtimedwait`, by its number here and on ARM.
    let call = format!("/proc/{}/syscall", pause.0.id());
    eventually("it waits", || {
        let text = std::fs::read_to_string(&call).ok()?;
        ["128 ", "137 "]
            .iter()
            .any(|n| text.starts_with(n))
            .then_some(())
    });
    assert!(pause.0.try_wait().expect("a child").is_none());
    terminate(&pause.0);
    assert!(eventually("its end", || pause.0.try_wait().expect("a child")).success());
}

#[test]
fn our_images_are_provided_once_and_again_when_they_have_changed() {
    let programs = std::path::Path::new(env!("CARGO_BIN_EXE_kyanite-pause"));
    let programs = programs.parent().expect("a directory");
    let directory = tempfile::tempdir().expect("a directory");
    let files = images::built_in::provide(programs, directory.path()).expect("images");
    let made = |file: &std::path::Path| {
        std::fs::metadata(file)
            .and_then(|m| m.modified())
            .expect("a file")
    };
    let before = made(&files[0]);
    std::fs::write(&files[1], "torn").expect("written");
    images::built_in::provide(programs, directory.path()).expect("images");
    assert_eq!(made(&files[0]), before);
    let names =
        |file: &std::path::Path| images::archive::contents(&std::fs::read(file).expect("a file"));
    assert_eq!(names(&files[1])[0].0, "kyanite.local/demo:1");
    assert!(
        names(&files[0])
            .iter()
            .any(|(name, _)| name == "registry.k8s.io/pause:3.10")
    );
}
