//! Real sockets and random faults: afterwards there are as many tasks and descriptors as before.
//! Alone in its program, as both are counted for the whole process.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[allow(dead_code, reason = "shared with other tests")]
#[path = "it/pair.rs"]
mod pair;

use std::net::SocketAddr;
use std::time::Duration;

use konnectivity::dialer::{Via, dial};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use harness::{destinations, eventually_async as eventually};
use pair::{FRONTS, Pair};

const CONNECTIONS: usize = 400;
const AT_ONCE: usize = 20;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

/// What a client may do, well-behaved or not.
async fn client(via: Via, address: SocketAddr, fault: u32, size: usize) {
    let address = address.to_string();
    let dialling = dial(&via, &address);
    // Some give up early, at any point of the way.
    let limit = if fault == 0 {
        Duration::from_micros(300)
    } else {
        Duration::from_secs(30)
    };
    let Ok(Ok(mut tunnel)) = tokio::time::timeout(limit, dialling).await else {
        return;
    };
    let sent = vec![1; size];
    match fault {
        1 => {}
        2 => drop(tunnel.write_all(&sent).await),
        3 => {
            let _ = tunnel.write_all(&sent).await;
            let _ = tunnel.shutdown().await;
            let _ = tunnel.read_u8().await;
        }
        _ => {
            let (mut read, mut write) = tokio::io::split(tunnel);
            let mut got = vec![0; size];
            let _ = tokio::join!(write.write_all(&sent), read.read_exact(&mut got));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_connections_with_faults() {
    let mut chance = StdRng::seed_from_u64(6);
    let (echo, nobody) = (destinations::echo().await, destinations::nobody().await);
    let fountain = destinations::fountain().await;
    for front in FRONTS {
        let pair = Pair::start(front).await;
        drop(pair.dial(echo).await);
        // The first connection has gone when only the listeners, the agent's stream and their
        // tasks are left.
        let (mut before, mut calm) = ((tasks(), descriptors()), 0);
        eventually("calm", async || {
            let now = (tasks(), descriptors());
            calm = if now == before { calm + 1 } else { 0 };
            before = now;
            (calm > 20).then_some(())
        })
        .await;
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..CONNECTIONS {
            if clients.len() >= AT_ONCE {
                clients.join_next().await;
            }
            let address = [echo, echo, fountain, nobody][chance.random_range(0..4)];
            let (fault, size) = (chance.random_range(0..6), chance.random_range(1..100_000));
            clients.spawn(client(pair.via.clone(), address, fault, size));
        }
        while clients.join_next().await.is_some() {}
        eventually("nothing is left", async || {
            let now = (tasks(), descriptors());
            (now.0 <= before.0 && now.1 <= before.1).then_some(())
        })
        .await;
        pair.agent.stop().await;
        pair.server.stop().await;
    }
}
