//! Expressions: `[concat('a', parameters('b')).c[0]]`.

use serde_json::{Value, json};

use super::{DEEPEST, Scope, functions, invalid};
use crate::arm::fault::Fault;

/// An expression in its parts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node {
    Text(String),
    Number(i64),
    Call(String, Vec<Node>),
    Field(Box<Node>, String),
    Index(Box<Node>, Box<Node>),
}

/// The value of a text: an expression in brackets, or the text itself.
pub(crate) fn evaluate(scope: &Scope<'_, '_>, text: &str) -> Result<Value, Fault> {
    if let Some(rest) = text.strip_prefix("[[") {
        return Ok(json!(format!("[{rest}")));
    }
    match text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(inner) => value(scope, &parse(inner)?),
        None => Ok(json!(text)),
    }
}

fn value(scope: &Scope<'_, '_>, node: &Node) -> Result<Value, Fault> {
    match node {
        Node::Text(text) => Ok(json!(text)),
        Node::Number(number) => Ok(json!(number)),
        // What is not chosen is not worked out: it may be an error.
        Node::Call(name, arguments) if name.eq_ignore_ascii_case("if") && arguments.len() == 3 => {
            let chosen = if value(scope, &arguments[0])? == json!(true) {
                1
            } else {
                2
            };
            value(scope, &arguments[chosen])
        }
        Node::Call(name, arguments) => {
            let arguments = arguments
                .iter()
                .map(|one| value(scope, one))
                .collect::<Result<Vec<_>, _>>()?;
            functions::call(scope, name, &arguments)
        }
        Node::Field(of, name) => field(&value(scope, of)?, name),
        Node::Index(of, at) => {
            let (of, at) = (value(scope, of)?, value(scope, at)?);
            match (&of, at.as_u64(), at.as_str()) {
                (Value::Array(all), Some(at), _) => {
                    all.get(at as usize).cloned().ok_or_else(|| {
                        invalid(format!(
                            "The language expression property array index '{at}' is out of bounds"
                        ))
                    })
                }
                (_, _, Some(name)) => field(&of, name),
                _ => Err(invalid(
                    "The language expression has an index that fits no array",
                )),
            }
        }
    }
}

fn field(of: &Value, name: &str) -> Result<Value, Fault> {
    let found = of
        .as_object()
        .into_iter()
        .flatten()
        .find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.clone()).ok_or_else(|| {
        let known: Vec<&str> = of.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        invalid(format!("The language expression property '{name}' doesn't exist, available properties are '{}'", known.join(", ")))
    })
}

/// Reads an expression.
pub(crate) fn parse(text: &str) -> Result<Node, Fault> {
    let mut reader = Reader {
        text: text.as_bytes(),
        at: 0,
        depth: 0,
    };
    let node = reader.expression()?;
    reader.space();
    match reader.at == reader.text.len() {
        true => Ok(node),
        false => Err(reader.unexpected()),
    }
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn unexpected(&self) -> Fault {
        let shown = String::from_utf8_lossy(self.text);
        invalid(format!(
            "The language expression '{shown}' is not valid: something unexpected at position {}",
            self.at
        ))
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expression(&mut self) -> Result<Node, Fault> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(invalid("The language expression is nested too deeply"));
        }
        let mut node = self.atom()?;
        loop {
            if self.eat(b'.') {
                node = Node::Field(Box::new(node), self.word()?);
            } else if self.eat(b'[') {
                let at = self.expression()?;
                if !self.eat(b']') {
                    return Err(self.unexpected());
                }
                node = Node::Index(Box::new(node), Box::new(at));
            } else {
                self.depth -= 1;
                return Ok(node);
            }
        }
    }

    fn atom(&mut self) -> Result<Node, Fault> {
        self.space();
        match self.peek() {
            Some(b'\'') => self.text().map(Node::Text),
            Some(byte) if byte.is_ascii_digit() || byte == b'-' => self.number(),
            Some(byte) if byte.is_ascii_alphabetic() || byte == b'_' => self.call(),
            _ => Err(self.unexpected()),
        }
    }

    // Two quotes are one.
    fn text(&mut self) -> Result<String, Fault> {
        self.at += 1;
        let mut out = Vec::new();
        loop {
            match (self.peek(), self.text.get(self.at + 1)) {
                (Some(b'\''), Some(b'\'')) => {
                    out.push(b'\'');
                    self.at += 2;
                }
                (Some(b'\''), _) => {
                    self.at += 1;
                    return Ok(String::from_utf8_lossy(&out).into_owned());
                }
                (Some(byte), _) => {
                    out.push(byte);
                    self.at += 1;
                }
                (None, _) => return Err(self.unexpected()),
            }
        }
    }

    fn number(&mut self) -> Result<Node, Fault> {
        let from = self.at;
        self.at += 1;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        let text = std::str::from_utf8(&self.text[from..self.at]).unwrap_or_default();
        text.parse()
            .map(Node::Number)
            .map_err(|_| self.unexpected())
    }

    fn word(&mut self) -> Result<String, Fault> {
        self.space();
        let from = self.at;
        while self
            .peek()
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
        {
            self.at += 1;
        }
        match from == self.at {
            true => Err(self.unexpected()),
            false => Ok(String::from_utf8_lossy(&self.text[from..self.at]).into_owned()),
        }
    }

    fn call(&mut self) -> Result<Node, Fault> {
        let mut name = self.word()?;
        // Functions of users and of namespaces: `az.resourceGroup()`.
        while self.peek() == Some(b'.') {
            let at = self.at;
            self.at += 1;
            let more = self.word()?;
            if self.peek() != Some(b'(') {
                self.at = at;
                break;
            }
            name = more;
        }
        let mut arguments = Vec::new();
        if !self.eat(b'(') {
            return Err(self.unexpected());
        }
        if self.eat(b')') {
            return Ok(Node::Call(name, arguments));
        }
        loop {
            arguments.push(self.expression()?);
            if self.eat(b')') {
                return Ok(Node::Call(name, arguments));
            }
            if !self.eat(b',') {
                return Err(self.unexpected());
            }
        }
    }
}
