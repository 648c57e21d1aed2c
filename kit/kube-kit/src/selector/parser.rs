//! The label selector grammar: `requirement { "," requirement }`.

use super::labels::{Operator, Requirement};
use super::lexer::{Lexer, Token};
use super::syntax::label_key_errors;
use super::{SelectorError, check_length, invalid, quoted};

/// Reads a selector's requirements, in the order written.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    check_length(text)?;
    let mut parser = Parser::new(text);
    let mut requirements = Vec::new();
    loop {
        match parser.peek_value() {
            Token::Identifier | Token::Not => {}
            Token::End => return Ok(requirements),
            _ => {
                return Err(found(
                    parser.word,
                    ", expected: !, identifier, or 'end of string'",
                ));
            }
        }
        let requirement = parser
            .requirement()
            .map_err(|error| SelectorError::new(format!("unable to parse requirement: {error}")))?;
        requirements.push(requirement);
        match parser.take_value() {
            (Token::End, _) => return Ok(requirements),
            (Token::Comma, _) => parser.expect_another()?,
            (_, word) => return Err(found(word, ", expected: ',' or 'end of string'")),
        }
    }
}

/// One word of lookahead over the lexer.
struct Parser<'a> {
    lexer: Lexer<'a>,
    token: Token,
    word: &'a str,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parser<'a> {
        let mut lexer = Lexer::new(text);
        let (token, word) = lexer.next_word();
        Parser { lexer, token, word }
    }

    /// The next token where a key or value may stand: there `in` and `notin` are plain words.
    fn peek_value(&self) -> Token {
        match self.token {
            Token::In | Token::NotIn => Token::Identifier,
            token => token,
        }
    }

    fn take_value(&mut self) -> (Token, &'a str) {
        let token = self.peek_value();
        (token, self.take().1)
    }

    fn take(&mut self) -> (Token, &'a str) {
        let taken = (self.token, self.word);
        (self.token, self.word) = self.lexer.next_word();
        taken
    }

    fn expect_another(&self) -> Result<(), SelectorError> {
        match self.peek_value() {
            Token::Identifier | Token::Not => Ok(()),
            _ => Err(found(self.word, ", expected: identifier after ','")),
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let negated = self.peek_value() == Token::Not;
        if negated {
            self.take();
        }
        let key = self.key()?;
        if negated {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek_value(), Token::End | Token::Comma) {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let mut values = match operator {
            Operator::In | Operator::NotIn => self.value_set()?,
            _ => vec![self.exact_value()?],
        };
        values.sort_unstable();
        values.dedup();
        Requirement::new(
            key,
            operator,
            values.into_iter().map(str::to_owned).collect(),
        )
    }

    // The key's error carries no field, which upstream prints as `<nil>`.
    fn key(&mut self) -> Result<&'a str, SelectorError> {
        let (token, key) = self.take_value();
        if token != Token::Identifier {
            return Err(found(key, ", expected: identifier"));
        }
        match label_key_errors(key).as_slice() {
            [] => Ok(key),
            errors => Err(SelectorError::new(invalid(
                "<nil>",
                &quoted(key),
                &errors.join("; "),
            ))),
        }
    }

    fn operator(&mut self) -> Result<Operator, SelectorError> {
        Ok(match self.take() {
            (Token::In, _) => Operator::In,
            (Token::NotIn, _) => Operator::NotIn,
            (Token::Equals, _) => Operator::Equals,
            (Token::DoubleEquals, _) => Operator::DoubleEquals,
            (Token::NotEquals, _) => Operator::NotEquals,
            (Token::GreaterThan, _) => Operator::GreaterThan,
            (Token::LessThan, _) => Operator::LessThan,
            (_, word) => return Err(found(word, ", expected: in, notin, =, ==, !=, gt, lt")),
        })
    }

    fn value_set(&mut self) -> Result<Vec<&'a str>, SelectorError> {
        let (token, word) = self.take_value();
        if token != Token::OpenPar {
            return Err(found(word, " expected: '('"));
        }
        match self.peek_value() {
            Token::Identifier | Token::Comma => self.value_list(),
            Token::ClosedPar => {
                self.take();
                Ok(vec![""])
            }
            _ => Err(found(self.word, ", expected: ',', ')' or identifier")),
        }
    }

    // `(,a)` and `(a,)` and `(a,,b)` each hold the empty value too. Ends behind the parenthesis.
    fn value_list(&mut self) -> Result<Vec<&'a str>, SelectorError> {
        let mut values = Vec::new();
        loop {
            match self.take_value() {
                (Token::Identifier, word) => {
                    values.push(word);
                    if !matches!(self.peek_value(), Token::Comma | Token::ClosedPar) {
                        return Err(found(self.word, ", expected: ',' or ')'"));
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty()
                        || matches!(self.peek_value(), Token::Comma | Token::ClosedPar)
                    {
                        values.push("");
                    }
                }
                (_, word) => return Err(found(word, ", expected: ',', or identifier")),
            }
            if self.peek_value() == Token::ClosedPar {
                self.take();
                return Ok(values);
            }
        }
    }

    fn exact_value(&mut self) -> Result<&'a str, SelectorError> {
        if matches!(self.peek_value(), Token::End | Token::Comma) {
            return Ok("");
        }
        match self.take_value() {
            (Token::Identifier, word) => Ok(word),
            (_, word) => Err(found(word, ", expected: identifier")),
        }
    }
}

fn found(word: &str, rest: &str) -> SelectorError {
    SelectorError::new(format!("found '{word}'{rest}"))
}
