//! From tokens to expressions, by precedence. Nesting and length are bounded.

use crate::ast::{Const, Entry, Expr, Field, Item, Kind};
use crate::issues::{Issue, Issues};
use crate::lexer::{self, Token, TokenKind};
use crate::macros;

/// cel-go's limits.
const MAX_LENGTH: usize = 100_000;
const MAX_DEPTH: usize = 250;
/// How deep an expression may get, chains of operators and macros included: every later pass recurses over it.
const MAX_TREE: u16 = 300;

/// Names that are kept for other uses.
const RESERVED: [&str; 18] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
    "in",
];

/// What an expression may begin with, in the words of upstream's parser.
const BEGINNINGS: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, \
                          STRING, BYTES, IDENTIFIER}";

/// Binary operators, loosest first, with the functions they call.
const LEVELS: [&[(&str, &str)]; 3] = [
    &[
        ("<", "_<_"),
        ("<=", "_<=_"),
        (">", "_>_"),
        (">=", "_>=_"),
        ("==", "_==_"),
        ("!=", "_!=_"),
        ("in", "@in"),
    ],
    &[("+", "_+_"), ("-", "_-_")],
    &[("*", "_*_"), ("/", "_/_"), ("%", "_%_")],
];

pub(crate) struct Parser<'s> {
    source: &'s str,
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
}

/// Reads an expression.
pub(crate) fn parse(source: &str) -> Result<Expr, Issues> {
    let fail = |issue| Issues::new(source, vec![issue]);
    let length = source.chars().count();
    if length > MAX_LENGTH {
        let message =
            format!("expression code point size exceeds limit: size: {length}, limit {MAX_LENGTH}");
        return Err(fail(Issue { at: 0, message }));
    }
    let tokens = lexer::tokens(source).map_err(fail)?;
    let mut parser = Parser {
        source,
        tokens,
        next: 0,
        depth: 0,
    };
    parser.whole().map_err(fail)
}

type Parsed<T> = Result<T, Issue>;

impl Parser<'_> {
    fn whole(&mut self) -> Parsed<Expr> {
        let expr = self.expr()?;
        match self.kind() {
            TokenKind::End => Ok(expr),
            _ => self.unexpected("<EOF>"),
        }
    }

    fn kind(&self) -> &TokenKind {
        // The lexer's last token is the end, and nobody goes past it.
        &self.tokens[self.next].kind
    }

    fn at(&self) -> u32 {
        self.tokens[self.next].at
    }

    fn advance(&mut self) -> TokenKind {
        let kind = self.tokens[self.next].kind.clone();
        if kind != TokenKind::End {
            self.next += 1;
        }
        kind
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self.kind(), TokenKind::Symbol(found) if *found == symbol)
            || matches!(self.kind(), TokenKind::Ident(word) if symbol == "in" && word == "in")
    }

    fn take(&mut self, symbol: &str) -> bool {
        let found = self.is(symbol);
        if found {
            self.next += 1;
        }
        found
    }

    fn expect(&mut self, symbol: &str) -> Parsed<()> {
        match self.take(symbol) {
            true => Ok(()),
            false => self.unexpected(&format!("'{symbol}'")),
        }
    }

    fn unexpected<T>(&self, expected: &str) -> Parsed<T> {
        let found = match self.kind() {
            TokenKind::End => "<EOF>".to_owned(),
            TokenKind::Symbol(symbol) => (*symbol).to_owned(),
            TokenKind::Ident(name) | TokenKind::Quoted(name) => name.clone(),
            TokenKind::Const(_) => {
                let chars = self.source.chars().skip(self.at() as usize);
                chars.take_while(|c| !c.is_whitespace()).take(20).collect()
            }
        };
        self.fail(
            self.at(),
            format!("Syntax error: mismatched input '{found}' expecting {expected}"),
        )
    }

    fn fail<T>(&self, at: u32, message: impl Into<String>) -> Parsed<T> {
        Err(Issue {
            at,
            message: message.into(),
        })
    }

    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let message = format!("expression recursion limit exceeded: {MAX_DEPTH}");
            return self.fail(self.at(), message);
        }
        let parsed = inner(self);
        self.depth -= 1;
        parsed
    }

    // An expression that got one part longer.
    fn bounded(&self, expr: Expr) -> Parsed<Expr> {
        match expr.depth > MAX_TREE {
            true => self.fail(
                expr.at,
                format!("expression recursion limit exceeded: {MAX_TREE}"),
            ),
            false => Ok(expr),
        }
    }

    fn expr(&mut self) -> Parsed<Expr> {
        self.deeper(|parser| {
            let condition = parser.logic("||", "_||_")?;
            let at = parser.at();
            if !parser.take("?") {
                return Ok(condition);
            }
            let yes = parser.logic("||", "_||_")?;
            parser.expect(":")?;
            let no = parser.expr()?;
            parser.bounded(Expr::call(at, "_?_:_", vec![condition, yes, no]))
        })
    }

    fn logic(&mut self, symbol: &str, function: &str) -> Parsed<Expr> {
        let mut terms = Vec::new();
        let mut places = Vec::new();
        loop {
            terms.push(match symbol {
                "||" => self.logic("&&", "_&&_")?,
                _ => self.binary(0)?,
            });
            places.push(self.at());
            if !self.take(symbol) {
                break;
            }
        }
        Ok(balanced(function, &mut terms.into_iter(), &places))
    }

    fn binary(&mut self, level: usize) -> Parsed<Expr> {
        let Some(operators) = LEVELS.get(level) else {
            return self.unary();
        };
        let mut left = self.binary(level + 1)?;
        loop {
            let found = operators.iter().find(|(symbol, _)| self.is(symbol));
            let Some((_, function)) = found else {
                return Ok(left);
            };
            let at = self.at();
            self.next += 1;
            let right = self.binary(level + 1)?;
            left = self.bounded(Expr::call(at, function, vec![left, right]))?;
        }
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let at = self.at();
        for (symbol, function) in [("!", "!_"), ("-", "-_")] {
            if !self.is(symbol) {
                continue;
            }
            let mut count = 0_usize;
            while self.take(symbol) {
                count += 1;
            }
            let operand = self.signed(symbol == "-" && count % 2 == 1)?;
            return Ok(match operand {
                Signed::Whole(expr) => expr,
                // Pairs of the same sign are nothing.
                Signed::Operand(expr) if count.is_multiple_of(2) => expr,
                Signed::Operand(expr) => Expr::call(at, function, vec![expr]),
            });
        }
        match self.signed(false)? {
            Signed::Whole(expr) | Signed::Operand(expr) => Ok(expr),
        }
    }

    // A minus belongs to the number behind it: the smallest number has no positive counterpart.
    fn signed(&mut self, negative: bool) -> Parsed<Signed> {
        let at = self.at();
        if let TokenKind::Const(Const::Int(value)) = self.kind() {
            let value = *value;
            match (negative, value) {
                (true, value) => {
                    self.next += 1;
                    let expr = Expr::constant(at, Const::Int(value.wrapping_neg()));
                    return self.postfix(expr).map(Signed::Whole);
                }
                (false, i64::MIN) => return self.fail(at, "Syntax error: invalid int literal"),
                _ => {}
            }
        }
        if let (true, TokenKind::Const(Const::Double(value))) = (negative, self.kind()) {
            let expr = Expr::constant(at, Const::Double(-*value));
            self.next += 1;
            return self.postfix(expr).map(Signed::Whole);
        }
        let primary = self.deeper(|parser| parser.primary())?;
        self.postfix(primary).map(Signed::Operand)
    }

    fn postfix(&mut self, mut expr: Expr) -> Parsed<Expr> {
        loop {
            let at = self.at();
            if self.take(".") {
                let member = self.member(at, expr)?;
                expr = self.bounded(member)?;
            } else if self.take("[") {
                let function = match self.take("?") {
                    true => "_[?_]",
                    false => "_[_]",
                };
                let index = self.expr()?;
                self.expect("]")?;
                expr = self.bounded(Expr::call(at, function, vec![expr, index]))?;
            } else if self.is("{") && expr.qualified_name().is_some() {
                expr = self.message(expr)?;
            } else {
                return Ok(expr);
            }
        }
    }

    fn member(&mut self, at: u32, operand: Expr) -> Parsed<Expr> {
        let optional = self.take("?");
        let (field, quoted) = match self.kind().clone() {
            TokenKind::Ident(name) => (name, false),
            TokenKind::Quoted(name) => (name, true),
            _ => return self.unexpected("IDENTIFIER"),
        };
        let field_at = self.at();
        self.next += 1;
        if optional {
            let name = Expr::constant(field_at, Const::String(field));
            return Ok(Expr::call(at, "_?._", vec![operand, name]));
        }
        let open = self.at();
        if quoted || !self.take("(") {
            let operand = Box::new(operand);
            let kind = Kind::Select {
                operand,
                field,
                test: false,
            };
            return Ok(Expr::new(at, kind));
        }
        let args = self.exprs(")")?;
        macros::member(open, field, operand, args)
    }

    // What is separated by commas, up to the closing symbol; the last comma may be left hanging in lists.
    fn exprs(&mut self, close: &str) -> Parsed<Vec<Expr>> {
        let mut found = Vec::new();
        if self.take(close) {
            return Ok(found);
        }
        loop {
            found.push(self.expr()?);
            if self.take(close) {
                return Ok(found);
            }
            self.expect(",")?;
        }
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let at = self.at();
        match self.advance() {
            TokenKind::Const(value) => Ok(Expr::constant(at, value)),
            TokenKind::Symbol("(") => {
                let inner = self.expr()?;
                self.expect(")")?;
                Ok(inner)
            }
            TokenKind::Symbol("[") => self.list(at),
            TokenKind::Symbol("{") => self.map(at),
            // A leading dot says that the name is absolute, which all names here are.
            TokenKind::Symbol(".") => match self.advance() {
                TokenKind::Ident(name) => self.name(at, name),
                _ => {
                    self.next -= 1;
                    self.unexpected("IDENTIFIER")
                }
            },
            TokenKind::Ident(name) => self.name(at, name),
            other => {
                if other != TokenKind::End {
                    self.next -= 1;
                }
                self.unexpected(BEGINNINGS)
            }
        }
    }

    fn name(&mut self, at: u32, name: String) -> Parsed<Expr> {
        if RESERVED.contains(&name.as_str()) {
            return self.fail(at, format!("reserved identifier: {name}"));
        }
        let open = self.at();
        if !self.take("(") {
            return Ok(Expr::new(at, Kind::Ident(name)));
        }
        let args = self.exprs(")")?;
        macros::global(open, name, args)
    }

    fn list(&mut self, at: u32) -> Parsed<Expr> {
        let mut items = Vec::new();
        while !self.take("]") {
            let optional = self.take("?");
            let value = self.expr()?;
            items.push(Item { optional, value });
            if !self.is("]") {
                self.expect(",")?;
            }
        }
        Ok(Expr::new(at, Kind::List(items)))
    }

    fn map(&mut self, at: u32) -> Parsed<Expr> {
        let mut entries = Vec::new();
        while !self.take("}") {
            let optional = self.take("?");
            let key = self.expr()?;
            self.expect(":")?;
            let value = self.expr()?;
            entries.push(Entry {
                optional,
                key,
                value,
            });
            if !self.is("}") {
                self.expect(",")?;
            }
        }
        Ok(Expr::new(at, Kind::Map(entries)))
    }

    fn message(&mut self, name: Expr) -> Parsed<Expr> {
        let at = self.at();
        let name = name.qualified_name().unwrap_or_default();
        self.expect("{")?;
        let mut fields = Vec::new();
        while !self.take("}") {
            let optional = self.take("?");
            let at = self.at();
            let field = match self.advance() {
                TokenKind::Ident(field) | TokenKind::Quoted(field) => field,
                _ => {
                    self.next = self.next.saturating_sub(1);
                    return self.unexpected("{'}', ',', IDENTIFIER}");
                }
            };
            self.expect(":")?;
            let value = self.expr()?;
            fields.push(Field {
                at,
                optional,
                name: field,
                value,
            });
            if !self.is("}") {
                self.expect(",")?;
            }
        }
        Ok(Expr::new(at, Kind::Struct { name, fields }))
    }
}

enum Signed {
    /// The sign is part of it.
    Whole(Expr),
    Operand(Expr),
}

// A long chain of && or || becomes a flat tree, as cel-go makes it: no pass over it recurses deeply.
fn balanced(
    function: &str,
    terms: &mut dyn ExactSizeIterator<Item = Expr>,
    places: &[u32],
) -> Expr {
    fn build(
        function: &str,
        terms: &mut dyn ExactSizeIterator<Item = Expr>,
        places: &[u32],
        (low, high): (usize, usize),
    ) -> Option<Expr> {
        if low == high {
            return terms.next();
        }
        let middle = (low + high).div_ceil(2) - 1;
        let left = build(function, terms, places, (low, middle))?;
        let right = build(function, terms, places, (middle + 1, high))?;
        let at = places.get(middle).copied().unwrap_or_default();
        Some(Expr::call(at, function, vec![left, right]))
    }
    let last = terms.len().saturating_sub(1);
    let built = build(function, terms, places, (0, last));
    // There is at least one term: the loop that gathers them begins with one.
    built.unwrap_or_else(|| Expr::constant(0, Const::Null))
}
