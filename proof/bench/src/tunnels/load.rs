//! The load over one route: bulk both ways, round trips, dials, tunnels that only stand there.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};

use super::Size;
use super::routes::{Route, Stream};
use super::sink::Use;
use crate::measure::{Cost, Processes};

const PHASE_LIMIT: Duration = Duration::from_secs(180);
/// Before memory is read: background work comes to rest.
const SETTLE: Duration = Duration::from_secs(2);
/// A full TLS record, which is what an API server writes.
const WRITE: usize = 16_406;
const READ: usize = 64 * 1024;
const PING: usize = 64;
/// More than anything moves while it is watched.
const ENDLESS: u64 = 1 << 60;
/// How long stalled streams have to do their worst, and how long the others are watched then.
const STALL_TIME: Duration = Duration::from_secs(1);
/// How often that is done: a machine's own speed changes between two looks.
pub(super) const LOOKS: usize = 3;
/// Dials at once.
pub(super) const WORKERS: u32 = 50;

/// What was found.
#[derive(Debug, Clone, Default)]
pub(super) struct Measures {
    pub(super) upload: Bulk,
    pub(super) download: Bulk,
    pub(super) upload_many: Bulk,
    pub(super) download_many: Bulk,
    /// Microseconds: the middle one, and the one that 99 of 100 are below.
    pub(super) round_trip: (f64, f64),
    pub(super) dials_alone: Cost,
    pub(super) dials_together: Cost,
    /// How much of their speed many streams keep beside two that have stalled, one each way.
    pub(super) beside_stalled: f64,
    /// Bytes, server and agent; nothing where there are none.
    pub(super) idle: Vec<u64>,
    /// Bytes per tunnel, server and agent.
    pub(super) per_tunnel: Vec<f64>,
    /// Bytes of a server with many agents.
    pub(super) with_agents: Option<u64>,
}

/// Many bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bulk {
    bytes: u64,
    cost: Cost,
}

impl Bulk {
    /// MiB per second.
    pub(super) fn rate(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) / self.cost.wall.as_secs_f64()
    }

    /// CPU seconds per GiB of all that is between the ends.
    pub(super) fn cpu(&self) -> f64 {
        self.cost.cpu.as_secs_f64() * f64::from(1 << 30) / self.bytes as f64
    }
}

/// Runs everything over a route.
pub(super) async fn run(route: &Route, size: Size) -> Result<Measures> {
    sleep(SETTLE).await;
    let idle = residents(route)?;
    let per_tunnel = standing(route, size.tunnels, &idle).await?;
    Ok(Measures {
        idle,
        per_tunnel,
        with_agents: None,
        upload: bulk(route, Use::Upload, 1, size.upload).await?,
        download: bulk(route, Use::Download, 1, size.download).await?,
        upload_many: bulk(route, Use::Upload, size.streams, size.upload).await?,
        download_many: bulk(route, Use::Download, size.streams, size.download).await?,
        round_trip: round_trips(route, size.round_trips).await?,
        dials_alone: dials(route, 1, size.dials_alone).await?,
        dials_together: dials(route, WORKERS, size.dials_together).await?,
        // Last: not everything survives it.
        beside_stalled: beside_stalled(route, size.streams).await?,
    })
}

fn residents(route: &Route) -> Result<Vec<u64>> {
    route.each().iter().map(Processes::resident).collect()
}

async fn standing(route: &Route, tunnels: u32, idle: &[u64]) -> Result<Vec<f64>> {
    let mut held = Vec::new();
    for _ in 0..tunnels {
        held.push(route.connect(Use::Echo, 0).await?);
    }
    sleep(SETTLE).await;
    let grown = residents(route)?.into_iter().zip(idle);
    let grown = grown.map(|(now, before)| now.saturating_sub(*before) as f64 / f64::from(tunnels));
    Ok(grown.collect())
}

async fn bulk(route: &Route, purpose: Use, streams: u32, total: u64) -> Result<Bulk> {
    let each = total / u64::from(streams);
    let mut open = Vec::new();
    for _ in 0..streams {
        open.push(route.connect(purpose, each).await?);
    }
    let work = async {
        let moving = open.iter_mut().map(|stream| async {
            match purpose {
                Use::Download => download(stream, each).await,
                _ => upload(stream, each).await,
            }
        });
        try_join_all(moving).await
    };
    let measured = timeout(PHASE_LIMIT, route.processes().cost(1, work)).await??;
    Ok(Bulk {
        bytes: each * u64::from(streams),
        cost: measured.0,
    })
}

async fn upload(stream: &mut Box<dyn Stream>, mut left: u64) -> Result<()> {
    let chunk = [7; WRITE];
    while left > 0 {
        let part = left.min(WRITE as u64);
        stream.write_all(&chunk[..part as usize]).await?;
        left -= part;
    }
    stream.flush().await?;
    ensure!(
        stream.read_u8().await? == 1,
        "the sink has not got everything"
    );
    Ok(())
}

async fn download(stream: &mut Box<dyn Stream>, mut left: u64) -> Result<()> {
    let mut buffer = vec![0; READ];
    stream.write_u8(1).await?;
    stream.flush().await?;
    while left > 0 {
        let count = stream.read(&mut buffer).await?;
        ensure!(count > 0, "{left} bytes have not come");
        left = left.saturating_sub(count as u64);
    }
    Ok(())
}

async fn beside_stalled(route: &Route, streams: u32) -> Result<f64> {
    let mut kept = Vec::new();
    // Who froze once does not come back.
    while kept.len() < LOOKS && !kept.contains(&0.0) {
        let alone = moved(route, streams, false).await?;
        let beside = moved(route, streams, true).await?;
        kept.push(beside as f64 / alone as f64);
    }
    kept.sort_by(f64::total_cmp);
    Ok(kept[kept.len() / 2])
}

// What so many downloads get in a second, after a second in which stalled streams fill whatever they can fill.
async fn moved(route: &Route, streams: u32, stalled: bool) -> Result<u64> {
    let mut open = Vec::new();
    for _ in 0..streams {
        open.push(route.connect(Use::Download, ENDLESS).await?);
    }
    let mut unread = route.connect(Use::Download, ENDLESS).await?;
    let mut unsent = route.connect(Use::Hold, 0).await?;
    if stalled {
        unread.write_u8(1).await?;
        unread.flush().await?;
    }
    let stall = async {
        while stalled && unsent.write_all(&[7; WRITE]).await.is_ok() {}
        std::future::pending::<()>().await;
    };
    let readers = open.iter_mut().map(endless_download);
    let work = async {
        let readers = futures::future::join_all(readers);
        Ok(readers.await.into_iter().sum())
    };
    tokio::select! {
        moved = work => moved,
        () = stall => Ok(0),
    }
}

async fn endless_download(stream: &mut Box<dyn Stream>) -> u64 {
    let begin = tokio::time::Instant::now() + STALL_TIME;
    let mut buffer = vec![0; READ];
    let mut counted = 0;
    let read = async {
        stream.write_u8(1).await?;
        stream.flush().await?;
        loop {
            let count = stream.read(&mut buffer).await?;
            ensure!(count > 0, "the stream has ended");
            if tokio::time::Instant::now() > begin {
                counted += count as u64;
            }
        }
    };
    // A stream that is cut has moved nothing more, which is what is measured.
    let _: Result<Result<()>, _> = tokio::time::timeout_at(begin + STALL_TIME, read).await;
    counted
}

async fn round_trips(route: &Route, number: u32) -> Result<(f64, f64)> {
    let mut stream = route.connect(Use::Echo, 0).await?;
    let mut ping = [7; PING];
    let mut times = Vec::new();
    for _ in 0..number {
        let start = Instant::now();
        stream.write_all(&ping).await?;
        stream.flush().await?;
        stream.read_exact(&mut ping).await?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[times.len() / 2], times[times.len() * 99 / 100]))
}

// A cycle: dial, nine bytes out, one back, close.
async fn dials(route: &Route, workers: u32, number: u32) -> Result<Cost> {
    let work = try_join_all((0..workers).map(|_| async {
        for _ in 0..number / workers {
            drop(route.connect(Use::Echo, 0).await?);
        }
        anyhow::Ok(())
    }));
    let processes = route.processes();
    Ok(timeout(PHASE_LIMIT, processes.cost(number, work)).await??.0)
}
