//! Many requests at once, carefully: a batch of one, then two, four and so on, and no further batch once one
//! request has failed (upstream's `slowStartBatch`). A quota that is full is so asked once, not a thousand times.

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use client_runtime::SyncError;

/// Upstream's `SlowStartInitialBatchSize`.
const FIRST: usize = 1;
/// No more requests than this are under way at a time for one owner.
const AT_ONCE: usize = 64;

/// How a number of requests ended.
pub(crate) struct Outcome {
    pub(crate) succeeded: usize,
    pub(crate) error: Option<SyncError>,
}

/// Sends `count` requests; `request` makes the one of a number.
pub(crate) async fn slow_start<F>(count: usize, request: impl Fn(usize) -> F) -> Outcome
where
    F: Future<Output = Result<(), SyncError>>,
{
    let (mut succeeded, mut batch) = (0, FIRST);
    let mut next = 0;
    while next < count {
        let end = count.min(next + batch);
        let outcome = all(next..end, &request).await;
        succeeded += outcome.succeeded;
        if outcome.error.is_some() {
            return Outcome {
                succeeded,
                error: outcome.error,
            };
        }
        next = end;
        batch *= 2;
    }
    Outcome {
        succeeded,
        error: None,
    }
}

/// Sends requests whatever becomes of the others, and tells the first error.
pub(crate) async fn all<F>(
    numbers: impl IntoIterator<Item = usize>,
    request: impl Fn(usize) -> F,
) -> Outcome
where
    F: Future<Output = Result<(), SyncError>>,
{
    let mut numbers = numbers.into_iter();
    let mut running: FuturesUnordered<F> = numbers.by_ref().take(AT_ONCE).map(&request).collect();
    let (mut succeeded, mut error) = (0, None);
    while let Some(ended) = running.next().await {
        match ended {
            Ok(()) => succeeded += 1,
            Err(failure) => error = error.or(Some(failure)),
        }
        running.extend(numbers.next().map(&request));
    }
    Outcome { succeeded, error }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    async fn sent(count: usize, fails_at: usize) -> (usize, usize) {
        let asked = RefCell::new(0);
        let outcome = slow_start(count, |number| {
            *asked.borrow_mut() += 1;
            async move {
                match number == fails_at {
                    true => Err(SyncError::NotYet("full".into())),
                    false => Ok(()),
                }
            }
        });
        let succeeded = outcome.await.succeeded;
        (asked.into_inner(), succeeded)
    }

    #[tokio::test]
    async fn batches_double_and_stop_at_the_first_failure() {
        assert_eq!(sent(1000, usize::MAX).await, (1000, 1000));
        assert_eq!(
            sent(1000, 0).await,
            (1, 0),
            "the first batch has one request"
        );
        assert_eq!(sent(1000, 1).await, (3, 2), "the second has two");
        assert_eq!(sent(1000, 6).await, (7, 6), "the third has four");
        assert_eq!(sent(0, 0).await, (0, 0));
    }
}
