//! Whether machines are well: real probes, from the address that Azure's come from.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::cloud::Probe;
use machines::{Network, PLATFORM};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often one is asked that has not been well yet: nobody waits longer for a new machine than they have to.
const EAGER: Duration = Duration::from_secs(1);

/// Asks one machine, until it is dropped.
pub(super) struct Prober {
    well: Arc<AtomicBool>,
    worker: AbortHandle,
}

impl Prober {
    pub(super) fn begin(
        network: Network,
        address: Ipv4Addr,
        probe: Probe,
        told: Arc<Notify>,
    ) -> Prober {
        let well = Arc::new(AtomicBool::new(false));
        let known = Arc::clone(&well);
        let worker = tokio::spawn(async move {
            let mut judge = Judge::new(probe.threshold);
            loop {
                let answer = tokio::time::timeout(PATIENCE, ask(&network, address, &probe)).await;
                if let Some(verdict) = judge.hears(matches!(answer, Ok(Ok(true)))) {
                    tracing::debug!(%address, port = probe.port, verdict, "a probe's verdict");
                    known.store(verdict, Ordering::Relaxed);
                    told.notify_one();
                }
                let pause = if judge.was_well {
                    probe.interval
                } else {
                    probe.interval.min(EAGER)
                };
                tokio::time::sleep(pause).await;
            }
        });
        Prober {
            well,
            worker: worker.abort_handle(),
        }
    }

    pub(super) fn is_well(&self) -> bool {
        self.well.load(Ordering::Relaxed)
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.worker.abort();
    }
}

async fn ask(network: &Network, address: Ipv4Addr, probe: &Probe) -> std::io::Result<bool> {
    // A socket belongs to the network it was made in, whoever uses it then.
    let network = network.clone();
    let make = move || {
        let socket = TcpSocket::new_v4()?;
        // A network of an older make has no such address.
        let _ = socket.bind(SocketAddr::from((PLATFORM, 0)));
        Ok::<_, std::io::Error>(socket)
    };
    let made = tokio::task::spawn_blocking(move || network.inside(make)).await;
    let socket = made
        .map_err(std::io::Error::other)?
        .map_err(std::io::Error::other)??;
    let stream = socket
        .connect(SocketAddr::from((address, probe.port)))
        .await?;
    match &probe.path {
        None => Ok(true),
        Some(path) => page(stream, address, path).await,
    }
}

/// Whether a page is answered with 200.
async fn page(mut stream: TcpStream, address: Ipv4Addr, path: &str) -> std::io::Result<bool> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: Load Balancer Agent\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    // The status is in the first few bytes.
    stream.take(64).read_to_end(&mut head).await?;
    Ok(head.starts_with(b"HTTP/1.1 200") || head.starts_with(b"HTTP/1.0 200"))
}

/// What is thought of a machine: the first answer counts, later ones when there are enough of a kind.
#[derive(Debug)]
struct Judge {
    threshold: u32,
    verdict: Option<bool>,
    against: u32,
    was_well: bool,
}

impl Judge {
    fn new(threshold: u32) -> Judge {
        Judge {
            threshold,
            verdict: None,
            against: 0,
            was_well: false,
        }
    }

    /// Hears an answer; gives the verdict if that changes it.
    fn hears(&mut self, is_good: bool) -> Option<bool> {
        self.against = if self.verdict == Some(is_good) {
            0
        } else {
            self.against + 1
        };
        let is_first = self.verdict.is_none() || (is_good && !self.was_well);
        if self.against == 0 || (self.against < self.threshold && !is_first) {
            return None;
        }
        (self.verdict, self.against) = (Some(is_good), 0);
        self.was_well |= is_good;
        Some(is_good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_answers() {
        // Answers, and the verdict after each.
        let table = [
            (2, "gg", "gg"),
            (2, "bg", "bg"),
            (2, "gbgb", "gggg"),
            (2, "gbbgg", "ggbbg"),
            (1, "gbg", "gbg"),
            (3, "gbbbggg", "gggbbbg"),
            (2, "bbgbgbb", "bbggggb"),
        ];
        for (threshold, answers, wanted) in table {
            let (mut judge, mut now) = (Judge::new(threshold), false);
            let found: String = answers
                .chars()
                .map(|answer| {
                    now = judge.hears(answer == 'g').unwrap_or(now);
                    if now { 'g' } else { 'b' }
                })
                .collect();
            assert_eq!(found, wanted, "{answers} with {threshold}");
        }
    }
}
