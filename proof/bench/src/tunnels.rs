//! Tunnels to nodes: the same load over plain loopback, over a naive relay of the same hops, and over
//! konnectivity, ours and upstream's.

mod agents;
mod load;
pub(crate) mod relay;
mod report;
mod routes;
mod sink;

use std::path::Path;

use anyhow::Result;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub(crate) use report::Report;

use load::Measures;
pub(crate) use routes::Way;
use routes::{Front, Route, Whose};
use sink::Sink;

/// How much of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) upload: u64,
    pub(crate) download: u64,
    pub(crate) streams: u32,
    pub(crate) round_trips: u32,
    pub(crate) dials_alone: u32,
    pub(crate) dials_together: u32,
    pub(crate) tunnels: u32,
    pub(crate) agents: u32,
}

const MIB: u64 = 1 << 20;

/// What the goals are stated for.
pub(crate) const FULL: Size = Size {
    upload: 300 * MIB,
    download: 200 * MIB,
    streams: 100,
    round_trips: 5_000,
    dials_alone: 800,
    dials_together: 2_000,
    tunnels: 1_000,
    agents: 1_000,
};

/// A look at whether everything works.
pub(crate) const QUICK: Size = Size {
    upload: 30 * MIB,
    download: 20 * MIB,
    streams: 20,
    round_trips: 500,
    dials_alone: 80,
    dials_together: 200,
    tunnels: 100,
    agents: 100,
};

/// How often upstream's programs may try one round: they do fail under load, and that is no reason to lose the rest.
const ATTEMPTS: usize = 3;

/// Every route there is here.
pub(crate) fn ways(kyanite: &Path, upstream: Option<&Path>) -> Vec<Way> {
    let mut ways = vec![Way::Loopback, Way::Relay];
    let theirs = upstream.filter(|programs| routes::are_there(programs));
    for front in [Front::HttpConnect, Front::Grpc] {
        ways.push(Way::Tunnel(Whose::Ours(kyanite.to_owned()), front));
        ways.extend(theirs.map(|programs| Way::Tunnel(Whose::Theirs(programs.to_owned()), front)));
    }
    ways
}

/// Runs the load over all of them, one after the other, so many times.
pub(crate) async fn run(
    ways: Vec<Way>,
    dir: &Path,
    size: Size,
    rounds: u32,
    say: impl Fn(&str),
) -> Result<Report> {
    // A connection of an agent is an open file, here too.
    let files = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: files.maximum,
            ..files
        },
    )?;
    let mut measured: Vec<_> = ways.into_iter().map(|way| (way, Vec::new())).collect();
    let mut failures = Vec::new();
    for _ in 0..rounds {
        for (way, found) in &mut measured {
            let name = way.name();
            for _ in 0..ATTEMPTS {
                say(&name);
                match one(way, dir, size).await {
                    Ok(measures) => {
                        found.push(measures);
                        break;
                    }
                    Err(error) if way.is_upstream() => failures.push(format!("{name}: {error:#}")),
                    Err(error) => return Err(error.context(name)),
                }
            }
        }
    }
    Ok(Report::new(size, measured, failures))
}

async fn one(way: &Way, dir: &Path, size: Size) -> Result<Measures> {
    let dir = tempfile::TempDir::with_prefix_in("tunnels-", dir)?;
    let sink = Sink::start()?;
    let route = Route::open(way, dir.path(), sink.address).await?;
    let mut measures = load::run(&route, size).await?;
    route.close().await?;
    // In new processes: what the load left behind in memory is not the agents'.
    if let Way::Tunnel(..) = way {
        let route = Route::open(way, dir.path(), sink.address).await?;
        measures.with_agents = agents::measure(&route, dir.path(), size.agents).await?;
        route.close().await?;
    }
    Ok(measures)
}
