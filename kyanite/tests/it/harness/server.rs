//! One server per test: the built binary on a free port in a temporary directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::runtime::Runtime;

use super::eventually;

/// The binary under test.
pub(crate) const KYANITE: &str = env!("CARGO_BIN_EXE_kyanite");

/// What a test may choose about its server.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerOptions {
    /// Further flags of `kyanite up`.
    pub(crate) flags: Vec<&'static str>,
}

/// A running server. Killed and its files removed when dropped.
pub(crate) struct Server {
    options: ServerOptions,
    child: Child,
    runtime: Runtime,
    client: kube::Client,
    port: u16,
    // Last, so that the files outlive the process.
    home: tempfile::TempDir,
}

impl Server {
    /// Starts a server and waits until it is ready.
    pub(crate) fn start() -> Self {
        Self::start_with(ServerOptions::default())
    }

    /// A server whose objects nobody but the test writes.
    pub(crate) fn start_alone() -> Self {
        Self::start_with(ServerOptions {
            flags: vec!["--controllers="],
        })
    }

    /// As [`Server::start`], with flags of the test's choice.
    pub(crate) fn start_with(options: ServerOptions) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory can be made");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be made");
        let mut child = launch(home.path(), 0, &options);
        let kubeconfig = wait_for_kubeconfig(home.path(), &mut child);
        let client = runtime.block_on(client_of(&kubeconfig));
        let port = port_of(&kubeconfig);
        let mut server = Self {
            options,
            child,
            runtime,
            client,
            port,
            home,
        };
        server.wait_until_ready();
        server
    }

    /// Ends the process at once, as a power cut would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the server was running");
        self.child.wait().expect("the server can be waited for");
    }

    /// Starts again on the same data and the same port, after [`Server::kill`].
    pub(crate) fn start_again(&mut self) {
        self.launch_again();
        self.wait_until_ready();
    }

    /// As [`Server::start_again`], without waiting until it is ready.
    pub(crate) fn launch_again(&mut self) {
        self.child = launch(self.home.path(), self.port, &self.options);
    }

    /// A client with the kubeconfig's credentials, for use inside [`Server::block_on`].
    pub(crate) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Runs a future on the test's runtime.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// A directory of this test's own, used as home by the server and its clients.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// The kubeconfig the server wrote beside its data.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        kubeconfig_path(self.home.path())
    }

    /// Sends a request of the caller's making; gives the status code and the whole body.
    pub(crate) fn send(&self, request: Request<Vec<u8>>) -> (u16, String) {
        self.block_on(exchange(&self.client, request))
            .expect("the server answers")
    }

    /// `GET path`.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.send(
            Request::get(path)
                .body(Vec::new())
                .expect("a legal request"),
        )
    }

    /// `POST path` with a JSON body.
    pub(crate) fn post(&self, path: &str, body: impl Into<Vec<u8>>) -> (u16, String) {
        let request = Request::post(path).header("content-type", "application/json");
        self.send(request.body(body.into()).expect("a legal request"))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory of the server process, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .expect("the server runs");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("Linux says VmRSS");
        let kibibytes: u64 = line
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .expect("VmRSS is a number");
        kibibytes * 1024
    }

    // It answers, and pods can be made: their service account is there.
    fn wait_until_ready(&mut self) {
        let has_controllers = !self.options.flags.contains(&"--controllers=");
        let account = "/api/v1/namespaces/default/serviceaccounts/default";
        let paths = ["/readyz"]
            .into_iter()
            .chain(has_controllers.then_some(account));
        for path in paths {
            self.wait_until_found(path);
        }
    }

    fn wait_until_found(&mut self, path: &str) {
        let ask = || {
            Request::get(path)
                .body(Vec::new())
                .expect("a legal request")
        };
        let (home, client, runtime, child) = (
            self.home.path(),
            &self.client,
            &self.runtime,
            &mut self.child,
        );
        eventually("the server is ready", || {
            assert_runs(child, home);
            let answer = runtime.block_on(exchange(client, ask()));
            match answer {
                Ok((200, _)) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            show_log(&log_of(self.home.path()));
        }
    }
}

#[expect(
    clippy::print_stdout,
    reason = "libtest captures it and shows it with the failed test only"
)]
fn show_log(log: &str) {
    println!("--- the server's log\n{log}");
}

fn kubeconfig_path(home: &Path) -> PathBuf {
    home.join("data/kubeconfig")
}

fn launch(home: &Path, port: u16, options: &ServerOptions) -> Child {
    let log = File::options()
        .create(true)
        .append(true)
        .open(home.join("log"))
        .expect("a log file can be opened");
    // Most tests make pods that nobody is to bind or to speak about.
    let chosen = options.flags.iter().any(|f| f.starts_with("--scheduler"));
    Command::new(KYANITE)
        .args([
            "up",
            "--foreground",
            "--port",
            &port.to_string(),
            "--data-dir",
        ])
        .arg(home.join("data"))
        .args((!chosen).then_some("--scheduler=false"))
        .args(&options.flags)
        .env("HOME", home)
        .env("KYANITE_NODES", "0")
        .env("KUBECONFIG", home.join("merged-kubeconfig"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a file can be shared"))
        .stderr(log)
        .spawn()
        .expect("the built binary can be started")
}

fn wait_for_kubeconfig(home: &Path, child: &mut Child) -> Kubeconfig {
    let path = kubeconfig_path(home);
    eventually("the server writes its kubeconfig", || {
        assert_runs(child, home);
        Kubeconfig::read_from(&path).map_err(|error| error.to_string())
    })
}

#[track_caller]
fn assert_runs(child: &mut Child, home: &Path) {
    if let Some(status) = child.try_wait().expect("the server can be asked") {
        panic!("the server ended early with {status}:\n{}", log_of(home));
    }
}

fn log_of(home: &Path) -> String {
    std::fs::read_to_string(home.join("log")).unwrap_or_default()
}

fn port_of(kubeconfig: &Kubeconfig) -> u16 {
    let cluster = kubeconfig
        .clusters
        .first()
        .and_then(|named| named.cluster.as_ref());
    let url = cluster
        .and_then(|cluster| cluster.server.clone())
        .expect("a kubeconfig names its server");
    let uri: http::Uri = url.parse().expect("the server is a URL");
    uri.port_u16().expect("the URL has a port")
}

/// A client with the credentials of a kubeconfig.
pub(crate) async fn client_of(kubeconfig: &Kubeconfig) -> kube::Client {
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &options)
        .await
        .expect("the kubeconfig is whole");
    config.connect_timeout = Some(Duration::from_secs(5));
    // Tests judge the server's first answer.
    config.default_retry = false;
    kube::Client::try_from(config).expect("the kubeconfig's certificates are usable")
}

/// One request and its whole answer.
pub(crate) async fn exchange(
    client: &kube::Client,
    request: Request<Vec<u8>>,
) -> Result<(u16, String), String> {
    let response: Response<Body> = client
        .send(request.map(Body::from))
        .await
        .map_err(|error| format!("{error}: {error:?}"))?;
    let status = response.status().as_u16();
    let body = response
        .into_body()
        .collect()
        .await
        .map_err(|error| error.to_string())?
        .to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
