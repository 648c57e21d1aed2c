//! Response bodies: whole, made in chunks as they are sent, or endless.

use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::Stream;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

/// A response body.
pub(crate) enum Body {
    /// All of it, or nothing left.
    Whole(Option<Bytes>),
    /// Made while it is sent, so that a large list never stands in memory twice.
    Chunks(Box<dyn Iterator<Item = Bytes> + Send>),
    /// A watch.
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
    /// Another server's answer, passed on as it comes; ends as it ends, well or not.
    Passed(Incoming),
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Body::Whole(_) => "Whole",
            Body::Chunks(_) => "Chunks",
            Body::Stream(_) => "Stream",
            Body::Passed(_) => "Passed",
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
        match self {
            Body::Whole(bytes) => bytes.as_ref().is_some_and(|b| b.len() > 128 * 1024),
            Body::Chunks(_) => true,
            Body::Stream(_) | Body::Passed(_) => false,
        }
    }

    /// The same body; one that is made while it is sent keeps `guard` until it has been, or is given up.
    pub(crate) fn holding(self, guard: impl Send + 'static) -> Body {
        let Body::Chunks(mut chunks) = self else {
            return self;
        };
        let mut guard = Some(guard);
        Body::Chunks(Box::new(std::iter::from_fn(move || {
            let next = chunks.next();
            if next.is_none() {
                guard.take();
            }
            next
        })))
    }

    /// The same body, gzip-compressed at upstream's level 1.
    pub(crate) fn gzip(self) -> Body {
        let chunks: Box<dyn Iterator<Item = Bytes> + Send> = match self {
            Body::Whole(bytes) => Box::new(bytes.into_iter()),
            Body::Chunks(chunks) => chunks,
            Body::Stream(_) | Body::Passed(_) => return self,
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
            Body::Whole(bytes) => bytes.take(),
            Body::Chunks(chunks) => chunks.next(),
            Body::Stream(stream) => match stream.as_mut().poll_next(context) {
                Poll::Ready(next) => next,
                Poll::Pending => return Poll::Pending,
            },
            Body::Passed(incoming) => return Pin::new(incoming).poll_frame(context),
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Whole(bytes) => bytes.is_none(),
            Body::Passed(incoming) => incoming.is_end_stream(),
            _ => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64))
            }
            Body::Passed(incoming) => incoming.size_hint(),
            _ => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn a_guard_is_held_until_the_last_chunk_or_the_end_of_the_body() {
        let guard = std::sync::Arc::new(());
        let held = || std::sync::Arc::strong_count(&guard) > 1;
        let text = || Body::Chunks(Box::new(["a", "b"].into_iter().map(Bytes::from)));
        let Body::Chunks(mut chunks) = text().holding(std::sync::Arc::clone(&guard)) else {
            panic!("chunks stay chunks");
        };
        assert_eq!(chunks.by_ref().take(2).count(), 2);
        assert!(held());
        assert_eq!(chunks.next(), None);
        assert!(!held());
        let given_up = text().holding(std::sync::Arc::clone(&guard));
        assert!(held());
        drop(given_up);
        assert!(!held());
        let _whole = Body::from("a").holding(std::sync::Arc::clone(&guard));
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
