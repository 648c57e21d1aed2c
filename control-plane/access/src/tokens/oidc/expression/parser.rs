//! Reads expressions, one function per level of precedence.

use serde_json::Value;

use super::{Node, Test};

/// Deepest nesting and most words of an expression; real ones have a dozen.
const MOST_WORDS: usize = 200;

#[derive(Debug, Clone, PartialEq)]
enum Word {
    Name(String),
    Text(String),
    Number(i64),
    Sign(&'static str),
}

/// Longer signs stand before their beginnings.
const SIGNS: [&str; 14] = [
    "&&", "||", "==", "!=", ".?", "!", "+", ".", ",", "(", ")", "[", "]", "?",
];

/// Reads a whole expression.
pub(super) fn parse(text: &str, variable: &str) -> Result<Node, String> {
    let words = words(text)?;
    if words.len() > MOST_WORDS {
        return Err("it is too long".into());
    }
    let mut parser = Parser {
        words: words.into_iter().rev().collect(),
        variables: vec![variable.to_owned()],
    };
    let node = parser.either()?;
    match parser.words.last() {
        None => Ok(node),
        Some(word) => Err(format!("{word} is not understood there")),
    }
}

struct Parser {
    /// What is left, the next one last.
    words: Vec<Word>,
    variables: Vec<String>,
}

impl Parser {
    fn takes(&mut self, sign: &'static str) -> bool {
        let found = self.words.last() == Some(&Word::Sign(sign));
        if found {
            self.words.pop();
        }
        found
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), String> {
        if self.takes(sign) {
            Ok(())
        } else {
            Err(format!("{sign:?} is missing"))
        }
    }

    fn name(&mut self) -> Result<String, String> {
        match self.words.pop() {
            Some(Word::Name(name)) => Ok(name),
            _ => Err("a name is missing".into()),
        }
    }

    fn either(&mut self) -> Result<Node, String> {
        let mut nodes = vec![self.both()?];
        while self.takes("||") {
            nodes.push(self.both()?);
        }
        Ok(one_or(nodes, Node::Or))
    }

    fn both(&mut self) -> Result<Node, String> {
        let mut nodes = vec![self.compared()?];
        while self.takes("&&") {
            nodes.push(self.compared()?);
        }
        Ok(one_or(nodes, Node::And))
    }

    fn compared(&mut self) -> Result<Node, String> {
        let left = Box::new(self.sum()?);
        if self.takes("==") {
            return Ok(Node::Equal(left, Box::new(self.sum()?)));
        }
        if self.takes("!=") {
            return Ok(Node::Not(Box::new(Node::Equal(
                left,
                Box::new(self.sum()?),
            ))));
        }
        if self.words.last() == Some(&Word::Name("in".into())) {
            self.words.pop();
            return Ok(Node::In(left, Box::new(self.sum()?)));
        }
        Ok(*left)
    }

    fn sum(&mut self) -> Result<Node, String> {
        let mut nodes = vec![self.negated()?];
        while self.takes("+") {
            nodes.push(self.negated()?);
        }
        Ok(one_or(nodes, Node::Sum))
    }

    fn negated(&mut self) -> Result<Node, String> {
        if self.takes("!") {
            Ok(Node::Not(Box::new(self.negated()?)))
        } else {
            self.followed()
        }
    }

    /// A value and what is asked of it.
    fn followed(&mut self) -> Result<Node, String> {
        let mut node = self.primary()?;
        loop {
            if self.takes(".?") {
                node = self.optional(node)?;
            } else if self.takes(".") {
                let name = self.name()?;
                let called = self.takes("(");
                node = if called {
                    self.call(node, &name)?
                } else {
                    field(node, name)?
                };
            } else if self.takes("[") {
                let Some(Word::Text(name)) = self.words.pop() else {
                    return Err("only texts index".into());
                };
                self.expect("]")?;
                node = field(node, name)?;
            } else {
                return Ok(node);
            }
        }
    }

    fn primary(&mut self) -> Result<Node, String> {
        if self.takes("(") {
            let inner = self.either()?;
            self.expect(")")?;
            return Ok(inner);
        }
        match self.words.pop() {
            Some(Word::Text(text)) => Ok(Node::Literal(Value::String(text))),
            Some(Word::Number(number)) => Ok(Node::Literal(number.into())),
            Some(Word::Name(name)) if name == "true" || name == "false" => {
                Ok(Node::Literal((name == "true").into()))
            }
            Some(Word::Name(name)) if self.variables.contains(&name) => {
                Ok(Node::Path(name, Vec::new()))
            }
            Some(word) => Err(format!("{word} is not understood there")),
            None => Err("it ends too early".into()),
        }
    }

    /// `.?field.orValue(literal)`; the question mark alone has no use without the call.
    fn optional(&mut self, node: Node) -> Result<Node, String> {
        let name = self.name()?;
        let node = field(node, name)?;
        self.expect(".")?;
        if self.name()? != "orValue" {
            return Err("only .orValue() may follow an optional field".into());
        }
        self.expect("(")?;
        let Node::Literal(otherwise) = self.primary()? else {
            return Err("orValue() takes text, numbers and truth".into());
        };
        self.expect(")")?;
        Ok(Node::Optional(Box::new(node), otherwise))
    }

    fn call(&mut self, subject: Node, function: &str) -> Result<Node, String> {
        let test = match function {
            "startsWith" => Test::StartsWith,
            "endsWith" => Test::EndsWith,
            "contains" => Test::Contains,
            "all" | "exists" => return self.each(function == "all", subject),
            _ => return Err(format!("{function}() is not understood")),
        };
        let other = self.sum()?;
        self.expect(")")?;
        Ok(Node::Test(test, Box::new(subject), Box::new(other)))
    }

    fn each(&mut self, all: bool, list: Node) -> Result<Node, String> {
        let variable = self.name()?;
        self.expect(",")?;
        self.variables.push(variable.clone());
        let condition = Box::new(self.either()?);
        self.variables.pop();
        self.expect(")")?;
        Ok(Node::Each {
            all,
            list: Box::new(list),
            variable,
            condition,
        })
    }
}

fn field(node: Node, name: String) -> Result<Node, String> {
    match node {
        Node::Path(root, mut fields) => {
            fields.push(name);
            Ok(Node::Path(root, fields))
        }
        _ => Err(format!(
            "only variables have fields, {name} is none of theirs"
        )),
    }
}

fn one_or(mut nodes: Vec<Node>, several: fn(Vec<Node>) -> Node) -> Node {
    match nodes.len() {
        1 => nodes.remove(0),
        _ => several(nodes),
    }
}

fn words(text: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, after) = match first {
            '\'' | '"' => quoted(rest)?,
            '0'..='9' => number(rest)?,
            'a'..='z' | 'A'..='Z' | '_' => {
                let (name, after) = split_while(rest, |c| c.is_ascii_alphanumeric() || c == '_');
                (Word::Name(name.to_owned()), after)
            }
            _ => sign(rest)?,
        };
        // Raw and byte texts (r'…', b'…') would read as a name and a text side by side.
        if matches!((words.last(), &word), (Some(Word::Name(name)), Word::Text(_)) if name != "in")
        {
            return Err("texts with a prefix are not understood".into());
        }
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

fn split_while(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !keep(c)).unwrap_or(text.len()))
}

fn number(text: &str) -> Result<(Word, &str), String> {
    let (digits, after) = split_while(text, |c| c.is_ascii_digit());
    let plain = !after.starts_with(['.', 'e', 'E', 'u', 'U', 'x', 'X']);
    let number = digits.parse().ok().filter(|_| plain);
    Ok((
        Word::Number(number.ok_or("only whole numbers are understood")?),
        after,
    ))
}

fn sign(text: &str) -> Result<(Word, &str), String> {
    let sign = SIGNS.into_iter().find(|sign| text.starts_with(sign));
    let sign = sign.ok_or_else(|| {
        format!(
            "{:?} is not understood",
            text.chars().next().unwrap_or_default()
        )
    })?;
    Ok((Word::Sign(sign), &text[sign.len()..]))
}

/// Text up to its closing quote; of escapes, only those of quotes and the backslash.
fn quoted(text: &str) -> Result<(Word, &str), String> {
    let quote = text.chars().next().unwrap_or_default();
    let mut found = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, escaped @ ('\\' | '\'' | '"'))) => found.push(escaped),
                _ => return Err("only \\\\, \\' and \\\" are understood as escapes".into()),
            },
            _ if c == quote => return Ok((Word::Text(found), &text[at + c.len_utf8()..])),
            _ => found.push(c),
        }
    }
    Err("a text has no end".into())
}

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Word::Name(name) => write!(f, "{name:?}"),
            Word::Text(text) => write!(f, "text {text:?}"),
            Word::Number(number) => write!(f, "{number}"),
            Word::Sign(sign) => write!(f, "{sign:?}"),
        }
    }
}
