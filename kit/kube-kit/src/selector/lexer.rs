//! Words of the label selector grammar.

/// What a word is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    End,
    ClosedPar,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    GreaterThan,
    Identifier,
    In,
    LessThan,
    NotEquals,
    NotIn,
    OpenPar,
}

const SYMBOLS: [(&str, Token); 9] = [
    (")", Token::ClosedPar),
    (",", Token::Comma),
    ("!", Token::Not),
    ("==", Token::DoubleEquals),
    ("=", Token::Equals),
    (">", Token::GreaterThan),
    ("<", Token::LessThan),
    ("!=", Token::NotEquals),
    ("(", Token::OpenPar),
];

/// Splits a selector into words. As upstream, a NUL byte after a word parts words and a NUL byte in a
/// word's place ends the text.
pub(super) struct Lexer<'a> {
    rest: &'a str,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { rest: text }
    }

    /// The next word and its text; [`Token::End`] again and again at the end.
    pub(super) fn next_word(&mut self) -> (Token, &'a str) {
        self.rest = self.rest.trim_start_matches(is_space);
        match self.rest.chars().next() {
            None | Some('\0') => (Token::End, ""),
            Some(c) if is_symbol(c) => self.symbol(),
            Some(_) => self.identifier(),
        }
    }

    fn identifier(&mut self) -> (Token, &'a str) {
        let end = self
            .rest
            .find(|c| is_symbol(c) || is_space(c) || c == '\0')
            .unwrap_or(self.rest.len());
        let word = self.take(end);
        let token = match word {
            "in" => Token::In,
            "notin" => Token::NotIn,
            _ => Token::Identifier,
        };
        (token, word)
    }

    // Every single symbol is a token, so the longest match is at most two bytes long.
    fn symbol(&mut self) -> (Token, &'a str) {
        let find = |len: usize| {
            self.rest
                .get(..len)
                .and_then(|s| SYMBOLS.iter().find(|(text, _)| *text == s))
        };
        let (text, token) = find(2)
            .or_else(|| find(1))
            .expect("every symbol alone is a token");
        (*token, self.take(text.len()))
    }

    fn take(&mut self, len: usize) -> &'a str {
        let (word, rest) = self.rest.split_at(len);
        self.rest = rest.strip_prefix('\0').unwrap_or(rest);
        word
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_symbol(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}
