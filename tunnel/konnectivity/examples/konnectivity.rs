//! Both roles as programs of their own: what `kyanite` offers, without the rest of it. The tests put
//! it in the place of upstream's `proxy-server` and `proxy-agent`.

use clap::Parser;
use konnectivity::agent::Agent;
use konnectivity::flags::{AgentFlags, ServerFlags};
use konnectivity::server::Server;

#[derive(Debug, Parser)]
enum Role {
    /// As upstream's proxy-server
    Server(Box<ServerFlags>),
    /// As upstream's proxy-agent
    Agent(Box<AgentFlags>),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let stop = async {
        let mut terminate =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
                .expect("signals can be received");
        terminate.recv().await;
    };
    match Role::parse() {
        Role::Server(flags) => Server::bind(flags.config().await?).await?.run(stop).await,
        Role::Agent(flags) => Agent::bind(flags.config().await?).await?.run(stop).await,
    }
    Ok(())
}
