//! Reading many keys without holding the lock for long: a stretch at a time, at one revision.

use std::ops::Bound;
use std::sync::Arc;

use super::Shared;
use super::index::{Index, Version};
use crate::{Error, Range, Result, Revision};

/// How many keys are looked at under one lock.
const STEP: usize = 2048;

/// A range of keys, as [`crate::Store::range`] describes it.
pub(crate) fn range(
    shared: &Shared,
    start: &str,
    end: &str,
    limit: usize,
    at: Option<Revision>,
) -> Result<Range> {
    let limit = if limit == 0 { usize::MAX } else { limit };
    let at = at.filter(|&at| at != 0);
    loop {
        let revision = at.unwrap_or_else(|| shared.read().revision());
        shared.read().check_readable(revision)?;
        match collect(shared, start, Bound::Excluded(end), limit, revision) {
            // A compaction overtook a read of the newest state: read the state that is newest now.
            Err(Error::Compacted { .. }) if at.is_none() => continue,
            Err(error) => return Err(error),
            Ok((found, count)) => {
                let entries = found.iter().filter_map(|v| v.to_key_value()).collect();
                return Ok(Range {
                    entries,
                    count,
                    revision,
                });
            }
        }
    }
}

/// All live keys at a revision of the caller's choice, which is asked for again if a compaction
/// overtakes the reading.
pub(crate) fn snapshot(
    shared: &Shared,
    revision: impl Fn(&Index) -> Revision,
) -> (Revision, Vec<Arc<Version>>) {
    loop {
        let revision = revision(&shared.read());
        let all = collect(shared, "", Bound::Unbounded, usize::MAX, revision);
        if let Ok((versions, _)) = all {
            return (revision, versions);
        }
    }
}

fn collect(
    shared: &Shared,
    start: &str,
    end: Bound<&str>,
    limit: usize,
    revision: Revision,
) -> Result<(Vec<Arc<Version>>, usize)> {
    if let Bound::Excluded(end) = end
        && start >= end
    {
        return Ok((Vec::new(), 0));
    }
    let (mut found, mut count) = (Vec::new(), 0);
    let mut resume: Option<Arc<str>> = None;
    loop {
        let from = match &resume {
            None => Bound::Included(start),
            Some(key) => Bound::Excluded(key.as_ref()),
        };
        let index = shared.read();
        index.check_readable(revision)?;
        let page = index.page(from, end, revision, limit - found.len(), STEP);
        drop(index);
        found.extend(page.found);
        count += page.count;
        resume = page.resume;
        if resume.is_none() {
            return Ok((found, count));
        }
    }
}
