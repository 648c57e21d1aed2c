//! From text to tokens.

use crate::ast::Const;
use crate::issues::Issue;

/// A token and where it begins, in code points.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token {
    pub(crate) at: u32,
    pub(crate) kind: TokenKind,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TokenKind {
    Ident(String),
    /// A name in backquotes, which may hold what names may not.
    Quoted(String),
    Const(Const),
    Symbol(&'static str),
    End,
}

/// Longest first, so that `<=` is not taken for `<`.
const SYMBOLS: [&str; 27] = [
    "&&", "||", "<=", ">=", "==", "!=", "(", ")", "[", "]", "{", "}", ",", ":", "?", ".", "+", "-",
    "*", "/", "%", "<", ">", "!", "=", "&", "|",
];

pub(crate) struct Lexer {
    chars: Vec<char>,
    next: usize,
}

/// Splits a text into tokens.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, Issue> {
    let mut lexer = Lexer {
        chars: text.chars().collect(),
        next: 0,
    };
    let mut found = Vec::new();
    loop {
        let token = lexer.token()?;
        let ended = token.kind == TokenKind::End;
        found.push(token);
        if ended {
            return Ok(found);
        }
    }
}

impl Lexer {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.next + ahead).copied().unwrap_or('\0')
    }

    fn error<T>(&self, at: usize, message: impl Into<String>) -> Result<T, Issue> {
        Err(Issue {
            at: u32::try_from(at).unwrap_or(u32::MAX),
            message: format!("Syntax error: {}", message.into()),
        })
    }

    fn token(&mut self) -> Result<Token, Issue> {
        self.skip_blank();
        let at = self.next;
        let kind = self.kind()?;
        Ok(Token {
            at: u32::try_from(at).unwrap_or(u32::MAX),
            kind,
        })
    }

    fn skip_blank(&mut self) {
        loop {
            match self.peek(0) {
                ' ' | '\t' | '\r' | '\n' | '\x0c' => self.next += 1,
                '/' if self.peek(1) == '/' => {
                    while self.next < self.chars.len() && self.peek(0) != '\n' {
                        self.next += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn kind(&mut self) -> Result<TokenKind, Issue> {
        if self.next >= self.chars.len() {
            return Ok(TokenKind::End);
        }
        let first = self.peek(0);
        if let Some(prefix) = self.string_prefix() {
            return self.string(prefix);
        }
        if first.is_ascii_alphabetic() || first == '_' {
            return Ok(self.word());
        }
        if first.is_ascii_digit() || (first == '.' && self.peek(1).is_ascii_digit()) {
            return self.number();
        }
        if first == '`' {
            return self.quoted_name();
        }
        let matches = |symbol: &&&str| {
            let mut ahead = symbol.chars().enumerate();
            ahead.all(|(index, c)| self.peek(index) == c)
        };
        match SYMBOLS.iter().find(matches) {
            Some(symbol) => {
                self.next += symbol.len();
                Ok(TokenKind::Symbol(symbol))
            }
            None => self.error(self.next, format!("token recognition error at: '{first}'")),
        }
    }

    fn word(&mut self) -> TokenKind {
        let start = self.next;
        while self.peek(0).is_ascii_alphanumeric() || self.peek(0) == '_' {
            self.next += 1;
        }
        let word: String = self.chars[start..self.next].iter().collect();
        match word.as_str() {
            "true" => TokenKind::Const(Const::Bool(true)),
            "false" => TokenKind::Const(Const::Bool(false)),
            "null" => TokenKind::Const(Const::Null),
            _ => TokenKind::Ident(word),
        }
    }

    fn quoted_name(&mut self) -> Result<TokenKind, Issue> {
        let start = self.next + 1;
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-/ ".contains(c);
        let mut end = start;
        while self.chars.get(end).copied().is_some_and(allowed) {
            end += 1;
        }
        if end == start || self.chars.get(end) != Some(&'`') {
            return self.error(self.next, "token recognition error at: '`'");
        }
        self.next = end + 1;
        Ok(TokenKind::Quoted(self.chars[start..end].iter().collect()))
    }

    fn number(&mut self) -> Result<TokenKind, Issue> {
        let start = self.next;
        let hex = self.peek(0) == '0' && matches!(self.peek(1), 'x' | 'X');
        let mut double = false;
        if hex {
            self.next += 2;
            self.skip_while(|c| c.is_ascii_hexdigit());
        } else {
            self.skip_while(|c| c.is_ascii_digit());
            if self.peek(0) == '.' && self.peek(1).is_ascii_digit() {
                double = true;
                self.next += 1;
                self.skip_while(|c| c.is_ascii_digit());
            }
            double |= self.exponent();
        }
        let text: String = self.chars[start..self.next].iter().collect();
        if double {
            return match text.parse() {
                Ok(value) => Ok(TokenKind::Const(Const::Double(value))),
                Err(_) => self.error(start, "invalid double literal"),
            };
        }
        let (digits, radix) = match hex {
            true => (&text[2..], 16),
            false => (&text[..], 10),
        };
        let value = u64::from_str_radix(digits, radix);
        if matches!(self.peek(0), 'u' | 'U') {
            self.next += 1;
            return match value {
                Ok(value) => Ok(TokenKind::Const(Const::Uint(value))),
                Err(_) => self.error(start, "invalid uint literal"),
            };
        }
        match value {
            // The sign is the parser's; it knows the one number that only fits with it.
            Ok(value) if value <= i64::MIN.unsigned_abs() => {
                Ok(TokenKind::Const(Const::Uint(value)).into_signed())
            }
            _ => self.error(start, "invalid int literal"),
        }
    }

    fn skip_while(&mut self, wanted: impl Fn(char) -> bool) {
        while self.next < self.chars.len() && wanted(self.peek(0)) {
            self.next += 1;
        }
    }

    fn exponent(&mut self) -> bool {
        let signed = usize::from(matches!(self.peek(1), '+' | '-'));
        if !matches!(self.peek(0), 'e' | 'E') || !self.peek(1 + signed).is_ascii_digit() {
            return false;
        }
        self.next += 1 + signed;
        self.skip_while(|c| c.is_ascii_digit());
        true
    }

    // `r` and `b`, in any order and case, before a quote.
    fn string_prefix(&self) -> Option<Prefix> {
        let mut prefix = Prefix::default();
        for ahead in 0..3 {
            match self.peek(ahead) {
                'r' | 'R' if !prefix.raw => prefix.raw = true,
                'b' | 'B' if !prefix.bytes => prefix.bytes = true,
                '"' | '\'' => {
                    prefix.length = ahead;
                    return Some(prefix);
                }
                _ => return None,
            }
        }
        None
    }

    fn string(&mut self, prefix: Prefix) -> Result<TokenKind, Issue> {
        let start = self.next;
        self.next += prefix.length;
        let quote = self.peek(0);
        let triple = self.peek(1) == quote && self.peek(2) == quote;
        let quotes = if triple { 3 } else { 1 };
        self.next += quotes;
        let mut out = Out::default();
        loop {
            if self.next >= self.chars.len() || (!triple && matches!(self.peek(0), '\n' | '\r')) {
                return self.error(start, format!("token recognition error at: '{quote}'"));
            }
            if (0..quotes).all(|ahead| self.peek(ahead) == quote) {
                self.next += quotes;
                break;
            }
            let c = self.peek(0);
            self.next += 1;
            match c {
                '\\' if !prefix.raw => self.escape(prefix, &mut out)?,
                c => out.push(c),
            }
        }
        match prefix.bytes {
            true => Ok(TokenKind::Const(Const::Bytes(out.0))),
            false => match String::from_utf8(out.0) {
                Ok(text) => Ok(TokenKind::Const(Const::String(text))),
                Err(_) => self.error(start, "invalid string literal"),
            },
        }
    }

    fn escape(&mut self, prefix: Prefix, out: &mut Out) -> Result<(), Issue> {
        let at = self.next;
        let c = self.peek(0);
        self.next += 1;
        let plain = match c {
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            '\\' | '?' | '"' | '\'' | '`' => c,
            'x' | 'X' => return self.code(2, 16, prefix, out),
            'u' if !prefix.bytes => return self.code(4, 16, prefix, out),
            'U' if !prefix.bytes => return self.code(8, 16, prefix, out),
            '0'..='3' => {
                self.next -= 1;
                return self.code(3, 8, prefix, out);
            }
            _ => return self.error(at, "invalid escape sequence"),
        };
        out.push(plain);
        Ok(())
    }

    fn code(
        &mut self,
        digits: usize,
        radix: u32,
        prefix: Prefix,
        out: &mut Out,
    ) -> Result<(), Issue> {
        let at = self.next;
        let end = (at + digits).min(self.chars.len());
        let text: String = self.chars[at..end].iter().collect();
        let value = u32::from_str_radix(&text, radix).ok();
        let value = value.filter(|_| text.len() == digits && !text.starts_with('+'));
        self.next = end;
        match (value, prefix.bytes) {
            (Some(byte @ 0..=255), true) => out.0.push(byte as u8),
            (Some(code), false) if char::from_u32(code).is_some() => {
                out.push(char::from_u32(code).unwrap_or_default());
            }
            _ => return self.error(at, "invalid escape sequence"),
        }
        Ok(())
    }
}

impl TokenKind {
    fn into_signed(self) -> TokenKind {
        match self {
            TokenKind::Const(Const::Uint(value)) => match i64::try_from(value) {
                Ok(value) => TokenKind::Const(Const::Int(value)),
                // 9223372036854775808, which the parser takes only behind a minus.
                Err(_) => TokenKind::Const(Const::Int(i64::MIN)),
            },
            other => other,
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Prefix {
    raw: bool,
    bytes: bool,
    length: usize,
}

#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn push(&mut self, c: char) {
        self.0.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
}
