//! MIME messages of several parts, as far as custom data uses them.

use super::{Error, unbase64};

/// A part of a message, decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Its type without parameters, in lower case.
    pub(super) content_type: Option<String>,
    pub(super) body: Vec<u8>,
}

/// The parts of a message.
pub(super) fn parts(message: &[u8]) -> Result<Vec<Part>, Error> {
    let (headers, body) = split(message.trim_ascii_start());
    let content_type = header(&headers, "content-type").unwrap_or_default();
    if !content_type.to_ascii_lowercase().starts_with("multipart/") {
        // A message of one part.
        return part(message.trim_ascii_start()).map(|part| vec![part]);
    }
    let boundary = parameter(&content_type, "boundary")
        .filter(|boundary| !boundary.is_empty())
        .ok_or(Error::Mime("its Content-Type has no boundary"))?;
    between(body, &boundary)?.into_iter().map(part).collect()
}

// What lies between lines that are the boundary; the line end before a boundary belongs to the boundary.
fn between<'a>(body: &'a [u8], boundary: &str) -> Result<Vec<&'a [u8]>, Error> {
    let (delimiter, last) = (format!("--{boundary}"), format!("--{boundary}--"));
    let mut parts = Vec::new();
    let mut start = None;
    let mut at = 0;
    for line in body.split_inclusive(|&b| b == b'\n') {
        let text = line.trim_ascii_end();
        if text == delimiter.as_bytes() || text == last.as_bytes() {
            parts.extend(start.map(|start: usize| without_line_end(&body[start..at.max(start)])));
            start = Some(at + line.len());
        }
        at += line.len();
        if text == last.as_bytes() {
            return Ok(parts);
        }
    }
    Err(Error::Mime("its last part has no end"))
}

fn without_line_end(part: &[u8]) -> &[u8] {
    let part = part.strip_suffix(b"\n").unwrap_or(part);
    part.strip_suffix(b"\r").unwrap_or(part)
}

fn part(bytes: &[u8]) -> Result<Part, Error> {
    let (headers, body) = split(bytes);
    let content_type = header(&headers, "content-type");
    let kind = content_type
        .as_deref()
        .and_then(|value| value.split(';').next());
    let kind = kind.map(|kind| kind.trim().to_ascii_lowercase());
    if kind
        .as_deref()
        .is_some_and(|kind| kind.starts_with("multipart/"))
    {
        return Ok(Part {
            content_type: Some("multipart/mixed".to_owned()),
            body: bytes.to_vec(),
        });
    }
    let encoding = header(&headers, "content-transfer-encoding").unwrap_or_default();
    let body = match encoding.to_ascii_lowercase().as_str() {
        "" | "7bit" | "8bit" | "binary" => body.to_vec(),
        "base64" => unbase64(body, "a part of the MIME message")?,
        "quoted-printable" => unquoted(body),
        _ => {
            return Err(Error::Mime(
                "a part has an unknown Content-Transfer-Encoding",
            ));
        }
    };
    Ok(Part {
        content_type: kind,
        body,
    })
}

// The headers as lines, continuations joined; and the body after the empty line.
fn split(message: &[u8]) -> (Vec<String>, &[u8]) {
    let mut headers: Vec<String> = Vec::new();
    let mut at = 0;
    for line in message.split_inclusive(|&b| b == b'\n') {
        at += line.len();
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end();
        match headers.last_mut() {
            _ if text.is_empty() => break,
            Some(header) if text.starts_with([' ', '\t']) => header.push_str(text),
            _ => headers.push(text.to_owned()),
        }
    }
    (headers, &message[at..])
}

fn header(headers: &[String], name: &str) -> Option<String> {
    let pairs = headers.iter().filter_map(|header| header.split_once(':'));
    let mut named = pairs.filter(|(key, _)| key.trim().eq_ignore_ascii_case(name));
    named.next().map(|(_, value)| value.trim().to_owned())
}

fn parameter(value: &str, name: &str) -> Option<String> {
    let pairs = value
        .split(';')
        .skip(1)
        .filter_map(|pair| pair.split_once('='));
    let mut named = pairs.filter(|(key, _)| key.trim().eq_ignore_ascii_case(name));
    named
        .next()
        .map(|(_, value)| value.trim().trim_matches('"').to_owned())
}

// `=` and two digits are a byte, `=` at the end of a line joins it with the next; the rest stands for itself.
fn unquoted(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        rest = match (first, byte) {
            (b'=', Some(byte)) => {
                plain.push(byte);
                &after[2..]
            }
            (b'=', None) if after.starts_with(b"\r\n") => &after[2..],
            (b'=', None) if after.starts_with(b"\n") => &after[1..],
            _ => {
                plain.push(*first);
                after
            }
        };
    }
    plain
}
