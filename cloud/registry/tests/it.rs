//! The registry over the wire: by hand, and with containerd as its client.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use harness::{Process, eventually, skip};
use images::{Layer, Settings as ImageSettings, archive, digest};
use registry::{Registry, Settings};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(90);

/// A registry that ends with this.
struct Served {
    address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

fn serve(directory: &Path, token: Option<&str>) -> Served {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let registry = Registry::open(Settings {
        directory: directory.to_owned(),
        token: token.map(str::to_owned),
    })
    .expect("a registry");
    let listener = runtime
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    runtime.spawn(async move { registry.serve(listener, std::future::pending()).await });
    Served {
        address,
        _runtime: runtime,
    }
}

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

impl Served {
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let headers: String = headers
            .iter()
            .map(|(k, v)| format!("{k}: {v}\r\n"))
            .collect();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("sent");
        stream.write_all(body).expect("sent");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("an answer");
        let end = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("a head");
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|s| s.parse().ok())
            .expect("a status");
        Answer {
            status,
            head,
            body: bytes[end + 4..].to_vec(),
        }
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }

    fn push_blob(&self, name: &str, content: &[u8]) -> String {
        let digest = digest(content);
        let path = format!("/v2/{name}/blobs/uploads/?digest={digest}");
        assert_eq!(self.ask("POST", &path, &[], content).status, 201);
        digest
    }
}

fn manifest(config: &str, subject: Option<&str>, kind: &str) -> Vec<u8> {
    let mut value = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "artifactType": kind,
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": config, "size": 2}, "layers": [],
    });
    if let Some(subject) = subject {
        value["subject"] = json!({"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": subject, "size": 1});
    }
    value.to_string().into_bytes()
}

#[test]
fn blobs_come_whole_in_pieces_or_from_another_repository() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = serve(directory.path(), None);
    assert_eq!(served.get("/v2/").status, 200);
    let whole = served.push_blob("a", b"whole");
    assert_eq!(served.get(&format!("/v2/a/blobs/{whole}")).body, b"whole");
    let part = served.ask(
        "GET",
        &format!("/v2/a/blobs/{whole}"),
        &[("Range", "bytes=1-2")],
        b"",
    );
    assert_eq!((part.status, part.body.as_slice()), (206, &b"ho"[..]));
    let begun = served.ask("POST", "/v2/a/blobs/uploads/", &[], b"");
    let place = begun.header("location").expect("a place").to_owned();
    let first = served.ask("PATCH", &place, &[("Content-Range", "0-2")], b"pie");
    assert_eq!((first.status, first.header("range")), (202, Some("0-2")));
    let wrong = served.ask("PATCH", &place, &[("Content-Range", "7-9")], b"ces");
    assert_eq!(wrong.status, 416, "a piece that does not come next");
    assert_eq!(served.get(&place).status, 204);
    let pieces = digest(b"pieces");
    let done = served.ask("PUT", &format!("{place}?digest={pieces}"), &[], b"ces");
    assert_eq!(done.status, 201);
    let nobodys = served.get(&format!("/v2/b/blobs/{pieces}"));
    assert_eq!(
        (nobodys.status, nobodys.json()["errors"][0]["code"].clone()),
        (404, json!("BLOB_UNKNOWN"))
    );
    let mounted = served.ask(
        "POST",
        &format!("/v2/b/blobs/uploads/?mount={pieces}&from=a"),
        &[],
        b"",
    );
    assert_eq!(mounted.status, 201);
    assert_eq!(served.get(&format!("/v2/b/blobs/{pieces}")).body, b"pieces");
    let lie = served.ask(
        "POST",
        &format!("/v2/a/blobs/uploads/?digest={whole}"),
        &[],
        b"other",
    );
    assert_eq!(lie.json()["errors"][0]["code"], "DIGEST_INVALID");
}

#[test]
fn manifests_have_tags_and_referrers_and_what_nobody_has_is_swept() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = serve(directory.path(), None);
    let config = served.push_blob("app/web", b"{}");
    let image = manifest(&config, None, "app/image");
    for tag in ["v1", "v2", "v3"] {
        let put = served.ask("PUT", &format!("/v2/app/web/manifests/{tag}"), &[], &image);
        assert_eq!(put.status, 201);
    }
    let id = digest(&image);
    let got = served.get("/v2/app/web/manifests/v2");
    assert_eq!((got.body, got.head.contains(&id)), (image, true));
    let tags = served.get("/v2/app/web/tags/list?n=2");
    assert_eq!(tags.json()["tags"], json!(["v1", "v2"]));
    assert!(
        tags.header("link")
            .is_some_and(|link| link.contains("last=v2"))
    );
    assert_eq!(
        served.get("/v2/app/web/tags/list?last=v2").json()["tags"],
        json!(["v3"])
    );
    assert_eq!(
        served.get("/v2/_catalog").json()["repositories"],
        json!(["app/web"])
    );
    let signature = manifest(&config, Some(&id), "app/signature");
    let put = served.ask(
        "PUT",
        &format!("/v2/app/web/manifests/{}", digest(&signature)),
        &[],
        &signature,
    );
    assert_eq!(put.header("oci-subject"), Some(id.as_str()));
    let about = served.get(&format!(
        "/v2/app/web/referrers/{id}?artifactType=app/signature"
    ));
    assert_eq!(about.json()["manifests"][0]["digest"], digest(&signature));
    let none = served.get(&format!("/v2/app/web/referrers/{id}?artifactType=other"));
    assert_eq!(none.json()["manifests"], json!([]));
    let stray = manifest(&digest(b"nowhere"), None, "x");
    let refused = served.ask("PUT", "/v2/app/web/manifests/x", &[], &stray);
    assert_eq!(refused.json()["errors"][0]["code"], "MANIFEST_BLOB_UNKNOWN");
    for gone in [id.clone(), digest(&signature)] {
        let path = format!("/v2/app/web/manifests/{gone}");
        assert_eq!(served.ask("DELETE", &path, &[], b"").status, 202);
    }
    assert_eq!(served.get("/v2/app/web/manifests/v1").status, 404);
    served.ask("DELETE", &format!("/v2/app/web/blobs/{config}"), &[], b"");
    drop(served);
    let again = serve(directory.path(), None);
    assert_eq!(again.get("/v2/app/web/tags/list").json()["tags"], json!([]));
    let left = std::fs::read_dir(directory.path().join("blobs/sha256")).expect("a directory");
    assert_eq!(left.count(), 0, "what nobody has is swept at the start");
}

#[test]
fn a_token_is_the_password_of_anybody() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = serve(directory.path(), Some("secret"));
    let refused = served.get("/v2/");
    assert_eq!(refused.status, 401);
    assert!(refused.header("www-authenticate").is_some());
    for authorization in ["Bearer secret", "Basic YW55Ym9keTpzZWNyZXQ="] {
        let answer = served.ask("GET", "/v2/", &[("Authorization", authorization)], b"");
        assert_eq!(answer.status, 200, "{authorization}");
    }
}

/// A containerd of the test's own, for images only.
struct Containerd {
    _process: Process,
    bin: PathBuf,
    dir: tempfile::TempDir,
}

impl Containerd {
    fn start() -> Option<Containerd> {
        let bin = std::env::var_os("CONTAINERD_BIN").map(PathBuf::from);
        let Some(bin) = bin.filter(|bin| bin.join("containerd").exists()) else {
            skip(
                "no containerd: CONTAINERD_BIN is not set (scripts/setup --for test, scripts/env)",
            );
            return None;
        };
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name).display().to_string();
        let config = format!(
            "version = 2\nroot = {:?}\nstate = {:?}\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = {:?}\n[ttrpc]\naddress = {:?}\n",
            at("root"),
            at("state"),
            at("sock"),
            at("ttrpc")
        );
        std::fs::write(dir.path().join("config.toml"), config).expect("written");
        let log = std::fs::File::create(dir.path().join("log")).expect("a log");
        let errors = log.try_clone().expect("a log");
        let mut command = Command::new(bin.join("containerd"));
        command.arg("--config").arg(dir.path().join("config.toml"));
        let process = Process::spawn(command.stdout(log).stderr(errors));
        let containerd = Containerd {
            _process: process,
            bin,
            dir,
        };
        eventually("containerd answers", || {
            let log = || std::fs::read_to_string(containerd.dir.path().join("log"));
            let answer = containerd.ctr(&["version"]);
            answer.map_err(|said| format!("{said}; its log: {:?}", log()))
        });
        Some(containerd)
    }

    fn ctr(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(self.bin.join("ctr"));
        command.arg("--address").arg(self.dir.path().join("sock"));
        let output = command.args(["-n", "k8s.io"]).args(arguments).output();
        let output = output.expect("ctr runs");
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    fn images(&self) -> String {
        self.ctr(&["images", "list"]).expect("a list")
    }
}

#[test]
fn containerd_takes_an_archive_under_all_its_names_pushes_it_and_pulls_it() {
    let Some(containerd) = Containerd::start() else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let served = serve(directory.path(), None);
    let mut layer = Layer::default();
    layer.add_file("/etc/greeting", 0o644, "hello");
    layer.add_file("/large", 0o644, vec![7; 3 << 20]);
    let name = format!("{}/app/web:1", served.address);
    let names = [name.clone(), "second.test/web".to_owned()];
    let image = archive::build(&names, &ImageSettings::default(), &[layer.to_tar()]);
    let file = containerd.dir.path().join("image.tar");
    std::fs::write(&file, &image.bytes).expect("written");
    containerd
        .ctr(&["images", "import", &file.display().to_string()])
        .expect("imported");
    let list = containerd.images();
    for name in [name.as_str(), "second.test/web:latest"] {
        let line = list
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")));
        assert!(
            line.is_some_and(|line| line.contains(&image.digest)),
            "{name}: {list}"
        );
    }
    containerd
        .ctr(&["images", "push", "--plain-http", &name])
        .expect("pushed");
    let tags = served.get("/v2/app/web/tags/list").json();
    assert_eq!(tags["tags"], json!(["1"]));
    containerd
        .ctr(&[
            "images",
            "remove",
            "--sync",
            &name,
            "second.test/web:latest",
        ])
        .expect("removed");
    assert!(!containerd.images().contains(&image.digest));
    containerd
        .ctr(&["images", "pull", "--plain-http", &name])
        .expect("pulled");
    assert!(containerd.images().contains(&image.digest));
}
