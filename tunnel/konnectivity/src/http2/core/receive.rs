//! What arrives.

use bytes::BytesMut;

use super::{Core, Fault, MAX_HEADERS, MAX_WINDOW, OWN_FRAME, Role, fault};
use crate::http2::frame::{self, Code, HEAD, Head};
use crate::http2::stream::StreamError;

impl Core {
    /// Takes bytes of the connection, cut anywhere.
    pub(in crate::http2) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            bytes = if self.preface_left > 0 {
                self.take_preface(bytes)?
            } else if let Some(head) = self.data {
                self.take_data(head, bytes)?
            } else {
                self.take_frame(bytes)?
            };
        }
        Ok(())
    }

    fn take_preface<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Fault> {
        let (now, later) = bytes.split_at(bytes.len().min(self.preface_left));
        let from = frame::PREFACE.len() - self.preface_left;
        if &frame::PREFACE[from..from + now.len()] != now {
            return Err(fault(Code::Protocol, "this is not HTTP/2"));
        }
        self.preface_left -= now.len();
        Ok(later)
    }

    // A frame's head, and of frames other than DATA the payload, are collected first.
    fn take_frame<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Fault> {
        let wanted = match self.partial.first_chunk::<HEAD>() {
            Some(head) => HEAD + Head::read(head).length,
            None => HEAD,
        };
        let missing = wanted - self.partial.len();
        let (now, later) = bytes.split_at(bytes.len().min(missing));
        self.partial.extend_from_slice(now);
        let Some(head) = self.partial.first_chunk::<HEAD>().map(Head::read) else {
            return Ok(later);
        };
        if head.length > OWN_FRAME {
            return Err(fault(Code::FrameSize, "a frame is larger than allowed"));
        }
        if head.kind == frame::DATA && !head.has(frame::PADDED) && self.partial.len() == HEAD {
            self.partial.clear();
            self.begin_data(head)?;
        } else if self.partial.len() == HEAD + head.length {
            let whole = std::mem::take(&mut self.partial);
            self.frame(head, &whole[HEAD..])?;
        }
        Ok(later)
    }

    fn frame(&mut self, head: Head, payload: &[u8]) -> Result<(), Fault> {
        if self.block.is_some() && head.kind != frame::CONTINUATION {
            return Err(fault(Code::Protocol, "a header block is not finished"));
        }
        match head.kind {
            frame::DATA => {
                let data = frame::body(head, payload)
                    .ok_or_else(|| fault(Code::Protocol, "DATA with wrong padding"))?;
                self.charge(head.stream, payload.len())?;
                self.data_piece(head.stream, data);
                self.data_end(head);
                Ok(())
            }
            frame::HEADERS => {
                let piece = frame::body(head, payload)
                    .ok_or_else(|| fault(Code::Protocol, "HEADERS with wrong padding"))?;
                self.header_piece(head, BytesMut::from(piece))
            }
            frame::CONTINUATION => self.continuation(head, payload),
            frame::RST_STREAM => self.reset(head, payload),
            frame::SETTINGS => self.settings(head, payload),
            frame::PING => self.pinged(head, payload),
            frame::GOAWAY => self.goaway(payload),
            frame::WINDOW_UPDATE => self.window(head, payload),
            frame::PUSH_PROMISE => Err(fault(Code::Protocol, "pushes were not asked for")),
            // PRIORITY, and what later versions may bring.
            _ => Ok(()),
        }
    }

    fn begin_data(&mut self, head: Head) -> Result<(), Fault> {
        if self.block.is_some() {
            return Err(fault(Code::Protocol, "a header block is not finished"));
        }
        self.charge(head.stream, head.length)?;
        if head.length == 0 {
            self.data_end(head);
        } else {
            self.data = Some(head);
        }
        Ok(())
    }

    fn take_data<'a>(&mut self, head: Head, bytes: &'a [u8]) -> Result<&'a [u8], Fault> {
        let (now, later) = bytes.split_at(bytes.len().min(head.length));
        self.data_piece(head.stream, now);
        let left = Head {
            length: head.length - now.len(),
            ..head
        };
        self.data = (left.length > 0).then_some(left);
        if left.length == 0 {
            self.data_end(left);
        }
        Ok(later)
    }

    // Both windows pay for a frame when it begins. The connection's is given back at once, as
    // streams bound themselves.
    fn charge(&mut self, id: u32, length: usize) -> Result<(), Fault> {
        if id == 0 || id > self.highest_known() {
            return Err(fault(
                Code::Protocol,
                "DATA on a stream that was never opened",
            ));
        }
        let length = length as i64;
        self.recv_window -= length;
        if self.recv_window < 0 {
            return Err(fault(
                Code::FlowControl,
                "the connection's window is exceeded",
            ));
        }
        if self.recv_window < super::CONNECTION_WINDOW / 2 {
            let bytes = super::CONNECTION_WINDOW - self.recv_window;
            self.recv_window += bytes;
            self.window_update(0, bytes);
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.recv_window -= length;
            stream.unreleased += length;
            if stream.recv_window < 0 {
                return Err(fault(Code::FlowControl, "a stream's window is exceeded"));
            }
        }
        Ok(())
    }

    fn highest_known(&self) -> u32 {
        self.highest_peer_id.max(self.next_id.saturating_sub(2))
    }

    fn data_piece(&mut self, id: u32, piece: &[u8]) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.abandoned || stream.ended.is_some() {
            return;
        }
        let (inbox, bytes) = (&mut stream.inbox, &mut stream.inbox_bytes);
        let pushed = stream.assembler.push(piece, |message| {
            *bytes += message.len();
            inbox.push_back(message);
        });
        match pushed {
            Ok(()) => {
                if !stream.inbox.is_empty()
                    && let Some(waker) = stream.reader.take()
                {
                    waker.wake();
                }
                self.release(id);
            }
            // The offender alone is cut.
            Err(error) => {
                stream.finish(Err(StreamError::peer(error.to_string())));
                stream.local_closed = true;
                self.put_reset(id, Code::EnhanceYourCalm);
            }
        }
    }

    fn data_end(&mut self, head: Head) {
        if head.has(frame::END_STREAM)
            && let Some(stream) = self.streams.get_mut(&head.stream)
        {
            stream.finish(Ok(()));
        }
    }

    fn header_piece(&mut self, head: Head, block: BytesMut) -> Result<(), Fault> {
        if block.len() > MAX_HEADERS {
            return Err(fault(Code::EnhanceYourCalm, "a header block is too long"));
        }
        if head.has(frame::END_HEADERS) {
            return self.headers(head, &block);
        }
        self.block = Some((head, block));
        Ok(())
    }

    fn continuation(&mut self, head: Head, payload: &[u8]) -> Result<(), Fault> {
        let Some((first, mut block)) = self.block.take().filter(|(h, _)| h.stream == head.stream)
        else {
            return Err(fault(Code::Protocol, "CONTINUATION of nothing"));
        };
        // A flood of empty ones would otherwise cost nothing.
        if payload.is_empty() && !head.has(frame::END_HEADERS) {
            return Err(fault(Code::EnhanceYourCalm, "an empty CONTINUATION"));
        }
        block.extend_from_slice(payload);
        let flags = first.flags | head.flags & frame::END_HEADERS;
        self.header_piece(Head { flags, ..first }, block)
    }

    fn headers(&mut self, head: Head, block: &[u8]) -> Result<(), Fault> {
        let fields = self
            .decoder
            .decode(block, MAX_HEADERS)
            .map_err(|error| fault(Code::Compression, error.to_string()))?;
        if !self.streams.contains_key(&head.stream) && !self.accept(head.stream)? {
            return Ok(());
        }
        let Some(stream) = self.streams.get_mut(&head.stream) else {
            return Ok(());
        };
        let ends = head.has(frame::END_STREAM);
        if stream.seen_headers && !ends {
            return Err(fault(Code::Protocol, "a second header without an end"));
        }
        if ends && self.role == Role::Client {
            stream.finish(StreamError::from_trailers(&fields));
        } else if ends {
            stream.finish(Ok(()));
        }
        if !stream.seen_headers {
            stream.seen_headers = true;
            stream.headers = Some(fields);
        }
        if let Some(waker) = stream.reader.take() {
            waker.wake();
        }
        Ok(())
    }

    // Whether the stream is now there; a stream that has gone is none of our business any more.
    fn accept(&mut self, id: u32) -> Result<bool, Fault> {
        if self.role == Role::Client {
            return match id <= self.highest_known() {
                true => Ok(false),
                false => Err(fault(Code::Protocol, "a server may not open streams")),
            };
        }
        if id.is_multiple_of(2) {
            return Err(fault(Code::Protocol, "a client's stream has an odd number"));
        }
        if id <= self.highest_peer_id {
            return Ok(false);
        }
        self.highest_peer_id = id;
        if self.refusing || self.streams.len() >= self.tuning.max_streams as usize {
            self.put_reset(id, Code::RefusedStream);
            return Ok(false);
        }
        let fresh = self.fresh();
        self.streams.insert(id, fresh);
        self.accepted.push_back(id);
        Ok(true)
    }

    fn reset(&mut self, head: Head, payload: &[u8]) -> Result<(), Fault> {
        let code = frame::number(payload)
            .ok_or_else(|| fault(Code::FrameSize, "RST_STREAM without a code"))?;
        if head.stream == 0 || head.stream > self.highest_known() {
            return Err(fault(
                Code::Protocol,
                "RST_STREAM of a stream that was never opened",
            ));
        }
        let Some(stream) = self.streams.get_mut(&head.stream) else {
            return Ok(());
        };
        stream.finish(Err(StreamError::reset(code)));
        stream.local_closed = true;
        stream.pending.clear();
        stream.pending_bytes = 0;
        if stream.abandoned {
            self.streams.remove(&head.stream);
        }
        Ok(())
    }

    fn settings(&mut self, head: Head, payload: &[u8]) -> Result<(), Fault> {
        if head.has(frame::ACK) {
            return Ok(());
        }
        if !payload.len().is_multiple_of(6) {
            return Err(fault(Code::FrameSize, "SETTINGS of an odd length"));
        }
        for setting in payload.chunks_exact(6) {
            let id = u16::from_be_bytes([setting[0], setting[1]]);
            let value = frame::number(&setting[2..]).unwrap_or_default();
            self.setting(id, value)?;
        }
        frame::put(self.out.end(), frame::SETTINGS, frame::ACK, 0, &[]);
        Ok(())
    }

    fn setting(&mut self, id: u16, value: u32) -> Result<(), Fault> {
        match id {
            frame::SETTING_INITIAL_WINDOW => {
                let value = i64::from(value);
                if value > MAX_WINDOW {
                    return Err(fault(Code::FlowControl, "an initial window beyond 2^31"));
                }
                let change = value - self.peer_window;
                self.peer_window = value;
                for stream in self.streams.values_mut() {
                    stream.send_window += change;
                    if stream.send_window > MAX_WINDOW {
                        return Err(fault(Code::FlowControl, "a window beyond 2^31"));
                    }
                }
                self.look_at_all();
            }
            frame::SETTING_MAX_FRAME => {
                if !(super::DEFAULT_FRAME..1 << 24).contains(&(value as usize)) {
                    return Err(fault(Code::Protocol, "a frame size that may not be"));
                }
                // More than our own messages need would only make turns longer.
                self.peer_frame = (value as usize).min(OWN_FRAME);
            }
            _ => {}
        }
        Ok(())
    }

    fn look_at_all(&mut self) {
        let ids: Vec<u32> = self.streams.keys().copied().collect();
        for id in ids {
            self.make_ready(id);
        }
    }

    fn pinged(&mut self, head: Head, payload: &[u8]) -> Result<(), Fault> {
        if payload.len() != 8 {
            return Err(fault(Code::FrameSize, "PING of a wrong length"));
        }
        if head.has(frame::ACK) {
            self.pongs += 1;
        } else {
            frame::put(self.out.end(), frame::PING, frame::ACK, 0, payload);
        }
        Ok(())
    }

    // Streams the peer has taken up go on; those it has not are refused (RFC 9113, 6.8).
    fn goaway(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let last = frame::number(payload)
            .ok_or_else(|| fault(Code::FrameSize, "GOAWAY without a stream"))?;
        self.going_away = true;
        self.tell_leaving();
        if self.role == Role::Client {
            for (id, stream) in &mut self.streams {
                if *id > last & 0x7fff_ffff {
                    stream.local_closed = true;
                    stream.finish(Err(StreamError::connection("the server is going away")));
                }
            }
        }
        Ok(())
    }

    fn window(&mut self, head: Head, payload: &[u8]) -> Result<(), Fault> {
        let more = frame::number(payload)
            .ok_or_else(|| fault(Code::FrameSize, "WINDOW_UPDATE without a number"))?;
        let more = i64::from(more & 0x7fff_ffff);
        if more == 0 {
            return Err(fault(Code::Protocol, "WINDOW_UPDATE by nothing"));
        }
        let window = match (head.stream, self.streams.get_mut(&head.stream)) {
            (0, _) => &mut self.send_window,
            (_, Some(stream)) => &mut stream.send_window,
            (_, None) => return Ok(()),
        };
        *window += more;
        self.openings += 1;
        if *window > MAX_WINDOW {
            return Err(fault(Code::FlowControl, "a window beyond 2^31"));
        }
        self.make_ready(head.stream);
        Ok(())
    }
}
