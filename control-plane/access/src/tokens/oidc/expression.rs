//! Expressions in CEL about the claims of a token, and about the user they make.

use std::sync::{Arc, LazyLock};

use cel::shape::{Kind, Shape};
use cel::{Bindings, Budget, Env, Program, Type};
use serde_json::Value;

/// An expression that was understood.
#[derive(Debug, Clone)]
pub struct Expression {
    text: String,
    about: About,
    program: Arc<Program>,
}

/// What an expression is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// `claims`: a map of anything.
    Claims,
    /// `user`: a UserInfo.
    User,
}

/// What an expression has to yield, as far as that can be told without a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Yields {
    /// Yes or no.
    Bool,
    /// A text or a list of texts; found out when there is a token, as upstream does.
    Anything,
}

static USER: LazyLock<Arc<Shape>> = LazyLock::new(|| {
    let text = || Shape::plain(Kind::String);
    Shape::object(
        "kubernetes.UserInfo",
        &[
            ("username", text()),
            ("uid", text()),
            ("groups", Shape::list(text())),
            ("extra", Shape::map(Shape::list(text()))),
        ],
    )
});
static CLAIMS_ENV: LazyLock<Env> =
    LazyLock::new(|| Env::new().variable("claims", Type::map(Type::String, Type::Dyn)));
static USER_ENV: LazyLock<Env> = LazyLock::new(|| Env::new().variable("user", Type::of(&USER)));

impl About {
    fn variable(self) -> &'static str {
        match self {
            About::Claims => "claims",
            About::User => "user",
        }
    }

    fn env(self) -> &'static Env {
        match self {
            About::Claims => &CLAIMS_ENV,
            About::User => &USER_ENV,
        }
    }
}

// What is written the same means the same.
impl PartialEq for Expression {
    fn eq(&self, other: &Expression) -> bool {
        (&self.text, self.about) == (&other.text, other.about)
    }
}

impl Expression {
    /// Compiles an expression; says what is wrong with it in upstream's words.
    pub fn parse(text: &str, about: About, yields: Yields) -> Result<Expression, String> {
        let program = Program::compile(text, about.env());
        let program = program.map_err(|issues| format!("compilation failed: {issues}"))?;
        if yields == Yields::Bool && *program.result() != Type::Bool {
            return Err("must evaluate to bool".to_owned());
        }
        Ok(Expression {
            text: text.to_owned(),
            about,
            program: Arc::new(program),
        })
    }

    /// The expression as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the expression looks at a field of what it is about.
    pub fn uses(&self, field: &str) -> bool {
        self.program.selects(self.about.variable(), field)
    }

    /// What the expression is for a value of its variable.
    pub fn value(&self, value: &Value) -> Result<Value, String> {
        let env = self.about.env();
        let value = match self.about {
            About::Claims => cel::Value::json(value),
            About::User => cel::Value::shaped(value, &USER),
        };
        let bindings = Bindings::new(env).set(env, self.about.variable(), value);
        let mut budget = Budget::new(cel::PER_OBJECT);
        let outcome = self.program.evaluate(&bindings, &mut budget);
        let outcome = outcome.and_then(|value| value.to_json());
        outcome.map_err(|error| error.message)
    }
}

#[cfg(test)]
mod tests;
