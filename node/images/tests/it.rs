//! Our own programs, run as a pod would.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use harness::{Process, eventually, free_port};

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
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kyanite-demo"));
    command
        .env("PORT", port.to_string())
        .env("POD_NAME", "web-0")
        .env("VERSION", "2");
    let mut demo = Process::spawn(command.stdout(Stdio::null()));
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
    terminate(demo.child());
    eventually("not ready", || {
        get(port, "/healthz").filter(|a| a.starts_with("HTTP/1.1 503"))
    });
    let ended = eventually("its end", || demo.child().try_wait().expect("a child"));
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
    let mut pause = Process::spawn(&mut Command::new(env!("CARGO_BIN_EXE_kyanite-pause")));
    // `rt_sigtimedwait`, by its number here and on ARM.
    let call = format!("/proc/{}/syscall", pause.child().id());
    eventually("it waits", || {
        let text = std::fs::read_to_string(&call).ok()?;
        ["128 ", "137 "]
            .iter()
            .any(|n| text.starts_with(n))
            .then_some(())
    });
    assert!(pause.child().try_wait().expect("a child").is_none());
    terminate(pause.child());
    assert!(eventually("its end", || pause.child().try_wait().expect("a child")).success());
}

#[test]
fn our_images_are_provided_once_and_again_when_their_program_is_newer() {
    let built = std::path::Path::new(env!("CARGO_BIN_EXE_kyanite-pause"));
    let built = built.parent().expect("a directory");
    let programs = tempfile::tempdir().expect("a directory");
    for program in ["kyanite-pause", "kyanite-demo"] {
        std::fs::copy(built.join(program), programs.path().join(program)).expect("a copy");
    }
    // Any program will do: this is about when images are made.
    std::fs::copy(built.join("kyanite-pause"), programs.path().join("kyanite")).expect("a copy");
    let directory = tempfile::tempdir().expect("a directory");
    let provide = || images::built_in::provide(programs.path(), directory.path()).expect("images");
    let files = provide();
    let made = |file: &std::path::Path| {
        std::fs::metadata(file)
            .and_then(|m| m.modified())
            .expect("a file")
    };
    let before: Vec<_> = files.iter().map(|file| made(file)).collect();
    let newer = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    let demo = std::fs::File::options()
        .write(true)
        .open(programs.path().join("kyanite-demo"));
    demo.and_then(|demo| demo.set_modified(newer))
        .expect("a newer program");
    provide();
    let same: Vec<bool> = files
        .iter()
        .zip(&before)
        .map(|(file, before)| made(file) == *before)
        .collect();
    assert_eq!(same, [true, false, false, true]);
    let names =
        |file: &std::path::Path| images::archive::contents(&std::fs::read(file).expect("a file"));
    assert_eq!(names(&files[1])[0].0, "kyanite.local/demo:1");
    assert!(
        names(&files[0])
            .iter()
            .any(|(name, _)| name == "registry.k8s.io/pause:3.10")
    );
    assert_eq!(names(&files[3])[0].0, images::built_in::KYANITE_NAME);
}
