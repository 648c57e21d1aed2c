//! The scripts, run for real in a temporary directory.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command as Process, Output, Stdio};

use super::*;

fn run(script: &str, arguments: &[&str], stdin: &str) -> Output {
    let mut child = Process::new("sh")
        .args(["-c", script, "sh"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(stdin.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

/// An archive as Kubernetes' releases have it.
fn archive(directory: &Path) -> String {
    let bin = directory.join("kubernetes/node/bin");
    std::fs::create_dir_all(&bin).unwrap();
    for name in ["kubelet", "kubectl", "kube-proxy"] {
        std::fs::write(bin.join(name), name).unwrap();
    }
    let path = directory.join("kube.tar.gz");
    let mut tar = Process::new("tar");
    tar.arg("-czf")
        .arg(&path)
        .arg("-C")
        .arg(directory)
        .arg("kubernetes");
    assert!(tar.status().unwrap().success());
    path.to_str().unwrap().to_owned()
}

#[test]
fn unpacking_takes_the_named_files_and_leaves_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let archive = archive(directory.path());
    let place = directory.path().join("bin");
    let place = place.to_str().unwrap();
    for _ in 0..2 {
        let output = run(
            UNPACK,
            &[&archive, place, "-1.34.8", "kubelet", "kubectl"],
            "",
        );
        assert!(output.status.success(), "{output:?}");
    }
    let mut names: Vec<String> = std::fs::read_dir(place)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["kubectl-1.34.8", "kubelet-1.34.8"]);
    let kubelet = Path::new(place).join("kubelet-1.34.8");
    assert_eq!(std::fs::read_to_string(&kubelet).unwrap(), "kubelet");
    assert_eq!(
        kubelet.metadata().unwrap().permissions().mode() & 0o777,
        0o755
    );
}

#[test]
fn an_archive_without_the_file_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let archive = archive(directory.path());
    let place = directory.path().join("bin");
    let output = run(
        UNPACK,
        &[&archive, place.to_str().unwrap(), "", "kubeadm"],
        "",
    );
    assert!(!output.status.success());
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("has no kubeadm"),
        "{output:?}"
    );
}

#[test]
fn unpacking_all_of_an_archive_keeps_nothing_back() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    for name in ["10-azure.conflist", "azure-vnet", "azure-vnet-ipam"] {
        std::fs::create_dir_all(&from).unwrap();
        std::fs::write(from.join(name), name).unwrap();
    }
    let archive = directory.path().join("cni.tgz");
    let made = Process::new("tar")
        .arg("-czf")
        .arg(&archive)
        .arg("-C")
        .arg(&from)
        .arg(".")
        .status();
    assert!(made.unwrap().success());
    let arguments = [
        archive.to_str().unwrap(),
        to.to_str().unwrap(),
        "azure-vnet",
    ];
    for _ in 0..2 {
        let output = run(UNPACK_WHOLE, &arguments, "");
        assert!(output.status.success(), "{output:?}");
    }
    let mut names: Vec<String> = std::fs::read_dir(&to)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["10-azure.conflist", "azure-vnet", "azure-vnet-ipam"]
    );
}

/// Serves one file once on a free port of the loopback, and gives its URL.
fn serve(content: Vec<u8>) -> (String, std::thread::JoinHandle<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "http://{}/kube.tar.gz?sig=s",
        listener.local_addr().unwrap()
    );
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.extend(byte);
        }
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            content.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&content).unwrap();
    });
    (url, server)
}

#[test]
fn a_download_counts_only_when_it_is_what_it_should_be() {
    if Process::new("curl")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        println!("SKIPPED: downloads by script need curl");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let content = std::fs::read(archive(directory.path())).unwrap();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &content);
    let digest: String = digest.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    let place = directory.path().join("fetched.tar.gz");
    let wrong = "0".repeat(64);
    let rows = [
        (content.clone(), wrong.as_str(), false),
        (b"no archive".to_vec(), "", false),
        (content.clone(), "", true),
        (content, digest.as_str(), true),
    ];
    for (content, digest, good) in rows {
        let _ = std::fs::remove_file(&place);
        let (url, server) = serve(content);
        let output = run(
            FETCH,
            &[place.to_str().unwrap(), digest],
            &format!("{url}\n"),
        );
        server.join().unwrap();
        assert_eq!(output.status.success(), good, "{digest}: {output:?}");
        assert_eq!(place.exists(), good, "{digest}");
    }
}

#[test]
fn every_script_is_one_that_a_shell_can_read() {
    use crate::render::{firewall, units};
    let imds = firewall::imds_script();
    let scripts = [
        APT_INSTALL,
        UNPACK,
        UNPACK_WHOLE,
        FETCH,
        firewall::WIRESERVER_SCRIPT,
        &imds,
        units::BIND_MOUNT_SCRIPT,
        units::NO_DUPLICATES_SCRIPT,
    ];
    for script in scripts {
        let output = Process::new("sh")
            .args(["-n", "-c", script])
            .output()
            .unwrap();
        assert!(output.status.success(), "{script}\n{output:?}");
    }
}
