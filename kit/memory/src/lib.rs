//! Gives back the memory of what a program runs once.
//!
//! Most of what a server has in memory when it is idle is its own code: flags, certificates and handshakes ran it
//! once. Those pages are as they are in the file, so they can go at any time, and what runs again comes again.

use std::collections::HashSet;
use std::future::Future;
use std::ops::Range;
use std::time::Duration;

use rustix::mm::{Advice, madvise};
use rustix::time::{ClockId, clock_gettime};

/// How often the program is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// A program that has used no more than this since the last look is idle.
const IDLE: Duration = Duration::from_millis(1);
/// What it must have done since the last time for it to be worth while.
const WORTH: Duration = Duration::from_millis(5);

/// Gives back what is not in use, whenever the program has come to rest. To be called at the start: what
/// is mapped then are the program and the libraries it is linked with, which stay where they are to its end.
pub fn at_rest() -> impl Future<Output = ()> {
    let maps = std::fs::read_to_string("/proc/self/smaps");
    let pages = maps.map_or_else(|_| Vec::new(), |maps| pages_of_code(&maps));
    async move {
        let mut pace = Pace::default();
        while !pages.is_empty() {
            tokio::time::sleep(LOOK).await;
            if pace.has_come_to_rest(cpu_time()) {
                pages.iter().for_each(give_back);
            }
        }
        tracing::debug!("/proc does not tell where the program is: its pages stay in memory");
    }
}

/// When it is time.
#[derive(Debug, Default)]
struct Pace {
    last: Duration,
    given_back: Duration,
}

impl Pace {
    fn has_come_to_rest(&mut self, used: Duration) -> bool {
        let idle = used.saturating_sub(std::mem::replace(&mut self.last, used)) <= IDLE;
        let due = idle && used.saturating_sub(self.given_back) >= WORTH;
        if due {
            self.given_back = used;
        }
        due
    }
}

fn cpu_time() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(used).unwrap_or_default()
}

/// The pages of files with code that are as they are in the file and stay so: mapped without the right to write, and
/// none of them changed before that (as the linker does with tables of addresses).
fn pages_of_code(smaps: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut with_code = HashSet::new();
    let mut current = None;
    for line in smaps.lines() {
        if let Some(range) = header(line) {
            let words: Vec<_> = line.split_ascii_whitespace().collect();
            current = match words[..] {
                [_, rights, _, _, _, path, ..] if path.starts_with('/') => {
                    if rights.contains('x') {
                        with_code.insert(path);
                    }
                    (!rights.contains('w')).then_some((range, path))
                }
                _ => None,
            };
        } else if let Some(changed) = line.strip_prefix("Anonymous:")
            && let Some(pages) = current.take()
            && changed.trim() == "0 kB"
        {
            found.push(pages);
        }
    }
    found.retain(|(_, path)| with_code.contains(path));
    found.into_iter().map(|(pages, _)| pages).collect()
}

// `55d0c8a00000-55d0c8b00000 r-xp 00100000 fe:00 4711   /usr/bin/program`
fn header(line: &str) -> Option<Range<usize>> {
    let (from, to) = line.split(' ').next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    Some(address(from)?..address(to)?)
}

#[expect(unsafe_code, reason = "madvise changes memory the compiler relies on")]
fn give_back(pages: &Range<usize>) {
    let start = std::ptr::with_exposed_provenance_mut(pages.start);
    // SAFETY: these are whole pages of the program and its libraries, mapped to the end, not writable and unchanged
    // (`pages_of_code`). Whoever reads them again gets what it would have got without this: the file's bytes.
    let done = unsafe { madvise(start, pages.len(), Advice::LinuxDontNeed) };
    if let Err(error) = done {
        tracing::debug!(%error, "pages of the program stay in memory");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const SMAPS: &str = "\
1000-3000 r--p 00000000 fe:00 7                          /bin/it
Size:                  8 kB
Anonymous:             0 kB
3000-9000 r-xp 00002000 fe:00 7                          /bin/it
Anonymous:             0 kB
9000-a000 r--p 00008000 fe:00 7                          /bin/it
Anonymous:             4 kB
a000-b000 rw-p 00009000 fe:00 7                          /bin/it
Anonymous:             0 kB
b000-c000 rw-p 00000000 00:00 0                          [heap]
Anonymous:             4 kB
c000-d000 r-xp 00000000 fe:00 8                          /lib/other
Anonymous:             0 kB
d000-e000 r--p 00000000 fe:00 9                          /usr/share/data
Anonymous:             0 kB
";

    #[test]
    fn only_unchanged_pages_of_code_can_go() {
        let found = [0x1000..0x3000, 0x3000..0x9000, 0xc000..0xd000];
        assert_eq!(pages_of_code(SMAPS), found);
        assert_eq!(pages_of_code("nonsense - \n-\n1-2\nAnonymous: 0 kB"), []);
    }

    #[test]
    fn it_is_time_after_work_and_not_during_it() {
        let mut pace = Pace::default();
        let looks = [
            (40, false),
            (50, false),
            (51, true),
            (52, false),
            (53, false),
            (59, false),
            (60, true),
        ];
        for (used, expected) in looks {
            let rests = pace.has_come_to_rest(Duration::from_millis(used));
            assert_eq!(rests, expected, "after {used} ms");
        }
    }

    // Code that has run is in memory; after it was given back it runs as before, with less of it in memory.
    #[test]
    fn a_program_runs_on_without_what_it_gave_back() {
        let smaps = || std::fs::read_to_string("/proc/self/smaps").unwrap();
        let pages = pages_of_code(&smaps());
        assert!(!pages.is_empty());
        let resident = || -> u64 {
            let (mut sum, mut counted) = (0, false);
            for line in smaps().lines() {
                if let Some(range) = header(line) {
                    counted = pages.contains(&range);
                } else if let Some(rest) = line.strip_prefix("Rss:")
                    && counted
                {
                    sum += rest.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
                }
            }
            sum
        };
        let before = resident();
        pages.iter().for_each(give_back);
        let after = resident();
        assert!(after < before, "{after} of {before} kB");
        assert_eq!(pages_of_code(&smaps()), pages);
    }
}
