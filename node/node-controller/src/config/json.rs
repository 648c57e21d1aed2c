//! JSON with places: every value knows where it stands, so that whoever wrote it can be told.
//!
//! Strict as protobuf's own reader is: no comments, no trailing commas, no lone surrogates.

use std::borrow::Cow;

/// How deep values may nest. Upstream allows ten thousand; nobody sends a hundred.
const DEEPEST: usize = 500;

/// A value and the offset of its first byte.
#[derive(Debug, Clone, PartialEq)]
pub struct Node<'a> {
    /// Offset in the text.
    pub at: usize,
    /// The value.
    pub value: Json<'a>,
}

/// A JSON value; a number is kept as it was written.
#[derive(Debug, Clone, PartialEq)]
pub enum Json<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as written.
    Number(&'a str),
    /// A string.
    Text(Cow<'a, str>),
    /// An array.
    List(Vec<Node<'a>>),
    /// An object, in the order of the text; keys may repeat.
    Object(Vec<Entry<'a>>),
}

/// A key of an object with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry<'a> {
    /// Offset of the key.
    pub at: usize,
    /// The key.
    pub key: Cow<'a, str>,
    /// The value.
    pub node: Node<'a>,
}

impl Json<'_> {
    /// What a person would call it.
    pub fn kind(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "a bool",
            Json::Number(_) => "a number",
            Json::Text(_) => "a string",
            Json::List(_) => "a list",
            Json::Object(_) => "an object",
        }
    }
}

/// Text that is not JSON: where, and why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// Offset of the byte that cannot be.
    pub at: usize,
    /// What is wrong there.
    pub problem: String,
}

type Result<T> = std::result::Result<T, Malformed>;

/// Reads one JSON value and nothing after it.
pub fn parse(bytes: &[u8]) -> Result<Node<'_>> {
    let text = std::str::from_utf8(bytes).map_err(|error| Malformed {
        at: error.valid_up_to(),
        problem: "a byte that is not UTF-8".into(),
    })?;
    let mut parser = Parser { text, at: 0 };
    let node = parser.value(0)?;
    match parser.next() {
        None => Ok(node),
        Some(_) => Err(parser.wrong("nothing more after the end of the object")),
    }
}

/// The number that `text` is in JSON's notation, whole and nothing else.
pub fn is_number(text: &str) -> bool {
    let mut parser = Parser { text, at: 0 };
    text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        && matches!(parser.value(0), Ok(node) if matches!(node.value, Json::Number(_)))
        && parser.at == text.len()
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    /// The next byte that is not white space.
    fn next(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    fn value(&mut self, depth: usize) -> Result<Node<'a>> {
        let next = self.next();
        let at = self.at;
        if depth > DEEPEST {
            let problem = format!("values nested more than {DEEPEST} deep");
            return Err(Malformed { at, problem });
        }
        let value = match next {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Json::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => Json::Number(self.number()?),
            _ => self.word()?,
        };
        Ok(Node { at, value })
    }

    fn word(&mut self) -> Result<Json<'a>> {
        let rest = &self.text[self.at..];
        let length = rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(rest.len());
        let value = match &rest[..length] {
            "null" => Json::Null,
            "true" => Json::Bool(true),
            "false" => Json::Bool(false),
            _ => return Err(self.wrong("a value")),
        };
        self.at += length;
        Ok(value)
    }

    fn object(&mut self, depth: usize) -> Result<Json<'a>> {
        let mut entries = Vec::new();
        self.at += 1;
        if self.next() == Some(b'}') {
            self.at += 1;
            return Ok(Json::Object(entries));
        }
        loop {
            if self.next() != Some(b'"') {
                return Err(self.wrong("a name in double quotes"));
            }
            let at = self.at;
            let key = self.string()?;
            self.expect(b':', "`:` after the name")?;
            let node = self.value(depth + 1)?;
            entries.push(Entry { at, key, node });
            if self.ends(b'}', "`,` or `}`")? {
                return Ok(Json::Object(entries));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Json<'a>> {
        let mut items = Vec::new();
        self.at += 1;
        if self.next() == Some(b']') {
            self.at += 1;
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.ends(b']', "`,` or `]`")? {
                return Ok(Json::List(items));
            }
        }
    }

    /// Steps over a comma (not the end) or the closing bracket (the end).
    fn ends(&mut self, close: u8, expected: &str) -> Result<bool> {
        match self.next() {
            Some(b) if b == close || b == b',' => {
                self.at += 1;
                Ok(b == close)
            }
            _ => Err(self.wrong(expected)),
        }
    }

    fn expect(&mut self, byte: u8, expected: &str) -> Result<()> {
        if self.next() != Some(byte) {
            return Err(self.wrong(expected));
        }
        self.at += 1;
        Ok(())
    }

    fn number(&mut self) -> Result<&'a str> {
        let start = self.at;
        self.skip_if(|b| b == b'-');
        if !self.skip_if(|b| b == b'0') {
            self.digits()?;
        }
        if self.skip_if(|b| b == b'.') {
            self.digits()?;
        }
        if self.skip_if(|b| b == b'e' || b == b'E') {
            self.skip_if(|b| b == b'+' || b == b'-');
            self.digits()?;
        }
        let glued = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+' | b'.');
        if self.peek().is_some_and(glued) {
            return Err(self.wrong("the end of the number"));
        }
        Ok(&self.text[start..self.at])
    }

    fn digits(&mut self) -> Result<()> {
        if !self.skip_if(|b| b.is_ascii_digit()) {
            return Err(self.wrong("a digit"));
        }
        while self.skip_if(|b| b.is_ascii_digit()) {}
        Ok(())
    }

    fn skip_if(&mut self, fits: impl Fn(u8) -> bool) -> bool {
        let skip = self.peek().is_some_and(fits);
        self.at += usize::from(skip);
        skip
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn string(&mut self) -> Result<Cow<'a, str>> {
        self.at += 1;
        let mut whole = Cow::Borrowed("");
        loop {
            let rest = &self.text[self.at..];
            let plain = rest
                .find(|c: char| c < ' ' || c == '"' || c == '\\')
                .unwrap_or(rest.len());
            match &mut whole {
                Cow::Borrowed("") => whole = Cow::Borrowed(&rest[..plain]),
                started => started.to_mut().push_str(&rest[..plain]),
            }
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(whole);
                }
                Some(b'\\') => {
                    let c = self.escape()?;
                    whole.to_mut().push(c);
                }
                _ => return Err(self.wrong("the closing `\"` of the string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let start = self.at;
        let code = self.text.as_bytes().get(self.at + 1).copied();
        self.at += 2;
        let c = match code {
            Some(c @ (b'"' | b'\\' | b'/')) => Some(char::from(c)),
            Some(b'b') => Some('\u{8}'),
            Some(b'f') => Some('\u{c}'),
            Some(b'n') => Some('\n'),
            Some(b'r') => Some('\r'),
            Some(b't') => Some('\t'),
            Some(b'u') => self.unicode(),
            _ => None,
        };
        c.ok_or_else(|| Malformed {
            at: start,
            problem: "an escape that JSON does not have".into(),
        })
    }

    /// The rest of `\uXXXX`, with its second half where it is a surrogate.
    fn unicode(&mut self) -> Option<char> {
        let mut units = vec![self.hex()?];
        if (0xD800..0xE000).contains(&units[0]) {
            if !self.text[self.at..].starts_with("\\u") {
                return None;
            }
            self.at += 2;
            units.push(self.hex()?);
        }
        let mut chars = char::decode_utf16(units);
        match (chars.next(), chars.next()) {
            (Some(Ok(c)), None) => Some(c),
            _ => None,
        }
    }

    fn hex(&mut self) -> Option<u16> {
        let digits = self.text.get(self.at..self.at + 4)?;
        let all_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
        self.at += 4;
        all_hex.then(|| u16::from_str_radix(digits, 16).ok())?
    }

    fn wrong(&self, expected: &str) -> Malformed {
        let found = match self.text[self.at.min(self.text.len())..].chars().next() {
            None => "the end of the text".to_owned(),
            Some(c) => format!("`{}`", c.escape_debug()),
        };
        Malformed {
            at: self.at,
            problem: format!("{found} where {expected} belongs"),
        }
    }
}

#[cfg(test)]
mod tests;
