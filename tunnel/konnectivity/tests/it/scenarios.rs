//! What a pair of ours can do, on every front end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use harness::{destinations, eventually_async as eventually, in_time};
use konnectivity::dialer::dial;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::pair::{FRONTS, Front, Pair, start_agent};

const SIZE: usize = 8 << 20;

fn noise(size: usize) -> Vec<u8> {
    (0..size as u64)
        .map(|i| (i.wrapping_mul(0x9E37_79B9) >> 13) as u8)
        .collect()
}

// On several threads, as inside the control plane.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_carries_bytes_both_ways() {
    in_time(async {
        let echo = destinations::echo().await;
        for front in FRONTS {
            let pair = Pair::start(front).await;
            let tunnel = pair.dial(echo).await;
            let sent = noise(SIZE);
            let (mut read, mut write) = tokio::io::split(tunnel);
            let writing = async {
                write.write_all(&sent).await.unwrap();
                write.shutdown().await.unwrap();
            };
            let mut got = Vec::new();
            let reading = async { read.read_to_end(&mut got).await.unwrap() };
            tokio::join!(writing, reading);
            assert!(
                got == sent,
                "{front:?}: {} of {} bytes",
                got.len(),
                sent.len()
            );
        }
    })
    .await;
}

#[tokio::test]
async fn the_end_of_writing_is_not_the_end_of_reading() {
    in_time(async {
        let counter = destinations::count_to_the_end().await;
        for front in FRONTS {
            let pair = Pair::start(front).await;
            let mut tunnel = pair.dial(counter).await;
            tunnel.write_all(&noise(1000)).await.unwrap();
            tunnel.shutdown().await.unwrap();
            assert_eq!(tunnel.read_u64().await.unwrap(), 1000, "{front:?}");
            let mut rest = Vec::new();
            assert_eq!(tunnel.read_to_end(&mut rest).await.unwrap(), 0, "{front:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn nothing_is_lost_when_writing_is_followed_by_closing() {
    in_time(async {
        for front in FRONTS {
            let (sink, total) = destinations::sink().await;
            let pair = Pair::start(front).await;
            let mut tunnel = pair.dial(sink).await;
            tunnel.write_all(&noise(SIZE)).await.unwrap();
            tunnel.flush().await.unwrap();
            drop(tunnel);
            eventually("everything has come", async || {
                (total.load(Ordering::Relaxed) == SIZE as u64).then_some(())
            })
            .await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_destination_may_speak_first() {
    in_time(async {
        let greeter = destinations::greeter().await;
        for front in FRONTS {
            let pair = Pair::start(front).await;
            for _ in 0..50 {
                let mut tunnel = pair.dial(greeter).await;
                let mut hello = [0; 5];
                tunnel.read_exact(&mut hello).await.unwrap();
                assert_eq!(&hello, b"hello", "{front:?}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_refused_dial_says_why() {
    in_time(async {
        let echo = destinations::echo().await;
        let nobody = destinations::nobody().await;
        for front in FRONTS {
            let pair = Pair::start(front).await;
            drop(pair.dial(echo).await);
            let error = dial(&pair.via, &nobody.to_string())
                .await
                .unwrap_err()
                .to_string();
            let expected = format!("dial tcp {nobody}: connect: connection refused");
            assert!(error.contains(&expected), "{front:?}: {error}");
            let error = dial(&pair.via, "nowhere.invalid:1")
                .await
                .unwrap_err()
                .to_string();
            assert!(error.contains("no such host"), "{front:?}: {error}");
        }
    })
    .await;
}

// One upload into a destination that never reads, one download that nobody reads; others go on.
#[tokio::test]
async fn a_stalled_tunnel_delays_no_other() {
    in_time(async {
        let (echo, deaf) = (destinations::echo().await, destinations::deaf().await);
        let fountain = destinations::fountain().await;
        for front in [Front::GrpcUds, Front::ConnectUds] {
            let pair = Pair::start(front).await;
            let mut stalled = pair.dial(deaf).await;
            let stuffing = vec![1; 64 << 20];
            // It takes some megabytes, and then no more.
            let stuffed = stalled.write_all(&stuffing);
            assert!(
                tokio::time::timeout(Duration::from_secs(1), stuffed)
                    .await
                    .is_err()
            );
            let _unread = pair.dial(fountain).await;
            let mut other = pair.dial(echo).await;
            for _ in 0..100 {
                other.write_all(b"ping").await.unwrap();
                let mut answer = [0; 4];
                let answered =
                    tokio::time::timeout(Duration::from_secs(5), other.read_exact(&mut answer));
                answered.await.expect("others wait").unwrap();
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_lost_agent_ends_its_tunnels_and_the_next_one_serves() {
    in_time(async {
        let echo = destinations::echo().await;
        for front in FRONTS {
            let mut pair = Pair::start(front).await;
            let mut tunnel = pair.dial(echo).await;
            tunnel.write_all(b"ping").await.unwrap();
            tunnel.read_exact(&mut [0; 4]).await.unwrap();
            let next = start_agent(konnectivity::agent::AgentConfig {
                agent_id: "a2".to_owned(),
                ..pair.agent_config.clone()
            });
            std::mem::replace(&mut pair.agent, next.await).kill();
            let mut rest = Vec::new();
            let ended =
                tokio::time::timeout(Duration::from_secs(10), tunnel.read_to_end(&mut rest));
            let _ = ended.await.expect("a tunnel through a lost agent ends");
            let mut again = pair.dial(echo).await;
            again.write_all(b"ping").await.unwrap();
            again.read_exact(&mut [0; 4]).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn both_stop_when_told() {
    in_time(async {
        for front in FRONTS {
            let pair = Pair::start(front).await;
            drop(pair.dial(destinations::echo().await).await);
            pair.agent.stop().await;
            pair.server.stop().await;
        }
    })
    .await;
}
