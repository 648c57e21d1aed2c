//! Tells systemd that the kubelet lives, where its unit asks for that (`WatchdogSec`, sd_notify(3)).

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// Sends a sign of life for ever, twice in each interval; nothing where nobody asks for it.
pub(crate) async fn keep() {
    let socket = std::env::var("NOTIFY_SOCKET").ok();
    let interval = std::env::var("WATCHDOG_USEC").ok();
    let interval = interval.as_deref().and_then(period);
    let (Some(socket), Some(interval)) = (socket, interval) else {
        return std::future::pending().await;
    };
    loop {
        if let Err(error) = notify(&socket) {
            tracing::warn!(%error, socket, "systemd cannot be told that the kubelet lives");
        }
        tokio::time::sleep(interval).await;
    }
}

fn period(microseconds: &str) -> Option<Duration> {
    let microseconds: u64 = microseconds.parse().ok()?;
    (microseconds > 0).then(|| Duration::from_micros(microseconds) / 2)
}

fn notify(socket: &str) -> std::io::Result<()> {
    let sender = UnixDatagram::unbound()?;
    sender.send_to(b"WATCHDOG=1", socket).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_life_come_twice_as_often_as_they_are_asked_for() {
        assert_eq!(period("60000000"), Some(Duration::from_secs(30)));
        assert_eq!(period("0"), None);
        assert_eq!(period("x"), None);
    }

    #[test]
    fn a_sign_of_life_arrives() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notify");
        let receiver = UnixDatagram::bind(&path).expect("a socket");
        notify(&path.to_string_lossy()).expect("it is sent");
        let mut said = [0; 32];
        let length = receiver.recv(&mut said).expect("it arrives");
        assert_eq!(&said[..length], b"WATCHDOG=1");
    }
}
