//! Agents that take nothing any more.
//!
//! Upstream's agent hands what arrives to destinations in one loop, each with room for so many packets (150 by its
//! default). When one destination stops reading, that loop stops with it: every tunnel of the agent stands still, and
//! so does the request to close the one that is to blame, which waits behind its data. The protocol has no word for
//! "the destination has taken this", so it can be neither foreseen nor undone from here. What shows is the stream's
//! window, which stays shut while the agent's transport still answers pings.
//!
//! Then new dials go to other agents, as far as there are any, and if nothing moves for as long as upstream's client
//! has patience with a reader, the connection is cut: its tunnels end with a reason instead of hanging, and the agent
//! comes back with a loop that runs. Agents of ours have a window per tunnel and never get here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::http2::{Progress, Stream};

/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(2);
/// After how many looks at a standstill the connection is cut: the ten seconds of upstream's client.
const PATIENCE: u32 = 5;

/// Completes when the agent is to be cut; says meanwhile whether to choose another one.
pub(super) async fn watch(stream: &Stream, suspect: &AtomicBool) {
    let mut standstill = Standstill::default();
    loop {
        tokio::time::sleep(LOOK).await;
        let verdict = standstill.look(stream.progress());
        suspect.store(verdict != Verdict::Moves, Ordering::Relaxed);
        match verdict {
            Verdict::Stopped => stream.ping(),
            Verdict::Moves | Verdict::Stands => {}
            Verdict::Cut => return,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Moves,
    /// It stands still, since the look before this one.
    Stopped,
    Stands,
    Cut,
}

/// What was seen at the looks so far.
#[derive(Default)]
struct Standstill {
    last: Option<Progress>,
    /// The first look of this standstill, and how many there were since.
    began: Option<(Progress, u32)>,
}

impl Standstill {
    fn look(&mut self, now: Progress) -> Verdict {
        let before = self.last.replace(now);
        let stands = now.shut_out
            && before.is_some_and(|before| before.shut_out && before.openings == now.openings);
        if !stands {
            self.began = None;
            return Verdict::Moves;
        }
        let Some((began, looks)) = &mut self.began else {
            self.began = Some((now, 1));
            return Verdict::Stopped;
        };
        *looks += 1;
        // Without an answer to the ping it is the network, which has limits of its own.
        match *looks >= PATIENCE && now.pongs > began.pongs {
            true => Verdict::Cut,
            false => Verdict::Stands,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(shut_out: bool, openings: u64, pongs: u64) -> Progress {
        Progress {
            shut_out,
            openings,
            pongs,
        }
    }

    fn verdicts(looks: &[Progress]) -> Vec<Verdict> {
        let mut standstill = Standstill::default();
        looks.iter().map(|look| standstill.look(*look)).collect()
    }

    #[test]
    fn only_an_agent_that_is_there_and_takes_nothing_is_cut() {
        use Verdict::{Cut, Moves, Stands, Stopped};
        let stuck = progress(true, 7, 1);
        let looks = [
            progress(true, 7, 0),
            progress(true, 7, 0),
            stuck,
            stuck,
            stuck,
            stuck,
        ];
        assert_eq!(
            verdicts(&looks),
            [Moves, Stopped, Stands, Stands, Stands, Cut]
        );
        let silent = [progress(true, 7, 0); 7];
        assert_eq!(verdicts(&silent)[5..], [Stands, Stands]);
        let slow: Vec<Progress> = (0..9).map(|n| progress(true, n, n)).collect();
        assert_eq!(verdicts(&slow), [Moves; 9]);
        assert_eq!(verdicts(&[progress(false, 7, 0); 9]), [Moves; 9]);
        let again = [stuck, stuck, progress(false, 8, 1), stuck, stuck];
        assert_eq!(verdicts(&again), [Moves, Stopped, Moves, Moves, Stopped]);
    }
}
