//! Go's words for what is wrong with a JSON text. Only runs once parsing has failed.

/// Describes why `bytes` are not JSON as Go's scanner would, falling back to the parser's own
/// reason for what Go would have accepted (nesting between our limit and Go's, lone surrogates).
pub(super) fn describe(bytes: &[u8], error: &serde_json::Error) -> String {
    let reason = error.to_string();
    if reason.starts_with("recursion limit exceeded") {
        return "exceeded max depth".to_owned();
    }
    let mut scanner = Scanner {
        bytes,
        at: 0,
        open: Vec::new(),
    };
    match scanner.document() {
        Err(Fault::End) => "unexpected end of JSON input".to_owned(),
        Err(Fault::Byte(byte, context)) => {
            format!("invalid character {} {context}", quote(byte))
        }
        Ok(()) => reason,
    }
}

/// Go quotes the offending byte as if it were a rune.
fn quote(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        0..0x20 | 0x7f => format!(r"'\x{byte:02x}'"),
        0x80..0xa1 | 0xad => format!(r"'\u{byte:04x}'"),
        _ => format!("'{}'", char::from(byte)),
    }
}

enum Fault {
    End,
    Byte(u8, String),
}

fn unexpected<T>(byte: u8, context: &str) -> Result<T, Fault> {
    Err(Fault::Byte(byte, context.to_owned()))
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The closing brackets still owed.
    open: Vec<u8>,
}

impl Scanner<'_> {
    fn document(&mut self) -> Result<(), Fault> {
        loop {
            let opened = self.value()?;
            if opened {
                continue;
            }
            if !self.after_value()? {
                break;
            }
        }
        match self.skip_space() {
            Ok(byte) => unexpected(byte, "after top-level value"),
            Err(_) => Ok(()),
        }
    }

    fn peek(&self) -> Result<u8, Fault> {
        self.bytes.get(self.at).copied().ok_or(Fault::End)
    }

    fn next(&mut self) -> Result<u8, Fault> {
        let byte = self.peek()?;
        self.at += 1;
        Ok(byte)
    }

    /// The next byte that is not white space, left unread.
    fn skip_space(&mut self) -> Result<u8, Fault> {
        while matches!(self.peek()?, b' ' | b'\t' | b'\r' | b'\n') {
            self.at += 1;
        }
        self.peek()
    }

    /// Reads one value, or the opening of a container whose first value comes next (`true`).
    fn value(&mut self) -> Result<bool, Fault> {
        self.skip_space()?;
        match self.next()? {
            b'{' => self.opened_object(),
            b'[' => self.opened_array(),
            b'"' => self.string().map(|()| false),
            b't' => self.literal("true").map(|()| false),
            b'f' => self.literal("false").map(|()| false),
            b'n' => self.literal("null").map(|()| false),
            b'-' => {
                let byte = self.next()?;
                self.number(byte, "in numeric literal").map(|()| false)
            }
            byte @ b'0'..=b'9' => self.number(byte, "").map(|()| false),
            byte => unexpected(byte, "looking for beginning of value"),
        }
    }

    fn opened_object(&mut self) -> Result<bool, Fault> {
        if self.skip_space()? == b'}' {
            self.at += 1;
            return Ok(false);
        }
        self.open.push(b'}');
        self.key().map(|()| true)
    }

    fn opened_array(&mut self) -> Result<bool, Fault> {
        if self.skip_space()? == b']' {
            self.at += 1;
            return Ok(false);
        }
        self.open.push(b']');
        Ok(true)
    }

    fn key(&mut self) -> Result<(), Fault> {
        self.skip_space()?;
        match self.next()? {
            b'"' => self.string()?,
            byte => return unexpected(byte, "looking for beginning of object key string"),
        }
        self.skip_space()?;
        match self.next()? {
            b':' => Ok(()),
            byte => unexpected(byte, "after object key"),
        }
    }

    /// Closes what ends here; `true` when another value follows.
    fn after_value(&mut self) -> Result<bool, Fault> {
        while let Some(closing) = self.open.last().copied() {
            self.skip_space()?;
            match self.next()? {
                b',' if closing == b'}' => return self.key().map(|()| true),
                b',' => return Ok(true),
                byte if byte == closing => drop(self.open.pop()),
                byte if closing == b'}' => return unexpected(byte, "after object key:value pair"),
                byte => return unexpected(byte, "after array element"),
            }
        }
        Ok(false)
    }

    fn string(&mut self) -> Result<(), Fault> {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                byte @ 0..0x20 => return unexpected(byte, "in string literal"),
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Result<(), Fault> {
        match self.next()? {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => Ok(()),
            b'u' => {
                for _ in 0..4 {
                    let byte = self.next()?;
                    if !byte.is_ascii_hexdigit() {
                        return unexpected(byte, r"in \u hexadecimal character escape");
                    }
                }
                Ok(())
            }
            byte => unexpected(byte, "in string escape code"),
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), Fault> {
        for expected in word.chars().skip(1) {
            let byte = self.next()?;
            if char::from(byte) != expected {
                return unexpected(byte, &format!("in literal {word} (expecting '{expected}')"));
            }
        }
        Ok(())
    }

    fn number(&mut self, first: u8, context: &str) -> Result<(), Fault> {
        match first {
            b'0' => {}
            b'1'..=b'9' => self.digits(),
            byte => return unexpected(byte, context),
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.bytes.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn some_digits(&mut self, context: &str) -> Result<(), Fault> {
        let byte = self.next()?;
        if !byte.is_ascii_digit() {
            return unexpected(byte, context);
        }
        self.digits();
        Ok(())
    }

    fn digits(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn faults_are_described_in_gos_words() {
        let table = [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            (r#"{"a":1"#, "unexpected end of JSON input"),
            (
                "not json",
                "invalid character 'o' in literal null (expecting 'u')",
            ),
            (
                "hello",
                "invalid character 'h' looking for beginning of value",
            ),
            (
                "{a:1}",
                "invalid character 'a' looking for beginning of object key string",
            ),
            (
                r#"{"a":1,}"#,
                "invalid character '}' looking for beginning of object key string",
            ),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (
                r#"{"a":1 "b":2}"#,
                "invalid character '\"' after object key:value pair",
            ),
            ("[1 2]", "invalid character '2' after array element"),
            (
                "[1,]",
                "invalid character ']' looking for beginning of value",
            ),
            ("{} {}", "invalid character '{' after top-level value"),
            ("\"a\nb\"", r"invalid character '\n' in string literal"),
            (r#""\x""#, "invalid character 'x' in string escape code"),
            (
                r#""\u12g4""#,
                r"invalid character 'g' in \u hexadecimal character escape",
            ),
            ("-x", "invalid character 'x' in numeric literal"),
            (
                "1.x",
                "invalid character 'x' after decimal point in numeric literal",
            ),
            (
                "1ex",
                "invalid character 'x' in exponent of numeric literal",
            ),
            ("01", "invalid character '1' after top-level value"),
        ];
        for (text, want) in table {
            let error = crate::json::parse(text.as_bytes()).expect_err(text);
            assert_eq!(error.to_string(), want, "{text}");
        }
    }
}
