#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Server {
    #[command(flatten)]
    flags: ServerFlags,
}

#[derive(Debug, Parser)]
struct Agent {
    #[command(flatten)]
    flags: AgentFlags,
}

async fn server(words: &[&str]) -> std::result::Result<ServerConfig, String> {
    let needed = [
        "x",
        "--cluster-cert=c",
        "--cluster-key=k",
        "--insecure-agents",
    ];
    let parsed = Server::try_parse_from(needed.iter().chain(words));
    let flags = parsed.map_err(|error| error.to_string())?.flags;
    flags.config().await.map_err(|error| error.to_string())
}

async fn agent(words: &[&str]) -> std::result::Result<AgentConfig, String> {
    let parsed = Agent::try_parse_from(["x", "--ca-cert=ca"].iter().chain(words));
    let flags = parsed.map_err(|error| error.to_string())?.flags;
    flags.config().await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn agents_without_credentials_are_a_choice() {
    let bare = [
        "x",
        "--cluster-cert=c",
        "--cluster-key=k",
        "--server-port=0",
        "--uds-name=/s",
    ];
    for (more, is_taken) in [
        (None, false),
        (Some("--insecure-agents"), true),
        (Some("--cluster-ca-cert=ca"), true),
    ] {
        let flags = Server::try_parse_from(bare.iter().chain(&more))
            .unwrap()
            .flags;
        let config = flags.config().await;
        assert_eq!(config.is_ok(), is_taken, "{more:?}");
        if let Err(error) = config {
            assert!(error.to_string().contains("--insecure-agents"), "{error}");
        }
    }
}

#[tokio::test]
async fn the_flags_of_a_manifest_are_understood() {
    let config = server(&[
        "--logtostderr=true",
        "--uds-name=/s",
        "--delete-existing-uds-file",
        "--server-port=0",
        "--agent-port=8132",
        "--admin-port=8133",
        "--health-port=8134",
        "--mode=grpc",
        "--proxy-strategies=destHost,default",
        "--keepalive-time=1h",
        "--v=4",
    ])
    .await
    .unwrap();
    assert_eq!(config.agents.port, 8132);
    assert_eq!(config.strategies, [Strategy::DestHost, Strategy::Default]);
    assert_eq!(config.keepalive, Duration::from_secs(3600));
    assert!(matches!(config.front, FrontEnd::Uds { replace: true, .. }));

    let config = agent(&[
        "--logtostderr=true",
        "--proxy-server-host=konnectivity.example",
        "--proxy-server-port=8132",
        "--admin-server-port=8133",
        "--health-server-port=8134",
        "--agent-identifiers=host=node-1",
    ])
    .await
    .unwrap();
    assert_eq!(
        (config.server_host.as_str(), config.server_port),
        ("konnectivity.example", 8132)
    );
}

#[tokio::test]
async fn what_does_not_go_together_is_refused_in_upstreams_words() {
    let uds = ["--uds-name=/s", "--server-port=0"];
    let cases: [(&[&str], &str); 7] = [
        (
            &["--uds-name=/s"],
            "server port should be set to 0 not 8090 for UDS",
        ),
        (
            &[],
            "server ca cert must be set when in TCP mode (uds-name is empty)",
        ),
        (
            &[uds[0], uds[1], "--server-ca-cert=c"],
            "server ca cert should not be set for UDS",
        ),
        (
            &[uds[0], uds[1], "--proxy-strategies=,"],
            "ProxyStrategies cannot be empty",
        ),
        (
            &[uds[0], uds[1], "--cipher-suites=TLS_NONE"],
            "cipher suite TLS_NONE not supported",
        ),
        (
            &[uds[0], uds[1], "--agent-namespace=n"],
            "--agent-service-account cannot be empty when agent authentication is enabled",
        ),
        (
            &[uds[0], uds[1], "--agent-namespace=n", "--cluster-ca-cert=c"],
            "--cluster-ca-cert can not be used when agent authentication is enabled",
        ),
    ];
    for (words, expected) in cases {
        let error = server(words).await.unwrap_err();
        assert!(error.contains(expected), "{words:?}: {error}");
    }
    for (words, expected) in [
        (["--agent-identifiers=uid=1"], "unknown address type: uid"),
        (["--sync-interval=20s"], "sync interval"),
        (["--agent-cert=c"], "--agent-key"),
    ] {
        let error = agent(&words).await.unwrap_err();
        assert!(error.contains(expected), "{words:?}: {error}");
    }
}
