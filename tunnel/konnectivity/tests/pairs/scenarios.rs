//! The list.

use std::sync::atomic::Ordering;
use std::time::Duration;

use harness::{destinations, eventually_async as eventually, skip};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::kubernetes::{self, AUDIENCE, GOOD_TOKEN};
use crate::programs::{Role, Whose, available, upstream};
use crate::setting::{Mode, Plan, Setting};

const BULK: usize = 4 << 20;
const SHORT: usize = 200;

/// What is asked of every pairing, and what only of ours: upstream's protocol has no half-close and
/// loses the tail on closing.
pub(crate) async fn all(server: Whose, agent: Whose) {
    let missing = !available(server, Role::Server) || !available(agent, Role::Agent);
    if missing {
        return skip("upstream's proxy-server or proxy-agent is not built (make upstream)");
    }
    for mode in [Mode::Grpc, Mode::Connect] {
        let plan = Plan {
            server,
            agent,
            mode,
        };
        one_setting(plan).await;
        agent_killed(plan).await;
        server_killed(plan).await;
        drained(plan).await;
        duplicate_id(plan).await;
        wrong_authority(plan).await;
        tokens(plan).await;
        // Upstream's agent cuts everything when upstream's server says that it leaves.
        if (server, agent) != (Whose::Theirs, Whose::Theirs) {
            server_leaves(plan).await;
        }
        // Whose reader is the slow one's, decides: upstream's stop everything.
        if server == Whose::Ours {
            unread(plan).await;
        }
        if agent == Whose::Ours {
            deaf(plan).await;
        } else if server == Whose::Ours {
            deaf_behind_upstreams(plan).await;
        }
        if (server, agent) == (Whose::Ours, Whose::Ours) {
            half_close(&Setting::start(plan).await).await;
            write_then_close(&Setting::start(plan).await).await;
        }
    }
}

async fn ping(tunnel: &mut (impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin)) {
    tunnel.write_all(b"ping").await.unwrap();
    let mut answer = [0; 4];
    tunnel.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"ping");
}

// What leaves everything as it was.
async fn one_setting(plan: Plan) {
    let mut setting = Setting::server(plan, &[], true);
    becomes_ready(&mut setting).await;
    ping(&mut setting.dial(destinations::echo().await).await).await;
    upstreams_client(&setting).await;
    refused(&setting).await;
    nowhere(&setting).await;
    bulk(&setting).await;
    short_connections(&setting).await;
}

async fn becomes_ready(setting: &mut Setting) {
    let server = async |setting: &Setting, path: &str, status: &str, text: &str| {
        let page = setting.health(path).await?;
        (page.starts_with(status) && page.ends_with(text)).then_some(())
    };
    let unready = "no connection to any proxy agent";
    eventually("health", async || {
        server(setting, "/healthz", "HTTP/1.1 200", "ok").await
    })
    .await;
    eventually("unready", async || {
        server(setting, "/readyz", "HTTP/1.1 500", unready).await
    })
    .await;
    setting.add_agent("a1", &[]);
    eventually("ready", async || {
        server(setting, "/readyz", "HTTP/1.1 200", "ok").await
    })
    .await;
    eventually("the agent's readiness", async || {
        let page = setting.agents[0].health("/readyz?verbose").await?;
        page.contains("[+]server-connected ok").then_some(())
    })
    .await;
}

// A download that nobody reads.
async fn unread(plan: Plan) {
    let setting = Setting::start(plan).await;
    let stalled = setting.dial(destinations::fountain().await).await;
    others_go_on(&setting).await;
    drop(stalled);
}

// An upload that nobody reads.
async fn deaf(plan: Plan) {
    let setting = Setting::start(plan).await;
    let mut stalled = setting.dial(destinations::deaf().await).await;
    let uploading = tokio::spawn(async move {
        let piece = vec![1; 64 << 10];
        while stalled.write_all(&piece).await.is_ok() {}
    });
    others_go_on(&setting).await;
    uploading.abort();
}

// Upstream's agent stands still with its destination: our server ends that, and the agent serves again.
async fn deaf_behind_upstreams(plan: Plan) {
    let setting = Setting::start(plan).await;
    let mut stalled = setting.dial(destinations::deaf().await).await;
    let stuffing = async {
        let piece = vec![1; 64 << 10];
        while stalled.write_all(&piece).await.is_ok() {}
    };
    tokio::time::timeout(Duration::from_secs(60), stuffing)
        .await
        .expect("what cannot go on ends");
    let said = setting.server.said();
    assert!(said.contains("it takes nothing any more"), "{said}");
    ping(&mut setting.dial(destinations::echo().await).await).await;
}

async fn others_go_on(setting: &Setting) {
    let echo = destinations::echo().await;
    let going_on = async {
        let mut other = setting.dial(echo).await;
        for _ in 0..300 {
            ping(&mut other).await;
        }
        ping(&mut setting.dial(echo).await).await;
    };
    tokio::time::timeout(Duration::from_secs(20), going_on)
        .await
        .expect("others are stalled");
}

// The API server's own client: proxy-test-client gets a page through the tunnel.
async fn upstreams_client(setting: &Setting) {
    let Some(program) = upstream("proxy-test-client") else {
        return skip("upstream's proxy-test-client is not built (make upstream)");
    };
    let page = destinations::page().await;
    let mode = if setting.mode() == Mode::Grpc {
        "grpc"
    } else {
        "http-connect"
    };
    let output = tokio::process::Command::new(program)
        .arg(format!("--proxy-uds={}", setting.socket().display()))
        .args([
            "--proxy-host=",
            "--proxy-port=0",
            "--request-host=127.0.0.1",
            "--request-path=",
        ])
        .arg(format!("--request-port={}", page.port()))
        .arg(format!("--mode={mode}"))
        // It closes its connection on any signal, and Go's scheduler signals itself.
        .env("GODEBUG", "asyncpreemptoff=1")
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("a page of the destination"), "{said}");
}

async fn refused(setting: &Setting) {
    let nobody = destinations::nobody().await;
    let error = setting.try_dial(nobody).await.unwrap_err().to_string();
    assert!(error.contains("connection refused"), "{error}");
}

async fn nowhere(setting: &Setting) {
    let error = setting
        .try_dial("nowhere.invalid:1")
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("lookup nowhere.invalid"), "{error}");
}

async fn bulk(setting: &Setting) {
    let echo = destinations::echo().await;
    let mut tunnel = setting.dial(echo).await;
    let sent: Vec<u8> = (0..BULK).map(|i| ((i * 31) >> 7) as u8).collect();
    let mut got = vec![0; BULK];
    let (mut read, mut write) = tokio::io::split(&mut tunnel);
    let (written, _) = tokio::join!(write.write_all(&sent), read.read_exact(&mut got));
    written.unwrap();
    assert!(got == sent);
}

// Afterwards nobody believes to have a connection.
async fn short_connections(setting: &Setting) {
    let echo = destinations::echo().await;
    for _ in 0..SHORT {
        ping(&mut setting.try_dial(echo).await.unwrap()).await;
    }
    eventually("the end of short connections", async || {
        let left = (
            setting.established().await?,
            setting.agents[0].endpoints().await?,
        );
        (left == (0, 0)).then_some(())
    })
    .await;
}

async fn half_close(setting: &Setting) {
    let counter = destinations::count_to_the_end().await;
    let mut tunnel = setting.dial(counter).await;
    tunnel.write_all(&[1; 1000]).await.unwrap();
    tunnel.shutdown().await.unwrap();
    assert_eq!(tunnel.read_u64().await.unwrap(), 1000);
}

async fn write_then_close(setting: &Setting) {
    let (sink, total) = destinations::sink().await;
    for round in 1..=10 {
        let mut tunnel = setting.dial(sink).await;
        tunnel.write_all(&vec![1; BULK]).await.unwrap();
        drop(tunnel);
        let expected = (round * BULK) as u64;
        eventually("the last byte", async || {
            (total.load(Ordering::Relaxed) == expected).then_some(())
        })
        .await;
    }
}

async fn agent_killed(plan: Plan) {
    let mut setting = Setting::start(plan).await;
    let echo = destinations::echo().await;
    let mut tunnel = setting.dial(echo).await;
    ping(&mut tunnel).await;
    setting.agents[0].program.kill().await;
    ends(&mut tunnel).await;
    setting.add_agent("a2", &[]);
    ping(&mut setting.dial(echo).await).await;
}

async fn ends(tunnel: &mut (impl tokio::io::AsyncRead + Unpin)) {
    let mut rest = Vec::new();
    let end = tokio::time::timeout(Duration::from_secs(20), tunnel.read_to_end(&mut rest));
    // With an error or without: it ends.
    let _ = end.await.expect("a tunnel whose way is gone ends");
}

// The agent finds the next server at the same address.
async fn server_killed(plan: Plan) {
    let mut setting = Setting::start(plan).await;
    let echo = destinations::echo().await;
    let mut tunnel = setting.dial(echo).await;
    ping(&mut tunnel).await;
    setting.server.kill().await;
    ends(&mut tunnel).await;
    eventually("the end at the agent", async || {
        (setting.agents[0].endpoints().await? == 0).then_some(())
    })
    .await;
    setting.restart_server();
    ping(&mut setting.dial(echo).await).await;
}

// A server that is told to stop gets nothing new, keeps what it has, and ends with it, before its limit.
async fn server_leaves(plan: Plan) {
    let patience = ["--graceful-shutdown-timeout=10m".to_owned()];
    let mut setting = Setting::server(plan, &patience, true);
    setting.add_agent("a1", &[]);
    let echo = destinations::echo().await;
    let mut tunnel = setting.dial(echo).await;
    ping(&mut tunnel).await;
    setting.server.terminate();
    // Our server spares upstream's agent, which would cut the tunnel.
    if plan.agent == Whose::Ours {
        eventually("the agent has heard of it", async || {
            let ready = setting.agents[0].health("/readyz").await?;
            ready.contains("no servers connected").then_some(())
        })
        .await;
    }
    eventually("nothing new is taken", async || {
        setting.try_dial(echo).await.err()
    })
    .await;
    ping(&mut tunnel).await;
    drop(tunnel);
    let ended = tokio::time::timeout(Duration::from_secs(30), setting.server.child.wait());
    let code = ended.await.expect("it ends with its last tunnel").unwrap();
    assert!(code.success(), "{plan:?}: {code}");
}

// An agent that is leaving keeps what it has and gets nothing new.
async fn drained(plan: Plan) {
    let mut setting = Setting::start(plan).await;
    let echo = destinations::echo().await;
    let mut old = setting.dial(echo).await;
    ping(&mut old).await;
    setting.add_agent("a2", &[]);
    eventually("two agents", async || {
        (setting.backends().await? == 2).then_some(())
    })
    .await;
    setting.agents[0].program.terminate();
    eventually("only the other agent is used", async || {
        let mut tunnels = Vec::new();
        for _ in 0..12 {
            tunnels.push(setting.dial(echo).await);
        }
        (setting.agents[1].endpoints().await? >= 12).then_some(())
    })
    .await;
    ping(&mut old).await;
}

async fn duplicate_id(plan: Plan) {
    let mut setting = Setting::start(plan).await;
    let echo = destinations::echo().await;
    let mut first = setting.dial(echo).await;
    ping(&mut first).await;
    setting.add_agent("a1", &[]);
    eventually("the second one is connected", async || {
        let said = setting.agents[1].program.said().to_lowercase();
        said.contains("connect").then_some(())
    })
    .await;
    ping(&mut first).await;
    ping(&mut setting.dial(echo).await).await;
    setting.agents[0].program.kill().await;
    ping(&mut setting.dial(echo).await).await;
}

async fn wrong_authority(plan: Plan) {
    let mut setting = Setting::server(plan, &[], true);
    setting.add_stranger();
    eventually("the agent's refusal", async || {
        let said = setting.agents[0].program.said().to_lowercase();
        (said.contains("certificate") && setting.backends().await? == 0).then_some(())
    })
    .await;
}

async fn tokens(plan: Plan) {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = kubernetes::start(dir.path()).await;
    let asks_for = |audience: &str| {
        [
            format!("--kubeconfig={}", kubeconfig.display()),
            "--kube-api-content-type=application/json".to_owned(),
            "--agent-namespace=kube-system".to_owned(),
            "--agent-service-account=konnectivity-agent".to_owned(),
            format!("--authentication-audience={audience}"),
        ]
    };
    let mut setting = Setting::server(plan, &asks_for(AUDIENCE), false);
    setting.add_agent_with_token("wrong-token");
    is_refused(&setting).await;
    setting.add_agent_with_token(GOOD_TOKEN);
    ping(&mut setting.dial(destinations::echo().await).await).await;

    let mut setting = Setting::server(plan, &asks_for("another-audience"), false);
    setting.add_agent_with_token(GOOD_TOKEN);
    is_refused(&setting).await;
}

async fn is_refused(setting: &Setting) {
    eventually("the token's refusal", async || {
        let said = setting.server.said();
        said.contains("Failed to validate authentication token")
            .then_some(())
    })
    .await;
    assert_eq!(setting.backends().await, Some(0));
}
