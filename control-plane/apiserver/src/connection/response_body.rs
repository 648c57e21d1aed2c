//! Response bodies: whole, made in chunks as they are sent, or endless.

use std::collections::VecDeque;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::Stream;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use crate::connection::budget::Share;

/// What is handed out at once.
const PIECE: usize = 64 * 1024;
/// Answers up to this size are not charged.
const UNCHARGED: usize = 1024;
/// What an answer that is made while it is sent keeps in memory, about: what is queued, and what comes next.
const IN_CHUNKS: usize = 192 * 1024;

/// A response body.
pub(crate) enum Body {
    /// All of it, or nothing left.
    Whole(Option<Bytes>),
    /// All of it, in parts that are in memory anyway: an answer more costs nothing more.
    Shared(VecDeque<Bytes>),
    /// Made while it is sent, so that a large list never stands in memory twice.
    Chunks(Box<dyn Iterator<Item = Bytes> + Send>),
    /// A watch.
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
    /// Another server's answer, passed on as it comes; ends as it ends, well or not.
    Passed(Incoming),
    /// The same, holding something until its end.
    Held(
        Incoming,
        #[expect(dead_code, reason = "it is there to be dropped")] Held,
    ),
}

/// What is dropped when something has come to its end.
pub(crate) type Held = Box<dyn Send>;

/// Where something is put that is to be held until a connection, which has changed its protocol, ends. Found among a
/// response's extensions.
#[derive(Clone, Default)]
pub(crate) struct UntilClosed(Arc<Mutex<Option<Held>>>);

impl UntilClosed {
    /// Puts something there.
    pub(crate) fn hold(&self, held: Held) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Body::Whole(_) => "Whole",
            Body::Shared(_) => "Shared",
            Body::Chunks(_) => "Chunks",
            Body::Stream(_) => "Stream",
            Body::Passed(_) | Body::Held(..) => "Passed",
        })
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Body::Whole(Some(bytes.into()))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body::Whole(Some(bytes))
    }
}

impl From<String> for Body {
    fn from(text: String) -> Body {
        Body::Whole(Some(text.into()))
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Body {
        Body::Whole(Some(Bytes::from_static(text.as_bytes())))
    }
}

impl Body {
    /// Whether compressing is worth it (upstream: more than 128 KiB) and possible.
    pub(crate) fn is_large(&self) -> bool {
        !matches!(self, Body::Stream(_) | Body::Passed(_) | Body::Held(..))
            && !self.is_at_most(128 * 1024)
    }

    /// Whether it is known to have no more bytes than this.
    pub(crate) fn is_at_most(&self, most: usize) -> bool {
        self.len().is_some_and(|len| len <= most)
    }

    fn len(&self) -> Option<usize> {
        match self {
            Body::Whole(bytes) => Some(bytes.as_ref().map_or(0, Bytes::len)),
            Body::Shared(parts) => Some(parts.iter().map(Bytes::len).sum()),
            Body::Chunks(_) | Body::Stream(_) | Body::Passed(_) | Body::Held(..) => None,
        }
    }

    /// The same body, of which the caller is charged what nobody else holds.
    pub(crate) fn charged(self, charge: impl FnOnce(usize) -> Share) -> Body {
        match self {
            Body::Whole(Some(bytes)) if bytes.len() > UNCHARGED => {
                let share = charge(bytes.len());
                let bytes = Bytes::from_owner(Charged {
                    bytes,
                    _share: share,
                });
                Body::Whole(Some(bytes))
            }
            Body::Chunks(_) => {
                let share = charge(IN_CHUNKS);
                self.telling(move || _ = &share)
            }
            other => other,
        }
    }

    /// The same body; one that is made while it is sent calls `each` for every chunk, and drops it at its end.
    pub(crate) fn telling(self, each: impl FnMut() + Send + 'static) -> Body {
        let Body::Chunks(mut chunks) = self else {
            return self;
        };
        let mut each = Some(each);
        Body::Chunks(Box::new(std::iter::from_fn(move || {
            let next = chunks.next();
            match (&next, &mut each) {
                (Some(_), Some(each)) => each(),
                _ => each = None,
            }
            next
        })))
    }

    /// The same body, gzip-compressed at upstream's level 1.
    pub(crate) fn gzip(self) -> Body {
        let chunks: Box<dyn Iterator<Item = Bytes> + Send> = match self {
            Body::Whole(bytes) => Box::new(bytes.into_iter()),
            Body::Shared(parts) => Box::new(parts.into_iter()),
            Body::Chunks(chunks) => chunks,
            Body::Stream(_) | Body::Passed(_) | Body::Held(..) => return self,
        };
        Body::Chunks(Box::new(Gzip {
            chunks,
            encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())),
        }))
    }
}

struct Gzip {
    chunks: Box<dyn Iterator<Item = Bytes> + Send>,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Iterator for Gzip {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        const ENOUGH: usize = 32 * 1024;
        let encoder = self.encoder.as_mut()?;
        for chunk in self.chunks.by_ref() {
            encoder
                .write_all(&chunk)
                .expect("writing to memory cannot fail");
            if encoder.get_ref().len() >= ENOUGH {
                return Some(std::mem::take(encoder.get_mut()).into());
            }
        }
        let rest = self
            .encoder
            .take()?
            .finish()
            .expect("writing to memory cannot fail");
        Some(rest.into())
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let next = match self.get_mut() {
            Body::Whole(bytes) => next_piece(bytes),
            Body::Shared(parts) => {
                let mut part = parts.pop_front();
                let piece = next_piece(&mut part);
                if let Some(rest) = part {
                    parts.push_front(rest);
                }
                piece
            }
            Body::Chunks(chunks) => chunks.next(),
            Body::Stream(stream) => match stream.as_mut().poll_next(context) {
                Poll::Ready(next) => next,
                Poll::Pending => return Poll::Pending,
            },
            Body::Passed(incoming) | Body::Held(incoming, _) => {
                return Pin::new(incoming).poll_frame(context);
            }
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Whole(bytes) => bytes.is_none(),
            Body::Shared(parts) => parts.is_empty(),
            Body::Passed(incoming) | Body::Held(incoming, _) => incoming.is_end_stream(),
            _ => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match (self, self.len()) {
            (Body::Passed(incoming) | Body::Held(incoming, _), _) => incoming.size_hint(),
            (_, Some(len)) => SizeHint::with_exact(len as u64),
            (_, None) => SizeHint::default(),
        }
    }
}

// What is handed out at once is what an unread answer keeps at most.
fn next_piece(rest: &mut Option<Bytes>) -> Option<Bytes> {
    match rest {
        Some(bytes) if bytes.len() > PIECE => Some(bytes.split_to(PIECE)),
        _ => rest.take(),
    }
}

/// Bytes that somebody is charged for until they have been sent.
struct Charged {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn who_is_told_is_held_until_the_last_chunk_or_the_end_of_the_body() {
        let guard = std::sync::Arc::new(());
        let held = || std::sync::Arc::strong_count(&guard) > 1;
        let text = || Body::Chunks(Box::new(["a", "b"].into_iter().map(Bytes::from)));
        let hold = || {
            let guard = std::sync::Arc::clone(&guard);
            move || _ = &guard
        };
        let Body::Chunks(mut chunks) = text().telling(hold()) else {
            panic!("chunks stay chunks");
        };
        assert_eq!(chunks.by_ref().take(2).count(), 2);
        assert!(held());
        assert_eq!(chunks.next(), None);
        assert!(!held());
        let given_up = text().telling(hold());
        assert!(held());
        drop(given_up);
        assert!(!held());
        let _whole = Body::from("a").telling(hold());
        assert!(!held());
    }

    #[test]
    fn gzip_of_chunks_unpacks_to_the_chunks() {
        let text: Vec<Bytes> = (0..10_000)
            .map(|i| Bytes::from(format!("line {i}\n")))
            .collect();
        let whole: Vec<u8> = text.concat();
        let Body::Chunks(packed) = Body::Chunks(Box::new(text.into_iter())).gzip() else {
            panic!("gzip yields chunks");
        };
        let packed: Vec<u8> = packed.flat_map(|c| c.to_vec()).collect();
        let mut back = Vec::new();
        flate2::read::GzDecoder::new(&packed[..])
            .read_to_end(&mut back)
            .expect("gzip");
        assert_eq!(back, whole);
    }
}
